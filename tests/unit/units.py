"""Small units of work, to commit something without an agent."""

from __future__ import annotations

from typing import Any

from perdure.clock import SYSTEM_CLOCK
from perdure.errors import PerdureError
from perdure.failpoints import Site
from perdure.journal.append import Append, Head
from perdure.records import Op, Record, Write, Wrote
from perdure.store.base import Script, Statement, Unit
from tests.conformance.kit import Behind


class Put(Unit[str]):
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


class NewStream(Unit[int]):
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


def new_head(store: Any) -> Head:
    return Head(store.identity, store.submit(NewStream()), 1)


def entry(key: str, value: bytes = b"\x00\x01") -> Record:
    return Wrote("", Write(Op.SET, key, value))


def append(head: Head, *records: Record, also: tuple[Statement, ...] = ()) -> Append:
    return Append(Site.WRITE, head, records, SYSTEM_CLOCK, also=also)
