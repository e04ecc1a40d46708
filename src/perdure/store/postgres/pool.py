"""A pool of connections to one server, opened on demand.

No lock is held during a query, and there is no background thread that a fork would lose.
"""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from psycopg import OperationalError, ProgrammingError, pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from perdure.errors import PerdureError, StoreBusy, StoreUnavailable
from perdure.store.outage import ConnectionCut
from perdure.store.postgres.budget import budget_of
from perdure.store.postgres.connection import PipelineConnection, RawStatement, wait_ready
from perdure.store.postgres.errors import ServerError, join_lines
from perdure.store.postgres.url import ServerAddress, unreadable
from perdure.store.semaphore import Gate
from perdure.values.limits import IDLE_SECONDS_MAX, LOCK_SECONDS_MAX, SERVER_LOCK_SECONDS_MAX, TRANSACTION_SECONDS_MAX

SERVER_VERSION_MIN = 140000
CONNECT_SECONDS_MIN = 1.0
"""The minimum for one attempt, even near the caller's deadline: less would never succeed over a slow network."""

_PORTS = re.compile(r"[0-9,]*")

# The kernel drops the connection after three unanswered probes. Deadlines cover a server that only acknowledges.
DEFAULTS = {
    "application_name": "perdure",
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    # Skip a server that has become a replica.
    "target_session_attrs": "read-write",
}

# A pid other than the session's means a pooler: then settings must be local to the transaction. pg_temp comes last, so
# that no temporary table shadows ours. A more durable synchronous_commit than we need stays.
_SETTINGS = b"""
SELECT pg_backend_pid() <> $1::int,
  set_config('search_path', quote_ident($2::text) || ', pg_temp', pg_backend_pid() <> $1::int),
  set_config('statement_timeout', $3::text, pg_backend_pid() <> $1::int),
  set_config('lock_timeout', $4::text, pg_backend_pid() <> $1::int),
  set_config('idle_in_transaction_session_timeout', $5::text, pg_backend_pid() <> $1::int),
  set_config('synchronous_commit', CASE WHEN $6::text = 'process' THEN 'off'
    WHEN current_setting('synchronous_commit') = 'off' THEN 'on'
    ELSE current_setting('synchronous_commit') END, pg_backend_pid() <> $1::int),
  set_config('client_connection_check_interval', '5s', pg_backend_pid() <> $1::int)
"""
_SETTINGS_17 = _SETTINGS.rstrip() + b",\n  set_config('transaction_timeout', $7::text, pg_backend_pid() <> $1::int)"


