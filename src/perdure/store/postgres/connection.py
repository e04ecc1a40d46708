"""One connection to a server that sends batches of named statements in one round trip.

It uses libpq's pipeline mode through `psycopg.pq`. Values travel in binary, so that bytes are not sent as hex digits.
"""

from __future__ import annotations

import os
import select
import struct
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import msgspec
from psycopg import OperationalError, adapters, pq
from psycopg import abc as psycopg_abc
from psycopg.adapt import AdaptersMap, Loader, Transformer

from perdure.platform import interrupts
from perdure.store import sql
from perdure.store.base import Floats, Rows, Statement
from perdure.store.outage import ConnectionCut
from perdure.store.postgres import batch
from perdure.store.postgres.errors import join_lines, server_error

TEXT = {name: sql.number_parameters(named, "$").encode() for name, named in sql.load("postgres").items()} | batch.TEXT
IDLE = frozenset(name for name, text in TEXT.items() if not text)
"""Statements without a text for this dialect: they are not sent."""
_NAMES = {name: name.encode() for name in TEXT}

_BYTES, _SYNC, _ABORTED = 1, pq.ExecStatus.PIPELINE_SYNC, pq.ExecStatus.PIPELINE_ABORTED
_GOOD = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)


class _FloatArrayLoader(Loader):
    """Loads a float array as SQLite stores it: 32-bit floats in sequence."""

    format = pq.Format.BINARY

    def load(self, data: psycopg_abc.Buffer) -> bytes:
        count = max(len(data) - 20, 0) // 8
        return struct.pack(f"<{count}f", *struct.unpack_from(">" + "4xf" * count, data, 20 if count else 0))


_ADAPTERS = AdaptersMap(adapters)
_ADAPTERS.register_loader(1021, _FloatArrayLoader)  # float4[]

LOOK_UP_SECONDS = 2.0
"""How often a wait checks whether the process was asked to end, and how long an answer may take after that."""


class RawStatement(msgspec.Struct, frozen=True, gc=False):
    """An unnamed statement that only this dialect needs, such as BEGIN."""

    text: bytes
    args: tuple[Any, ...] = ()


StatementBatch = Sequence[Statement | RawStatement]
_NO_HURRY = RawStatement(b"SELECT set_config('transaction_timeout', '0', true)")


class StatementResult:
    """The result of one statement."""

    __slots__ = ("_reader", "changed", "result")

    def __init__(self, result: pq.abc.PGresult, reader: psycopg_abc.Transformer) -> None:
        self.result = result
        self.changed = result.command_tuples or 0
        self._reader = reader

    @property
    def rows(self) -> Rows:
        """The rows as Python values."""
        count = self.result.ntuples
        if not count:
            return []
        self._reader.set_pgresult(self.result)
        return self._reader.load_rows(0, count, tuple)


class PipelineConnection:
    """A connection in pipeline mode, for one user at a time; discarded after an error that is not a ServerError."""

    def __init__(self, connection: pq.abc.PGconn, *, pooled: bool, prepare: bool, preamble: StatementBatch) -> None:
        self.connection = connection
        self.pooled = pooled
        """Whether a pooler is in between, so that the next transaction may get another session."""
        self._prepare = prepare and not pooled
        self._preamble = preamble if pooled else ()
        self._known: set[str] = set()
        self._reader: psycopg_abc.Transformer = Transformer(_ADAPTERS)
        self._owner = os.getpid()

    def send_batch(self, batch: StatementBatch, until: float) -> list[StatementResult]:
        """Send statements and a sync in one round trip; return their results or raise the first error."""
        return self.begin(batch).wait(until)

    def begin(self, batch: StatementBatch) -> PendingReply:
        """Send statements and a sync, as far as that is possible without waiting."""
        fresh: list[str | None] = []
        try:
            for statement in batch:
                self._send(statement, fresh)
            self.connection.pipeline_sync()
            return PendingReply(self, fresh, flushed=not self.connection.flush())
        except OperationalError as error:
            raise ConnectionCut(_read_server_message(self.connection, error)) from error

    def begin_with(self) -> StatementBatch:
        """Statements that start every transaction: a pooler does not preserve session settings."""
        return self._preamble

    def lift_timeouts(self) -> StatementBatch:
        """Statements that disable the timeout of the current transaction."""
        return [_NO_HURRY] if self.connection.server_version >= 170000 else []

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self.connection.transaction_status != pq.TransactionStatus.IDLE

    @property
    def usable(self) -> bool:
        """Whether it can be returned to the pool."""
        return self.connection.status == pq.ConnStatus.OK and not self.in_transaction

    def close(self) -> None:
        """Close the connection, unless it belongs to the parent process."""
        if self._owner == os.getpid():
            self.connection.finish()

    # -- inside -----------------------------------------------------------------------------------------------

    def _send(self, statement: Statement | RawStatement, fresh: list[str | None]) -> None:
        connection, (values, formats) = self.connection, _encode_args(statement.args)
        if isinstance(statement, RawStatement) or not self._prepare:
            text = statement.text if isinstance(statement, RawStatement) else TEXT[statement.name]
            connection.send_query_params(text, values, param_formats=formats, result_format=_BYTES)
        else:
            name = statement.name
            if name not in self._known:
                connection.send_prepare(_NAMES[name], TEXT[name])
                self._known.add(name)
                fresh.append(name)
            connection.send_query_prepared(_NAMES[name], values, param_formats=formats, result_format=_BYTES)
        fresh.append(None)

    def judge(self, results: list[pq.abc.PGresult], fresh: list[str | None]) -> list[StatementResult]:
        """Return the results without those of preparations; forget failed preparations."""
        answers, error = [], None
        for result, prepared in zip(results, fresh, strict=True):
            if result.status in _GOOD:
                if prepared is None:
                    answers.append(StatementResult(result, self._reader))
                continue
            if prepared is not None:
                self._known.discard(prepared)
            if error is None and result.status != _ABORTED:
                error = server_error(result, len(answers))
        if error is not None:
            raise error
        return answers


