"""One connection to a server: named statements go out together, their rows come back together.

It speaks libpq's pipeline mode through `psycopg.pq`: everything up to a sync is one message to the network and one
answer. Values travel in binary, so that a body of bytes is not written out as digits.
"""

from __future__ import annotations

import os
import select
import struct
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
from psycopg import OperationalError, adapters, pq
from psycopg import abc as psycopg_abc
from psycopg.adapt import AdaptersMap, Loader, Transformer

from .. import interrupts
from . import postgres_many, sql
from .base import Floats, Rows, Statement
from .postgres_errors import Cut, folded, server_error

TEXT = {name: sql.numbered(named, "$").encode() for name, named in sql.load("postgres").items()} | postgres_many.TEXT
IDLE = frozenset(name for name, text in TEXT.items() if not text)
"""Statements that a server has nothing to do for: they are not sent."""
_NAMES = {name: name.encode() for name in TEXT}

_BYTES, _SYNC, _ABORTED = 1, pq.ExecStatus.PIPELINE_SYNC, pq.ExecStatus.PIPELINE_ABORTED
_GOOD = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)


class _Numbers(Loader):
    """An array of floats as a file has it: nothing but numbers of four bytes each."""

    format = pq.Format.BINARY

    def load(self, data: psycopg_abc.Buffer) -> bytes:
        count = max(len(data) - 20, 0) // 8
        return struct.pack(f"<{count}f", *struct.unpack_from(">" + "4xf" * count, data, 20 if count else 0))


_ADAPTERS = AdaptersMap(adapters)
_ADAPTERS.register_loader(1021, _Numbers)  # float4[]

LOOK_UP_SECONDS = 2.0
"""How often who waits looks whether the process was told to end; and how long an answer may take after that."""


class Raw(msgspec.Struct, frozen=True, gc=False):
    """A statement without a name: what only this dialect needs, such as beginning a transaction."""

    text: bytes
    args: tuple[Any, ...] = ()


Batch = Sequence[Statement | Raw]
_NO_HURRY = Raw(b"SELECT set_config('transaction_timeout', '0', true)")


class Answer:
    """What came back for one statement."""

    __slots__ = ("_reader", "changed", "result")

    def __init__(self, result: pq.abc.PGresult, reader: psycopg_abc.Transformer) -> None:
        self.result = result
        self.changed = result.command_tuples or 0
        self._reader = reader

    @property
    def rows(self) -> Rows:
        """The rows, in Python's types."""
        count = self.result.ntuples
        if not count:
            return []
        self._reader.set_pgresult(self.result)
        return self._reader.load_rows(0, count, tuple)


