"""Another model: it reads every memory once, in the background, and until it has, the one before it answers.

Vectors name their model, and only those of one are compared with a question. What was written by a program with another
model, or with none, is read in the same way; and memories that have no pieces at all, since an older program or another
store has written them, get theirs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import PerdureError
from ..failpoints import Site
from ..run.requests import Protocol, Read
from ..store.base import Last, Script, Statement, Unit
from . import outside, pieces
from .embedders import Embedder, embedder_in, table
from .fusion import MEANING, MEANING_OF_TABLE
from .reading import by_id

if TYPE_CHECKING:
    from ..engine import Engine
    from .found import Memory

BATCH = 64
"""Memories that are read between two commits."""

Progress = Callable[[int, int], None]
"""Told how many are done, and how many there are."""


class Reader(msgspec.Struct, frozen=True):
    """Who reads a question."""

    embedder: Embedder | None
    weight: float
    stand_ins: bool
    """Whether words that mean the same stand in for those that are asked for."""


class Reembedded(msgspec.Struct, frozen=True):
    """What came of it."""

    embedder: str
    """The model that has read everything; empty without one."""
    memories: int
    """How many it had to read."""
    pieces: int
    """How many pieces there are."""
    indexed: bool = False
    """Whether the store has an index for its vectors; otherwise they are compared one by one."""


def reader_in(engine: Engine) -> Reader:
    """The agent's own model once it has read everything; until then the table in the box, if that has read more."""
    embedder = embedder_in(engine)
    if embedder is None:
        return Reader(None, 0.0, stand_ins=False)
    state = _state_of(engine, embedder)
    chosen = state.instead or embedder
    return Reader(chosen, MEANING_OF_TABLE if chosen is table() else MEANING, stand_ins=True)


def reembed(engine: Engine, progress: Progress | None = None) -> Protocol[Reembedded]:
    """Have the agent's model read what it has not read yet, and let go of what others have made."""
    done: Reembedded = yield Read(_reembed, (engine, progress or (lambda done, total: None)))
    return done


def _reembed(engine: Engine, progress: Progress) -> Reembedded:
    embedder = embedder_in(engine)
    if not engine.is_known():
        return Reembedded(embedder.id if embedder else "", 0, 0)
    engine.place.end_background(engine)
    read = _read_all(engine, embedder, progress, lambda: False)
    if embedder is None:
        return Reembedded("", read, _total(engine))
    while engine.store.submit(_Write([Statement("drop_other_vectors", (engine.stream, embedder.id, 1000))])):
        pass
    outside.let_go_of_others(engine, embedder.id)
    indexed = engine.store.submit(_Index(embedder))
    engine.place.vectors[engine.stream, "reader", embedder.id] = _State()
    return Reembedded(embedder.id, read, _total(engine), indexed)


def others(engine: Engine, embedder: Embedder) -> dict[str, int]:
    """What other models have made, which `reembed` drops: how many vectors, by their ids."""
    rows = engine.store.read("vectors_by_model", (engine.stream,))
    return {str(which): int(count) for which, count in rows if which != embedder.id}


class _State:
    """What this process knows of how far a model is."""

    def __init__(self) -> None:
        self.instead: Embedder | None = None


def _state_of(engine: Engine, embedder: Embedder) -> _State:
    which = (engine.stream, "reader", embedder.id)
    found: _State | None = engine.place.vectors.get(which)
    if found is None:
        found = engine.place.vectors.setdefault(which, _State())
        total, has = _counts(engine, embedder)
        if has < total:
            _begin(engine, embedder, found, has)
    return found


def _counts(engine: Engine, embedder: Embedder) -> tuple[int, int]:
    """How many pieces there are, and how many the model has read."""
    [(total, has)] = engine.store.read("vectors_known", (engine.stream, embedder.id))
    return int(total), int(has)


def _begin(engine: Engine, embedder: Embedder, state: _State, has: int) -> None:
    """Let the model read in the background. Others' vectors stay: a process that has another model may need them."""
    other = table()
    if other is not None and other.id != embedder.id and _counts(engine, other)[1] > has:
        state.instead = other
    over = threading.Event()

    def work() -> None:
        # The store may go away at any time: what is left is read by the next process.
        with suppress(PerdureError):
            _read_all(engine, embedder, lambda done, total: None, over.is_set)
            state.instead = state.instead if over.is_set() else None

    thread = threading.Thread(target=work, name="perdure-reembed", daemon=True)

    def end() -> None:
        over.set()
        thread.join()

    engine.place.background.append((engine, end))
    thread.start()


def _read_all(engine: Engine, embedder: Embedder | None, progress: Progress, over: Callable[[], bool]) -> int:
    """How many memories there were to read. Pieces first, for memories that have none."""
    store, after, count = engine.store, "", 0
    while not over() and (rows := store.read("memories_without_pieces", (engine.stream, after, BATCH))):
        count += _write(engine, embedder, [which for (which,) in rows])
        after = rows[-1][0]
    if embedder is None:
        return count
    (total, has), last = _counts(engine, embedder), 0
    while not over() and (rows := store.read("unread_pieces", (engine.stream, embedder.id, last, BATCH))):
        progress(min(has, total), total)
        count += _write(engine, embedder, list(dict.fromkeys(memory for _, memory, _ in rows)))
        last, has = rows[-1][0], has + len(rows)
    progress(total, total)
    return count


def _total(engine: Engine) -> int:
    [(total, _)] = engine.store.read("pieces_known", (engine.stream,))
    return int(total)


def _write(engine: Engine, embedder: Embedder | None, ids: Sequence[str]) -> int:
    there = by_id(engine, ids)
    cuts = zip(there.values(), pieces.cut_all(embedder, [_said(it) for it in there.values()]), strict=True)
    puts = [put for it, cut in cuts for put in _puts(engine, it, cut)]
    engine.store.submit(_Write(puts))
    return len(there)


def _said(it: Memory) -> pieces.Said:
    return pieces.Said(it.text, round(it.valid_from.timestamp() * 1000), (it.about, it.user, *it.tags))


def _puts(engine: Engine, it: Memory, cut: pieces.Pieces) -> list[Statement]:
    return list(pieces.puts("put_missing_piece", engine.stream, it.id, (it.thread, it.place), cut))


class _Write(Unit[int]):
    """Doing it twice is the same as doing it once. Says whether there was something to do."""

    site = Site.REEMBED

    def __init__(self, statements: Sequence[Statement]) -> None:
        self._statements = statements

    def script(self) -> Script[int]:
        rows = yield Last(self._statements)
        return sum(len(found) for found in rows)


class _Index(Unit[bool]):
    site = Site.REEMBED
    long = True

    def __init__(self, embedder: Embedder) -> None:
        self._args: tuple[Any, ...] = (embedder.id, embedder.dims)

    def script(self) -> Script[bool]:
        [rows] = yield Last([Statement("index_vectors", self._args)])
        return bool(rows and rows[0][0])