class PendingReply:
    """Statements on their way, until all their results are there."""

    __slots__ = ("_fresh", "_link", "_results", "flushed")

    def __init__(self, link: PipelineConnection, fresh: list[str | None], *, flushed: bool) -> None:
        self._link = link
        self._fresh = fresh
        self.flushed = flushed
        """Whether the connection has accepted everything."""
        self._results: list[pq.abc.PGresult] = []

    def wait(self, until: float) -> list[StatementResult]:
        """Wait for the results in this thread; raise the first error."""
        while True:
            # The server may send before it accepts more.
            wanted = select.POLLIN if self.flushed else select.POLLIN | select.POLLOUT
            if not wait_ready(self._link.connection.socket, wanted, until):
                raise ConnectionCut(
                    "the server did not answer in time" if self.flushed else "the server no longer accepts data"
                )
            found = self.advance()
            if found is not None:
                return found

    def advance(self) -> list[StatementResult] | None:
        """Send and receive without waiting; None until all results are there. Raises the first error."""
        connection = self._link.connection
        try:
            connection.consume_input()
            self.flushed = self.flushed or not connection.flush()
            while not connection.is_busy():
                result = connection.get_result()
                if result is None:  # end of a statement, or the connection is gone
                    if connection.status == pq.ConnStatus.BAD:
                        raise ConnectionCut(_read_server_message(connection, None))
                elif result.status == _SYNC:
                    return self._link.judge(self._results, self._fresh)
                else:
                    self._results.append(result)
        except OperationalError as error:
            raise ConnectionCut(_read_server_message(connection, error)) from error
        return None


def wait_ready(socket: int, wanted: int, until: float) -> bool:
    """Wait until a socket is readable or writable; False at `until`, a `time.monotonic` time.

    A process that was asked to end waits for LOOK_UP_SECONDS only.
    """
    poll = select.poll()
    poll.register(socket, wanted)
    while True:
        left, told_to_end = until - time.monotonic(), interrupts.is_pending()
        # Errors and hangups count too: libpq reports them.
        if poll.poll(max(0.0, min(left, LOOK_UP_SECONDS)) * 1000):
            return True
        if told_to_end or left <= LOOK_UP_SECONDS:
            return False


ValueEncoder = Callable[[Any], bytes | None]


def _encode_args(args: tuple[Any, ...]) -> tuple[list[bytes | None], list[int]]:
    encoders, formats = _encoders(tuple(map(type, args)))
    return [value if encode is None else encode(value) for encode, value in zip(encoders, args, strict=True)], formats


@cache
def _encoders(types: tuple[type, ...]) -> tuple[tuple[ValueEncoder | None, ...], list[int]]:
    """What encodes arguments of these types, and their formats. Statements have few different lists of types."""
    return tuple(map(_encoder, types)), [int(kind is bytes) for kind in types]  # psycopg 3.2 takes lists only


def _encoder(kind: type) -> ValueEncoder | None:
    """Return what encodes a value of this type; None if it is sent as it is."""
    if kind is bytes or kind is type(None):
        return None
    if issubclass(kind, str):
        return str.encode
    if kind is float:
        return lambda value: repr(value).encode()
    if issubclass(kind, Floats):
        return lambda value: ("{" + ",".join(map(repr, value.numbers)) + "}").encode()
    return b"%d".__mod__


def _read_server_message(connection: pq.abc.PGconn, error: Exception | None) -> str:
    told = connection.get_error_message() or str(error or "")
    return join_lines(told) or "the connection was lost"
