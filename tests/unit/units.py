"""Small units of work, to commit something without an agent."""

from __future__ import annotations

from typing import Any

from perdure.errors import PerdureError
from perdure.journal.append import Append, StreamHead
from perdure.platform.failpoints import Site
from perdure.records import Record, RunWrite, WriteOp, Wrote
from perdure.store.base import Script, Statement, UnitOfWork
from perdure.values.clock import SYSTEM_CLOCK
from tests.conformance.kit import Behind


class Put(UnitOfWork[str]):
    """Keeps one fact."""

    site = Site.WRITE

    def __init__(self, key: str, error: PerdureError | None = None) -> None:
        self.key = key
        self.error = error

    def script(self) -> Script[str]:
        yield [Statement("put_meta", (self.key, b"v"))]
        if self.error is not None:
            raise self.error
        return self.key


class NewStream(UnitOfWork[int]):
    """A stream that nobody holds."""

    site = Site.WRITE

    def script(self) -> Script[int]:
        [[(stream,)]] = yield [Statement("add_stream", ("run", "test", 0))]
        yield [Statement("add_lease", (stream, None))]
        return int(stream)


def behind(store: Any, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """A statement on the tables behind the store's back; values are bound by `?`."""
    with Behind(store.url) as tables:
        return tables.execute(query, values)


def create_head(store: Any) -> StreamHead:
    return StreamHead(store.identity, store.submit(NewStream()), 1)


def entry(key: str, value: bytes = b"\x00\x01") -> Record:
    return Wrote("", RunWrite(WriteOp.SET, key, value))


def append(head: StreamHead, *records: Record, also: tuple[Statement, ...] = ()) -> Append:
    return Append(Site.WRITE, head, records, SYSTEM_CLOCK, also=also)
