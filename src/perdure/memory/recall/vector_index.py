"""An external vector database as the index of memories: it finds candidates, and the store decides.

The store holds the vectors, written in the commit of their memory. The external copy catches up by number on every
query, whatever crashed in between. Pieces that only the copy has are gone. It may have been offline while memories
were forgotten, so on its first use in a process, vectors that the store does not have are dropped.

    agent.memory.vectors = QdrantVectors("./vectors")              # from perdure.adapters.qdrant
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from perdure.errors import StoreUnavailable
from perdure.memory.recall.index_choice import vectors_of
from perdure.memory.recall.nearest import VectorComparison, likeness, positions_query
from perdure.platform.failpoints import Site
from perdure.store.base import FinalBatch, Floats, Script, Statement, Store, UnitOfWork
from perdure.values.locks import rlock

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

BATCH = 500
OUTSIDE = "outside "
"""Prefix of the keys under which a store records, by agent and model, that an external copy exists."""


@runtime_checkable
class VectorIndex(Protocol):
    """What a vector database must support. `space` names the vectors of one agent and one model."""

    def put(self, space: str, vectors: Sequence[tuple[int, Sequence[float]]], mark: int) -> None:
        """Insert or replace vectors of length 1 by their numbers, and store the mark. Must be idempotent."""

    def mark(self, space: str) -> int:
        """Return the last stored mark; 0 if the space is new."""

    def nearest(self, space: str, vector: Sequence[float], count: int) -> list[int]:
        """Return the numbers of the vectors with the largest products, best first."""

    def drop(self, space: str, numbers: Sequence[int]) -> None:
        """Delete some vectors."""

    def count(self, space: str) -> int:
        """Return the number of vectors."""

    def numbers(self, space: str) -> Iterable[int]:
        """Return the numbers of all vectors, in any order. Some may be dropped meanwhile."""


class MirroredVectors:
    """The external copy of an agent's vectors of one model."""

    def __init__(self, engine: Engine, embedder: str, index: VectorIndex) -> None:
        self._engine = engine
        self._which = (engine.stream, embedder)
        self._index = index
        self._lock = rlock()

    def compare(self, vector: Floats) -> VectorComparison:
        """Compare a question with the current vectors."""
        store = self._engine.store
        space = space_of(store, *self._which)
        with self._lock:
            self._catch_up(store, space)
            _attach(self._engine, self._index, self._which[1])
        return _ExternalComparison(self._index, space, store, self._which[1], vector)

    def _catch_up(self, store: Store, space: str) -> None:
        since = self._index.mark(space)
        # Rows written between the two reads are copied now, and again the next time.
        [(now,)] = store.read("vectors_now")
        if since == now and store.one_host:
            return
        rows = store.read("vectors_since", (*self._which, since))
        for start in range(0, len(rows), BATCH):
            part = [(piece, Floats(vector).numbers) for piece, vector in rows[start : start + BATCH]]
            self._index.put(space, part, now if start + BATCH >= len(rows) else since)


class _ExternalComparison:
    def __init__(self, index: VectorIndex, space: str, store: Store, embedder: str, vector: Floats) -> None:
        self._index = index
        self._space = space
        self._store = store
        self._wanted = (embedder, vector)

    def find_nearest(self, count: int, among: Sequence[int] | None = None) -> list[int]:
        if among is None:
            return self._index.nearest(self._space, self._wanted[1].numbers, count)
        near = self.similarities(among)
        return sorted(near, key=lambda piece_id: -near[piece_id])[:count]

    def nearest_query(self, count: int) -> tuple[list[int], Statement]:
        return positions_query(self.find_nearest(count))

    def similarities(self, ids: Sequence[int]) -> dict[int, float]:
        return likeness(self._store, *self._wanted, ids)

    def exclude(self, ids: Iterable[int]) -> None:
        if gone := list(ids):
            self._index.drop(self._space, gone)


