"""Re-embedding: a new model embeds every memory once, in the background. Until then, the previous one answers.

Vectors name their model, and a question is only compared with vectors of its own model. Memories written by a program
with another model or none are embedded the same way. Memories without pieces, from an older program or another store,
are indexed first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.errors import PerdureError
from perdure.kernel.protocol import Protocol, Read
from perdure.memory import pieces
from perdure.memory.read import find_by_id
from perdure.memory.recall import vector_index
from perdure.memory.recall.embedders import Embedder, embedder_in, table
from perdure.memory.recall.ranking import MEANING, MEANING_OF_TABLE
from perdure.platform.failpoints import Site
from perdure.store.base import FinalBatch, Script, Statement, UnitOfWork
from perdure.store.rows import first_number

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine
    from perdure.memory.results import Memory

BATCH = 64
"""Number of memories embedded between two commits."""

ReembedProgress = Callable[[int, int], None]
"""Receives the number done and the total."""


class QuestionReader(msgspec.Struct, frozen=True):
    """The embedder to use for questions."""

    embedder: Embedder | None
    weight: float
    stand_ins: bool
    """Whether related words stand in for those of the question."""


class ReembedResult(msgspec.Struct, frozen=True):
    """The result of `reembed`."""

    embedder: str
    """The model that has embedded everything; empty without one."""
    memories: int
    """Number of memories that it had to embed."""
    pieces: int
    """Number of pieces in the index."""
    indexed: bool = False
    """Whether the store has an index for its vectors; otherwise they are compared one by one."""


def reader_in(engine: Engine) -> QuestionReader:
    """Return the agent's model once it has embedded everything; until then the bundled table if that covers more."""
    embedder = embedder_in(engine)
    if embedder is None:
        return QuestionReader(None, 0.0, stand_ins=False)
    state = _state_of(engine, embedder)
    chosen = state.instead or embedder
    return QuestionReader(chosen, MEANING_OF_TABLE if chosen is table() else MEANING, stand_ins=True)


def reembed(engine: Engine, progress: ReembedProgress | None = None) -> Protocol[ReembedResult]:
    """Embed what the agent's model has not embedded yet, and drop the vectors of other models."""
    done: ReembedResult = yield Read(_reembed, (engine, progress or (lambda done, total: None)))
    return done


def _reembed(engine: Engine, progress: ReembedProgress) -> ReembedResult:
    embedder = embedder_in(engine)
    if not engine.is_known():
        return ReembedResult(embedder.id if embedder else "", 0, 0)
    engine.place.end_background(engine)
    read = _index_and_embed(engine, embedder, progress, lambda: False)
    if embedder is None:
        return ReembedResult("", read, _total(engine))
    while engine.store.submit(_WriteVectors([Statement("drop_other_vectors", (engine.stream, embedder.id, 1000))])):
        pass
    vector_index.drop_other_models(engine, embedder.id)
    indexed = engine.store.submit(_CreateIndex(embedder))
    engine.place.vectors[engine.stream, "reader", embedder.id] = _ReembedState()
    return ReembedResult(embedder.id, read, _total(engine), indexed)


def count_other_vectors(engine: Engine, embedder: Embedder) -> dict[str, int]:
    """Return the number of vectors of other models, by model id; `reembed` drops them."""
    rows = engine.store.read("vectors_by_model", (engine.stream,))
    return {str(which): int(count) for which, count in rows if which != embedder.id}


class _ReembedState:
    """How far a model is, as far as this process knows."""

    def __init__(self) -> None:
        self.instead: Embedder | None = None


def _state_of(engine: Engine, embedder: Embedder) -> _ReembedState:
    which = (engine.stream, "reader", embedder.id)
    found: _ReembedState | None = engine.place.vectors.get(which)
    if found is None:
        found = engine.place.vectors.setdefault(which, _ReembedState())
        total, has = _counts(engine, embedder)
        if has < total:
            _begin(engine, embedder, found, has)
    return found


def _counts(engine: Engine, embedder: Embedder) -> tuple[int, int]:
    """Return the number of pieces, and how many of them the model has embedded."""
    [(total, has)] = engine.store.read("embedding_progress", (engine.stream, embedder.id))
    return int(total), int(has)


def _begin(engine: Engine, embedder: Embedder, state: _ReembedState, has: int) -> None:
    """Embed in the background. Keeps the vectors of other models: a process that uses one may need them."""
    other = table()
    if other is not None and other.id != embedder.id and _counts(engine, other)[1] > has:
        state.instead = other
    over = threading.Event()

    def work() -> None:
        # The store may be closed at any time: the next process continues.
        with suppress(PerdureError):
            _index_and_embed(engine, embedder, lambda done, total: None, over.is_set)
            state.instead = state.instead if over.is_set() else None

    thread = threading.Thread(target=work, name="perdure-reembed", daemon=True)

    def end() -> None:
        over.set()
        thread.join()

    engine.place.background.append((engine, end))
    thread.start()


def _index_and_embed(
    engine: Engine, embedder: Embedder | None, progress: ReembedProgress, over: Callable[[], bool]
) -> int:
    """Index memories without pieces, then embed. Returns how many memories there were."""
    store, after, count = engine.store, "", 0
    while not over() and (rows := store.read("memories_without_chunks", (engine.stream, after, BATCH))):
        count += _write(engine, embedder, [which for (which,) in rows])
        after = rows[-1][0]
    if embedder is None:
        return count
    (total, has), last = _counts(engine, embedder), 0
    while not over() and (rows := store.read("chunks_without_vector", (engine.stream, embedder.id, last, BATCH))):
        progress(min(has, total), total)
        count += _write(engine, embedder, list(dict.fromkeys(memory for _, memory, _ in rows)))
        last, has = rows[-1][0], has + len(rows)
    progress(total, total)
    return count


def _total(engine: Engine) -> int:
    [(total, _)] = engine.store.read("chunk_totals", (engine.stream,))
    return int(total)


def _write(engine: Engine, embedder: Embedder | None, ids: Sequence[str]) -> int:
    there = find_by_id(engine, ids)
    cuts = zip(
        there.values(),
        pieces.split_all(embedder, [_make_memory_text(memory) for memory in there.values()]),
        strict=True,
    )
    puts = [put for memory, cut in cuts for put in _puts(engine, memory, cut)]
    engine.store.submit(_WriteVectors(puts))
    return len(there)


def _make_memory_text(memory: Memory) -> pieces.MemoryText:
    return pieces.MemoryText(
        memory.text, round(memory.valid_from.timestamp() * 1000), (memory.about, memory.user, *memory.tags)
    )


def _puts(engine: Engine, memory: Memory, cut: pieces.IndexPieces) -> list[Statement]:
    return list(pieces.puts("put_missing_chunk", engine.stream, memory.id, (memory.thread, memory.place), cut))


class _WriteVectors(UnitOfWork[int]):
    """Writes pieces and vectors. Idempotent. Returns whether there was something to do."""

    site = Site.REEMBED

    def __init__(self, statements: Sequence[Statement]) -> None:
        self._statements = statements

    def script(self) -> Script[int]:
        rows = yield FinalBatch(self._statements)
        return sum(len(found) for found in rows)


class _CreateIndex(UnitOfWork[bool]):
    site = Site.REEMBED
    long = True

    def __init__(self, embedder: Embedder) -> None:
        self._args: tuple[Any, ...] = (embedder.id, embedder.dims)

    def script(self) -> Script[bool]:
        [rows] = yield FinalBatch([Statement("index_vectors", self._args)])
        return bool(first_number(rows))
