"""Connections to one server: made when they are needed, and kept for the next user.

Nobody holds a lock while he talks to the server, and nothing here runs by itself: no thread that a fork would lose.
"""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from psycopg import OperationalError, ProgrammingError, pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ..errors import PerdureError, StoreBusy, StoreUnavailable
from ..limits import (
    IDLE_SECONDS_MAX,
    LOCK_SECONDS_MAX,
    SERVER_LOCK_SECONDS_MAX,
    TRANSACTION_SECONDS_MAX,
)
from .gate import Gate
from .postgres_errors import Cut, ServerError, folded
from .postgres_link import Link, Raw, ready
from .postgres_url import Place, unreadable

SERVER_VERSION_MIN = 140000
CONNECT_SECONDS_MIN = 1.0
"""For one try, however little of the caller's patience is left: less would never succeed over a slow network."""

_PORTS = re.compile(r"[0-9,]*")

# Three silent probes and the kernel gives the connection up; what TCP acknowledges and nobody answers needs deadlines.
DEFAULTS = {
    "application_name": "perdure",
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    # A server that has become a replica is not where we belong.
    "target_session_attrs": "read-write",
}

# With a pid that is not the session's own, we talk through a pooler: then what is set must end with the transaction.
# pg_temp last: nobody's temporary table stands before ours. What is set to be more durable than we ask stays so.
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


class Pool:
    """Up to so many connections."""

    def __init__(self, place: Place, durability: str) -> None:
        self.place = place
        self._durability = durability
        self._gate = Gate(place.pool_size)
        self._idle: list[Link] = []
        self._connections: set[pq.abc.PGconn] = set()
        """All that there are: idle, in use, and half made."""
        self._closed = False

    @contextmanager
    def link(self, until: float) -> Iterator[Link]:
        """A connection for one user. Raises Cut when none can be made now, or not until then.

        One that is lost is closed, and so are its idle neighbours, which are cut off like itself.
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
            self._release(link, good)

    def _acquire(self, until: float) -> Link:
        if not self._gate.enter(time.monotonic() + LOCK_SECONDS_MAX):
            raise StoreBusy(
                f"all {self.place.pool_size} connections were in use for {LOCK_SECONDS_MAX:g} s",
                hint="give pool_size= in the URL of the store a larger number",
            )
        try:
            return self._idle.pop()
        except IndexError:
            pass  # all of them are in use
        try:
            return self.connect(until)
        except BaseException:
            self._gate.leave()
            raise

    def _release(self, link: Link, good: bool) -> None:
        if good and link.usable and not self._closed:
            self._idle.append(link)
        else:
            self.close_link(link)
            if not good:
                self.clear()
        self._gate.leave()

    def close_link(self, link: Link) -> None:
        """Close one that came from `connect`."""
        self._connections.discard(link.connection)
        link.close()

    def clear(self) -> None:
        """Close what nobody uses."""
        while self._idle:
            try:
                self.close_link(self._idle.pop())
            except IndexError:
                return  # another thread has taken the last one

    def close(self) -> None:
        """Close them; those in use as soon as they come back."""
        self._closed = True
        self.clear()

    def abandon(self) -> None:
        """In a forked child: let go of the parent's sockets without a word on them.

        Otherwise the server would not hear of the parent's death, and keep the locks of what it was at. The numbers
        stay taken: a new file under one of them could be mistaken for the server.
        """
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for connection in self._connections:
            with suppress(OperationalError):  # it has no socket yet, or no more
                os.dup2(nothing, connection.socket, inheritable=False)
        os.close(nothing)

    def connect(self, until: float, target: str = "") -> Link:
        """A new connection, set up; to the first of several hosts that takes writes."""
        failed = Cut("no host is named")
        patience = max(CONNECT_SECONDS_MIN, min(self.place.connect_seconds, until - time.monotonic()))
        for conninfo in self._attempts(target or self.place.target):
            try:
                return self._set_up(self._connected(conninfo, patience), patience)
            except Cut as error:
                failed = error
        raise failed

    def _attempts(self, target: str) -> Iterator[bytes]:
        """One way to connect for each host: in nonblocking mode libpq would wait for a dead first one for ever."""
        given: dict[str, Any] | None = None
        with suppress(ProgrammingError):  # it may quote the password; so it is not kept as the cause either
            given = conninfo_to_dict(target)
        if given is None or not _PORTS.fullmatch(str(given.get("port") or "")):
            raise unreadable(self.place.shown)
        common: dict[str, Any] = {**DEFAULTS, **given, "client_encoding": "UTF8"}
        lists = {name: str(given[name]).split(",") for name in ("host", "hostaddr", "port") if given.get(name)}
        count = max((len(values) for name, values in lists.items() if name != "port"), default=1)
        for number in range(count):
            # One port stands for all hosts; of several, each host has its own.
            own = {name: values[number if len(values) > 1 else 0] for name, values in lists.items()}
            yield make_conninfo("", **{**common, **own}).encode()

    def _connected(self, conninfo: bytes, seconds: float) -> pq.abc.PGconn:
        """The handshake, within its deadline; only looking up the name of a host has none but the resolver's."""
        until = time.monotonic() + seconds
        connection: pq.abc.PGconn = pq.PGconn.connect_start(conninfo)
        self._connections.add(connection)
        try:
            while (status := connection.connect_poll()) != pq.PollingStatus.OK:
                if status == pq.PollingStatus.FAILED:
                    raise Cut(_words(connection))
                wanted = select.POLLIN if status == pq.PollingStatus.READING else select.POLLOUT
                if not ready(connection.socket, wanted, until):
                    raise Cut(f"the server did not let us in within {seconds:g} s")
            return connection
        except BaseException:
            self._drop(connection)
            raise

    def _drop(self, connection: pq.abc.PGconn) -> None:
        self._connections.discard(connection)
        connection.finish()

    def _set_up(self, connection: pq.abc.PGconn, seconds: float) -> Link:
        try:
            return self._told(connection, seconds)
        except BaseException:
            self._drop(connection)
            raise

    def _told(self, connection: pq.abc.PGconn, seconds: float) -> Link:
        """Say once what holds for all that is said on this connection."""
        version = connection.server_version
        if version < SERVER_VERSION_MIN:
            raise StoreUnavailable(
                f"{self.place.shown} is PostgreSQL {version // 10000}",
                hint=f"use {SERVER_VERSION_MIN // 10000} or later",
            )
        connection.nonblocking = 1
        connection.enter_pipeline_mode()
        until = time.monotonic() + seconds
        asking = Link(connection, pooled=False, prepare=False, preamble=())
        [answer] = asking.talk([self._settings(connection.backend_pid, version)], until)
        pooled = answer.rows[0][0]
        preamble = [self._settings(0, version)]
        return Link(connection, pooled=pooled, prepare=self.place.prepare, preamble=preamble)

    def _settings(self, pid: int, version: int) -> Raw:
        times = (self.place.statement_seconds, SERVER_LOCK_SECONDS_MAX, IDLE_SECONDS_MAX)
        statement, lock, idle = (str(int(seconds * 1000)) for seconds in times)
        args = (pid, self.place.schema, statement, lock, idle, self._durability)
        if version < 170000:
            return Raw(_SETTINGS, args)
        return Raw(_SETTINGS_17, (*args, str(int(TRANSACTION_SECONDS_MAX * 1000))))


def _words(connection: pq.abc.PGconn) -> str:
    # Libpq's own words hold no password; what we were given may.
    return folded(connection.get_error_message()) or "no connection"