def space_of(store: Store, owner: int, embedder: str) -> str:
    """Return a name that every database accepts, unique to a store, agent and model."""
    said = f"{store.identity} {owner} {embedder}"
    return "perdure-" + hashlib.sha256(said.encode()).hexdigest()[:32]


# -- vectors that the store no longer has -----------------------------------------------------------------------------


def erase(engine: Engine, ids: Sequence[str]) -> None:
    """Delete memories from the external index before the store forgets them, so that nothing remains."""
    index = vectors_of(engine)
    if index is None or not engine.is_known():
        return
    wanted = msgspec.json.encode(list(ids)).decode()
    found: dict[str, list[int]] = {}
    for piece, embedder in engine.store.read("vectors_of_memories", (engine.stream, wanted)):
        found.setdefault(embedder, []).append(piece)
    for embedder, pieces in found.items():
        index.drop(space_of(engine.store, engine.stream, embedder), pieces)
    for embedder in _read_mirrored_models(engine):
        if not _is_attached(engine, index, embedder):
            _drop_missing(engine, index, embedder)
            engine.place.vectors[engine.stream, "outside", embedder] = index


def note(engine: Engine, ids: Sequence[str]) -> str:
    """Return a note if memories were forgotten while the external index was not in use."""
    if vectors_of(engine) is not None or not ids or not _read_mirrored_models(engine):
        return ""
    where = "an external vector database, which is not in use here"
    return f"{where}, keeps vectors of it until an agent that uses it recalls or forgets something"


def _attach(engine: Engine, index: VectorIndex, embedder: str) -> None:
    """Attach the index once per process, after it has caught up."""
    if _is_attached(engine, index, embedder):
        return
    if embedder not in _read_mirrored_models(engine):
        # A server role without write access works without this record.
        with suppress(*(() if engine.store.one_host else (StoreUnavailable,))):
            engine.store.submit(_NoteMirrored(engine.stream, embedder))
    [(_, has)] = engine.store.read("embedding_progress", (engine.stream, embedder))
    if index.count(space_of(engine.store, engine.stream, embedder)) > has:
        _drop_missing(engine, index, embedder)
    drop_other_models(engine, embedder)
    engine.place.vectors[engine.stream, "outside", embedder] = index


def _is_attached(engine: Engine, index: VectorIndex, embedder: str) -> bool:
    return engine.place.vectors.get((engine.stream, "outside", embedder)) is index


def drop_other_models(engine: Engine, embedder: str) -> None:
    """Drop vectors of other models that the store no longer has: no agent may use them again."""
    if (index := vectors_of(engine)) is not None:
        for other in _read_mirrored_models(engine) - {embedder}:
            _drop_missing(engine, index, other)


def _drop_missing(engine: Engine, index: VectorIndex, embedder: str) -> None:
    """Drop vectors that the store does not have. Numbers are never reused, so new vectors are safe."""
    space = space_of(engine.store, engine.stream, embedder)
    for numbers in _batches(index.numbers(space)):
        wanted = msgspec.json.encode(numbers).decode()
        there = {piece for piece, _ in engine.store.read("vectors_among", (embedder, wanted))}
        if gone := [number for number in numbers if number not in there]:
            index.drop(space, gone)


def _batches(numbers: Iterable[int]) -> Iterator[list[int]]:
    left = iter(list(numbers))
    while batch := list(islice(left, BATCH)):
        yield batch


def _read_mirrored_models(engine: Engine) -> set[str]:
    """Return the models that have an external copy."""
    prefix = f"{OUTSIDE}{engine.stream} "
    return {key.removeprefix(prefix) for key, _ in engine.store.read("meta_with_prefix", (prefix,))}


class _NoteMirrored(UnitOfWork[None]):
    """Records that an external copy exists. Idempotent."""

    site = Site.REEMBED

    def __init__(self, owner: int, embedder: str) -> None:
        self._key = f"{OUTSIDE}{owner} {embedder}"

    def script(self) -> Script[None]:
        yield FinalBatch([Statement("put_meta", (self._key, b""))])