class ConnectionPool:
    """Up to `pool_size` connections."""

    def __init__(self, place: ServerAddress, durability: str) -> None:
        self.place = place
        self._durability = durability
        self._gate = Gate(place.pool_size)
        self._idle: list[PipelineConnection] = []
        self._connections: set[pq.abc.PGconn] = set()
        """All connections: idle, in use and connecting."""
        self.before_waiting: Callable[[], object] = _nothing
        """Called by a thread that has to wait for a connection."""
        self._closed = False
        self._budget = budget_of(place)
        if self._budget is not None:
            self._budget.join(self)

    @contextmanager
    def link(self, until: float) -> Iterator[PipelineConnection]:
        """Lend a connection. Raises ConnectionCut if none can be opened by `until`.

        A lost connection is closed together with all idle ones, which are probably lost too.
        """
        link = self._acquire(until)
        good = False
        try:
            yield link
            good = True
        except ServerError as error:
            good = not error.gone
            raise
        except PerdureError:
            good = True
            raise
        finally:
            self.release(link, good)

    def idle_link(self) -> PipelineConnection | None:
        """Lend a connection that is open and idle, if there is one, until `release`."""
        if not self._gate.try_enter():
            return None
        try:
            return self._idle.pop()
        except IndexError:
            self._gate.leave()
            return None

    @contextmanager
    def lasting_link(self, until: float, target: str) -> Iterator[PipelineConnection]:
        """Open a connection of its own for a long time, in the place of one of the pool's."""
        self._wait_for_permit()
        try:
            self.close_one()
            link = self.connect(until, target, lasting=True)
            try:
                yield link
            finally:
                self.close_link(link)
        finally:
            self._gate.leave()

    def _acquire(self, until: float) -> PipelineConnection:
        if not self._gate.try_enter():
            self.before_waiting()
            self._wait_for_permit()
        try:
            return self._idle.pop()
        except IndexError:
            pass  # all are in use
        try:
            return self.connect(until)
        except BaseException:
            self._gate.leave()
            raise

    def _wait_for_permit(self) -> None:
        if not self._gate.enter(time.monotonic() + LOCK_SECONDS_MAX):
            raise StoreBusy(
                f"all {self.place.pool_size} connections were in use for {LOCK_SECONDS_MAX:g} s",
                hint="increase pool_size= in the store URL",
            )

    def release(self, link: PipelineConnection, good: bool) -> None:
        """Take a connection back; one that is not good is closed, and all idle ones with it."""
        wanted = self._budget is not None and self._budget.is_short
        if good and link.usable and not self._closed and not wanted:
            self._idle.append(link)
        else:
            self.close_link(link)
            if not good:
                self.clear()
        self._gate.leave()

    def close_link(self, link: PipelineConnection) -> None:
        """Close a connection from `connect`."""
        known = link.connection in self._connections
        self._connections.discard(link.connection)
        link.close()
        if known and self._budget is not None:
            self._budget.leave()

    def close_one(self) -> bool:
        """Close an idle connection; False if none is idle."""
        try:
            self.close_link(self._idle.pop())
        except IndexError:
            return False
        return True

    def clear(self) -> None:
        """Close the idle connections."""
        while self.close_one():
            pass

    def close(self) -> None:
        """Close all connections; those in use when they are returned."""
        self._closed = True
        self.clear()

    def abandon(self) -> None:
        """In a forked child: drop the parent's sockets without sending anything.

        Otherwise the server would not notice the parent's death and would keep its locks. The descriptors stay in use,
        so that no new file gets the number of a server's socket.
        """
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for connection in self._connections:
            with suppress(OperationalError):  # no socket
                os.dup2(nothing, connection.socket, inheritable=False)
        os.close(nothing)

    def connect(self, until: float, target: str = "", *, lasting: bool = False) -> PipelineConnection:
        """Open and configure a connection to the first host that accepts writes."""
        if self._budget is None:
            return self._connect(until, target)
        self._budget.take(lasting=lasting)
        try:
            return self._connect(until, target)
        except BaseException:
            self._budget.leave()
            raise

    def _connect(self, until: float, target: str) -> PipelineConnection:
        failed = ConnectionCut("no host is named")
        patience = max(CONNECT_SECONDS_MIN, min(self.place.connect_seconds, until - time.monotonic()))
        for conninfo in self._attempts(target or self.place.target):
            try:
                return self._set_up(self._connect_socket(conninfo, patience), patience)
            except ConnectionCut as error:
                failed = error
        raise failed

    def _attempts(self, target: str) -> Iterator[bytes]:
        """Yield one conninfo per host: in nonblocking mode libpq would wait forever for a dead first host."""
        given: dict[str, Any] | None = None
        with suppress(ProgrammingError):  # may quote the password, so it is not kept as the cause either
            given = conninfo_to_dict(target)
        if given is None or not _PORTS.fullmatch(str(given.get("port") or "")):
            raise unreadable(self.place.shown)
        common: dict[str, Any] = {**DEFAULTS, **given, "client_encoding": "UTF8"}
        lists = {name: str(given[name]).split(",") for name in ("host", "hostaddr", "port") if given.get(name)}
        count = max((len(values) for name, values in lists.items() if name != "port"), default=1)
        for number in range(count):
            # A single port is for all hosts; otherwise each host has its own.
            own = {name: values[number if len(values) > 1 else 0] for name, values in lists.items()}
            yield make_conninfo("", **{**common, **own}).encode()

    def _connect_socket(self, conninfo: bytes, seconds: float) -> pq.abc.PGconn:
        """Connect within a deadline, which does not cover the DNS lookup."""
        until = time.monotonic() + seconds
        connection: pq.abc.PGconn = pq.PGconn.connect_start(conninfo)
        self._connections.add(connection)
        try:
            while (status := connection.connect_poll()) != pq.PollingStatus.OK:
                if status == pq.PollingStatus.FAILED:
                    raise ConnectionCut(_words(connection))
                wanted = select.POLLIN if status == pq.PollingStatus.READING else select.POLLOUT
                if not wait_ready(connection.socket, wanted, until):
                    raise ConnectionCut(f"the server did not complete the login within {seconds:g} s")
            return connection
        except BaseException:
            self._drop(connection)
            raise

    def _drop(self, connection: pq.abc.PGconn) -> None:
        self._connections.discard(connection)
        connection.finish()

    def _set_up(self, connection: pq.abc.PGconn, seconds: float) -> PipelineConnection:
        try:
            return self._configure_session(connection, seconds)
        except BaseException:
            self._drop(connection)
            raise

    def _configure_session(self, connection: pq.abc.PGconn, seconds: float) -> PipelineConnection:
        """Check the server version and apply the session settings."""
        version = connection.server_version
        if version < SERVER_VERSION_MIN:
            raise StoreUnavailable(
                f"{self.place.shown} is PostgreSQL {version // 10000}",
                hint=f"use {SERVER_VERSION_MIN // 10000} or later",
            )
        connection.nonblocking = 1
        connection.enter_pipeline_mode()
        until = time.monotonic() + seconds
        asking = PipelineConnection(connection, pooled=False, prepare=False, preamble=())
        [answer] = asking.send_batch([self._settings(connection.backend_pid, version)], until)
        pooled = answer.rows[0][0]
        preamble = [self._settings(0, version)]
        return PipelineConnection(connection, pooled=pooled, prepare=self.place.prepare, preamble=preamble)

    def _settings(self, pid: int, version: int) -> RawStatement:
        times = (self.place.statement_seconds, SERVER_LOCK_SECONDS_MAX, IDLE_SECONDS_MAX)
        statement, lock, idle = (str(int(seconds * 1000)) for seconds in times)
        args = (pid, self.place.schema, statement, lock, idle, self._durability)
        if version < 170000:
            return RawStatement(_SETTINGS, args)
        return RawStatement(_SETTINGS_17, (*args, str(int(TRANSACTION_SECONDS_MAX * 1000))))


def _nothing() -> None:
    """By default, nobody keeps a connection that a waiting thread could free."""


def _words(connection: pq.abc.PGconn) -> str:
    # libpq's message has no password; the conninfo may.
    return join_lines(connection.get_error_message()) or "no connection"
