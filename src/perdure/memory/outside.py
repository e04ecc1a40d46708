"""A vector database of somebody else's as the index of memories: it finds, and the store decides.

The vectors are in the store, written by the commit of their memory; what is outside is a copy of them, which catches up
by number when it is asked, whatever was killed in between. A piece that it finds and the store does not have is gone.

    agent.memory.vectors = QdrantVectors("./vectors")              # from perdure.adapters.qdrant
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from ..locks import rlock
from ..store.base import Floats, Store
from .nearest import Compared, likeness

if TYPE_CHECKING:
    from ..engine import Engine

BATCH = 500


@runtime_checkable
class VectorIndex(Protocol):
    """What a vector database must be able to do. `space` names the vectors of one agent and one model."""

    def put(self, space: str, vectors: Sequence[tuple[int, Sequence[float]]], mark: int) -> None:
        """Take vectors of length 1 by their numbers, in the place of those with the same ones; and keep the mark.

        When only some of this has happened, it is done again.
        """

    def mark(self, space: str) -> int:
        """The mark that was kept last; 0 when the space is new."""

    def nearest(self, space: str, vector: Sequence[float], count: int) -> list[int]:
        """The numbers of those with the largest products, the best first."""

    def drop(self, space: str, numbers: Sequence[int]) -> None:
        """Erase some."""


class Mirrored:
    """The vectors that one model has made for an agent, in an index outside."""

    def __init__(self, owner: int, embedder: str, index: VectorIndex) -> None:
        self._which = (owner, embedder)
        self._index = index
        self._lock = rlock()

    def compared(self, store: Store, vector: Floats) -> Compared:
        """A question beside what there is now."""
        space = space_of(store, *self._which)
        with self._lock:
            self._catch_up(store, space)
        return _Outside(self._index, space, store, self._which[1], vector)

    def _catch_up(self, store: Store, space: str) -> None:
        since = self._index.mark(space)
        # What is written between the two is taken now, and once more the next time.
        [(now,)] = store.read("vectors_now")
        if since == now and store.one_host:
            return
        rows = store.read("vectors_since", (*self._which, since))
        for start in range(0, len(rows), BATCH):
            part = [(piece, Floats(vector).numbers) for piece, vector in rows[start : start + BATCH]]
            self._index.put(space, part, now if start + BATCH >= len(rows) else since)


class _Outside:
    def __init__(self, index: VectorIndex, space: str, store: Store, embedder: str, vector: Floats) -> None:
        self._index = index
        self._space = space
        self._store = store
        self._wanted = (embedder, vector)

    def best(self, count: int, among: Sequence[int] | None = None) -> list[int]:
        if among is None:
            return self._index.nearest(self._space, self._wanted[1].numbers, count)
        near = self.of(among)
        return sorted(near, key=lambda it: -near[it])[:count]

    def of(self, ids: Sequence[int]) -> dict[int, float]:
        return likeness(self._store, *self._wanted, ids)

    def gone(self, ids: Iterable[int]) -> None:
        if gone := list(ids):
            self._index.drop(self._space, gone)


def space_of(store: Store, owner: int, embedder: str) -> str:
    """A name that every database takes, and that no two stores, agents or models share."""
    said = f"{store.identity} {owner} {embedder}"
    return "perdure-" + hashlib.sha256(said.encode()).hexdigest()[:32]


def erase(engine: Engine, ids: Sequence[str]) -> None:
    """Take memories out of the index outside, before the store forgets them: then nothing of them is left anywhere."""
    if engine.vectors is None or not engine.is_known():
        return
    wanted = msgspec.json.encode(list(ids)).decode()
    found: dict[str, list[int]] = {}
    for piece, embedder in engine.store.read("vectors_of_memories", (engine.stream, wanted)):
        found.setdefault(embedder, []).append(piece)
    for embedder, pieces in found.items():
        engine.vectors.drop(space_of(engine.store, engine.stream, embedder), pieces)