class Link:
    """A connection in pipeline mode. One user at a time; after an error that is not the server's it is thrown away."""

    def __init__(self, connection: pq.abc.PGconn, *, pooled: bool, prepare: bool, preamble: Batch) -> None:
        self.connection = connection
        self.pooled = pooled
        """Whether a pooler is between us and the server, so that the next transaction may meet another session."""
        self._prepare = prepare and not pooled
        self._preamble = preamble if pooled else ()
        self._known: set[str] = set()
        self._reader: psycopg_abc.Transformer = Transformer(_ADAPTERS)
        self._owner = os.getpid()

    def talk(self, batch: Batch, until: float) -> list[Answer]:
        """Send statements and a sync as one message; their answers, or the first error among them."""
        connection = self.connection
        fresh: list[str | None] = []
        try:
            for statement in batch:
                self._send(statement, fresh)
            connection.pipeline_sync()
            self._flush(until)
            results = self._receive(until)
        except OperationalError as error:
            raise Cut(_said(connection, error)) from error
        return self._judge(results, fresh)

    def begin_with(self) -> Batch:
        """What must be said first in every transaction, because a pooler forgets or mixes up what is set for longer."""
        return self._preamble

    def no_hurry(self) -> Batch:
        """Lets the transaction that has just begun take its time."""
        return [_NO_HURRY] if self.connection.server_version >= 170000 else []

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has been begun and not ended."""
        return self.connection.transaction_status != pq.TransactionStatus.IDLE

    @property
    def usable(self) -> bool:
        """Whether it can be kept for the next user."""
        return self.connection.status == pq.ConnStatus.OK and not self.in_transaction

    def close(self) -> None:
        """Say goodbye; but never in the name of a parent process."""
        if self._owner == os.getpid():
            self.connection.finish()

    # -- inside -----------------------------------------------------------------------------------------------

    def _send(self, statement: Statement | Raw, fresh: list[str | None]) -> None:
        connection, (values, formats) = self.connection, _encoded(statement.args)
        if isinstance(statement, Raw) or not self._prepare:
            text = statement.text if isinstance(statement, Raw) else TEXT[statement.name]
            connection.send_query_params(text, values, param_formats=formats, result_format=_BYTES)
        else:
            name = statement.name
            if name not in self._known:
                connection.send_prepare(_NAMES[name], TEXT[name])
                self._known.add(name)
                fresh.append(name)
            connection.send_query_prepared(_NAMES[name], values, param_formats=formats, result_format=_BYTES)
        fresh.append(None)

    def _flush(self, until: float) -> None:
        connection = self.connection
        while connection.flush():
            # The server may have to be listened to before it takes more.
            if not ready(connection.socket, select.POLLIN | select.POLLOUT, until):
                raise Cut("the server takes nothing any more")
            connection.consume_input()

    def _receive(self, until: float) -> list[pq.abc.PGresult]:
        connection = self.connection
        results: list[pq.abc.PGresult] = []
        while True:
            while connection.is_busy():
                if not ready(connection.socket, select.POLLIN, until):
                    raise Cut("the server did not answer in time")
                connection.consume_input()
            result = connection.get_result()
            if result is None:  # after each statement; or the connection is gone
                if connection.status == pq.ConnStatus.BAD:
                    raise Cut(_said(connection, None))
            elif result.status == _SYNC:
                return results
            else:
                results.append(result)

    def _judge(self, results: list[pq.abc.PGresult], fresh: list[str | None]) -> list[Answer]:
        """Answers of the statements; preparations are told apart, and forgotten if they failed."""
        answers, error = [], None
        for result, prepared in zip(results, fresh, strict=True):
            if result.status in _GOOD:
                if prepared is None:
                    answers.append(Answer(result, self._reader))
                continue
            if prepared is not None:
                self._known.discard(prepared)
            if error is None and result.status != _ABORTED:
                error = server_error(result, len(answers))
        if error is not None:
            raise error
        return answers


def ready(socket: int, wanted: int, until: float) -> bool:
    """Wait until a socket can be read or written; False when it took too long, by `time.monotonic`.

    A process that was told to end gives a server that is there the time to answer, and no more.
    """
    poll = select.poll()
    poll.register(socket, wanted)
    while True:
        left, told_to_end = until - time.monotonic(), interrupts.pending()
        # An error or a hangup counts too: it is for libpq to find out about.
        if poll.poll(max(0.0, min(left, LOOK_UP_SECONDS)) * 1000):
            return True
        if told_to_end or left <= LOOK_UP_SECONDS:
            return False


@cache
def _kinds(types: tuple[type, ...]) -> tuple[int, ...]:
    return tuple(int(kind is bytes) for kind in types)


def _encoded(args: tuple[Any, ...]) -> tuple[list[bytes | None], tuple[int, ...]]:
    values: list[bytes | None] = []
    for value in args:
        if value is None or type(value) is bytes:
            values.append(value)
        elif isinstance(value, str):
            values.append(value.encode())
        elif type(value) is float:
            values.append(repr(value).encode())
        elif isinstance(value, Floats):
            values.append(("{" + ",".join(map(repr, value.numbers)) + "}").encode())
        else:
            values.append(b"%d" % value)
    return values, _kinds(tuple([type(value) for value in args]))


def _said(connection: pq.abc.PGconn, error: Exception | None) -> str:
    told = connection.get_error_message() or str(error or "")
    return folded(told) or "the connection was lost"
