"""What entries about memories do to the views, in whatever order the streams are folded.

A memory and what is said of it may be in different streams. So what is said is kept apart, as marks, and
`settle_memory` makes the same of them whichever comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from .. import records as r
from ..store.base import Statement

_JSON = msgspec.json.Encoder()


def listed(texts: Iterable[str]) -> str:
    """A list of texts as a column has it."""
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
    return Statement("mark_memory", (owner, which, what, other, *at, valid, *said))


def _settled(owner: int, ids: Iterable[str]) -> list[Statement]:
    return [Statement("settle_memory", (owner, which)) for which in ids]


def _kept(stream: int, seq: int, at: int, it: r.MemoryKept) -> list[Statement]:
    whence = (it.source, it.writer, it.run, it.step)
    worth = (it.trust, it.importance, it.valid_from, it.valid_to, at, it.expires)
    row = (it.owner, it.id, stream, seq, it.kind, it.about, it.user, *whence, listed(it.tags), *worth)
    changes = [Statement("put_memory", (*row, it.thread, it.place, it.sketch, it.value, it.meta))]
    where = (stream, seq, at)
    changes += [_mark(where, it.owner, old, "superseded", it.id, it.valid_from) for old in it.supersedes]
    changes += [_mark(where, it.owner, it.id, "superseded", one.id, one.valid) for one in it.followed]
    changes += [_mark(where, it.owner, it.id, "derived", other) for other in it.derived]
    changes += [_mark(where, it.owner, it.id, "contradicts", other) for other in it.contradicts]
    return changes + _settled(it.owner, (it.id, *it.supersedes))


def _seen(stream: int, seq: int, at: int, it: r.MemorySeen) -> list[Statement]:
    mark = _mark((stream, seq, at), it.owner, it.id, "again", it.again, 0, (it.source, it.trust))
    # All that it changes is a number: to go through the marks each time would take longer with each.
    return [mark, Statement("count_memory", (it.owner, it.id, it.again))]


def _withdrawn(stream: int, seq: int, at: int, it: r.MemoryWithdrawn) -> list[Statement]:
    where = (stream, seq, at)
    changes = [_mark(where, it.owner, which, "withdrawn", "") for which in it.ids]
    changes += [_mark(where, it.owner, one.id, "superseded", one.by, one.valid) for one in it.bridged]
    return changes + _settled(it.owner, (*it.ids, *it.touched))


def _forgotten(stream: int, seq: int, at: int, it: r.MemoryForgotten) -> list[Statement]:
    changes = [Statement(name, place) for place in it.erased for name in ("drop_memory_at", "drop_marks_at")]
    changes += [_mark((stream, seq, one.at), it.owner, one.id, "superseded", "", one.valid) for one in it.ended]
    return changes + _settled(it.owner, (*it.touched, *(one.id for one in it.ended)))


FOLDS: dict[type[r.Record], Callable[[int, int, int, Any], Sequence[Statement]]] = {
    r.MemoryKept: _kept,
    r.MemorySeen: _seen,
    r.MemoryWithdrawn: _withdrawn,
    r.MemoryForgotten: _forgotten,
}
