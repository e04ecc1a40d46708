"""Projects memory entries to the views, independently of the order in which streams are projected.

A memory and the statements about it may be in different streams. Relations are therefore stored in a table of their
own, and `settle_memory` derives the same state from them in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from perdure import records as r
from perdure.store.base import Statement

_JSON = msgspec.json.Encoder()


def encode_texts(texts: Iterable[str]) -> str:
    """Encode texts as the JSON of a column."""
    return _JSON.encode(list(texts)).decode()


def _mark(
    at: tuple[int, int, int],
    owner: int,
    which: str,
    what: str,
    other: str,
    valid: int = 0,
    said: tuple[str, float] = ("", 1.0),
) -> Statement:
    return Statement("add_memory_relation", (owner, which, what, other, *at, valid, *said))


def _settle(owner: int, ids: Iterable[str]) -> list[Statement]:
    return [Statement("settle_memory", (owner, which)) for which in ids]


def _project_kept(stream: int, seq: int, at: int, record: r.MemoryKept) -> list[Statement]:
    whence = (record.source, record.writer, record.run, record.step)
    worth = (record.trust, record.importance, record.valid_from, record.valid_to, at, record.expires)
    row = (
        record.owner,
        record.id,
        stream,
        seq,
        record.kind,
        record.about,
        record.user,
        *whence,
        encode_texts(record.tags),
        *worth,
    )
    changes = [Statement("put_memory", (*row, record.thread, record.place, record.sketch, record.value, record.meta))]
    where = (stream, seq, at)
    changes += [
        _mark(where, record.owner, old, "superseded", record.id, record.valid_from) for old in record.supersedes
    ]
    changes += [_mark(where, record.owner, record.id, "superseded", one.id, one.valid) for one in record.followed]
    changes += [_mark(where, record.owner, record.id, "derived", other) for other in record.derived]
    changes += [_mark(where, record.owner, record.id, "contradicts", other) for other in record.contradicts]
    return changes + _settle(record.owner, (record.id, *record.supersedes))


def _project_seen(stream: int, seq: int, at: int, record: r.MemorySeen) -> list[Statement]:
    mark = _mark((stream, seq, at), record.owner, record.id, "again", record.again, 0, (record.source, record.trust))
    # A repetition changes only a count; settling would take longer with each one.
    return [mark, Statement("count_memory", (record.owner, record.id, record.again))]


def _withdrawn(stream: int, seq: int, at: int, record: r.MemoryWithdrawn) -> list[Statement]:
    where = (stream, seq, at)
    changes = [_mark(where, record.owner, which, "withdrawn", "") for which in record.ids]
    changes += [_mark(where, record.owner, one.id, "superseded", one.by, one.valid) for one in record.bridged]
    return changes + _settle(record.owner, (*record.ids, *record.touched))


def _project_forgotten(stream: int, seq: int, at: int, record: r.MemoryForgotten) -> list[Statement]:
    changes = [
        Statement(name, place) for place in record.erased for name in ("drop_memory_at", "drop_memory_relations_at")
    ]
    changes += [_mark((stream, seq, one.at), record.owner, one.id, "superseded", "", one.valid) for one in record.ended]
    return changes + _settle(record.owner, (*record.touched, *(one.id for one in record.ended)))


PROJECTIONS: dict[type[r.Record], Callable[[int, int, int, Any], Sequence[Statement]]] = {
    r.MemoryKept: _project_kept,
    r.MemorySeen: _project_seen,
    r.MemoryWithdrawn: _withdrawn,
    r.MemoryForgotten: _project_forgotten,
}
