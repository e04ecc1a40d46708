"""A vector database of somebody else's as the index of memories: it finds, and the store decides.

The vectors are in the store, written by the commit of their memory; what is outside is a copy of them, which catches up
by number when it is asked, whatever was killed in between. A piece that it finds and the store does not have is gone.
It may have been away while memories were forgotten: when a process first uses it, what the store has not goes too.

    agent.memory.vectors = QdrantVectors("./vectors")              # from perdure.adapters.qdrant
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from ..errors import StoreUnavailable
from ..failpoints import Site
from ..locks import rlock
from ..store.base import Floats, Last, Script, Statement, Store, Unit
from .nearest import Compared, likeness, where

if TYPE_CHECKING:
    from ..engine import Engine

BATCH = 500
OUTSIDE = "outside "
"""How the keys begin under which a store notes, by agent and model, that there is a copy of its vectors."""


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

    def count(self, space: str) -> int:
        """How many there are."""

    def numbers(self, space: str) -> Iterable[int]:
        """The numbers of all of them, in any order. Some may be dropped meanwhile."""


class Mirrored:
    """The vectors that one model has made for an agent, in an index outside."""

    def __init__(self, engine: Engine, embedder: str, index: VectorIndex) -> None:
        self._engine = engine
        self._which = (engine.stream, embedder)
        self._index = index
        self._lock = rlock()

    def compared(self, vector: Floats) -> Compared:
        """A question beside what there is now."""
        store = self._engine.store
        space = space_of(store, *self._which)
        with self._lock:
            self._catch_up(store, space)
            _attached(self._engine, self._index, self._which[1])
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

    def asked(self, count: int) -> tuple[list[int], Statement]:
        return where(self.best(count))

    def of(self, ids: Sequence[int]) -> dict[int, float]:
        return likeness(self._store, *self._wanted, ids)

    def gone(self, ids: Iterable[int]) -> None:
        if gone := list(ids):
            self._index.drop(self._space, gone)


def space_of(store: Store, owner: int, embedder: str) -> str:
    """A name that every database takes, and that no two stores, agents or models share."""
    said = f"{store.identity} {owner} {embedder}"
    return "perdure-" + hashlib.sha256(said.encode()).hexdigest()[:32]


# -- what is not in the store any more --------------------------------------------------------------------------------


def erase(engine: Engine, ids: Sequence[str]) -> None:
    """Take memories out of the index outside, before the store forgets them: then nothing of them is left anywhere."""
    index = engine.vectors
    if index is None or not engine.is_known():
        return
    wanted = msgspec.json.encode(list(ids)).decode()
    found: dict[str, list[int]] = {}
    for piece, embedder in engine.store.read("vectors_of_memories", (engine.stream, wanted)):
        found.setdefault(embedder, []).append(piece)
    for embedder, pieces in found.items():
        index.drop(space_of(engine.store, engine.stream, embedder), pieces)
    for embedder in _noted(engine):
        if not _is_attached(engine, index, embedder):
            _let_go(engine, index, embedder)
            engine.place.vectors[engine.stream, "outside", embedder] = index


def note(engine: Engine, ids: Sequence[str]) -> str:
    """What has to be seen to, where memories were forgotten without the index outside."""
    if engine.vectors is not None or not ids or not _noted(engine):
        return ""
    where = "a vector database outside of the store, which is not in use here"
    return f"{where}, has vectors of it until an agent recalls or forgets something with it"


def _attached(engine: Engine, index: VectorIndex, embedder: str) -> None:
    """Seen to once in a process, after the index has caught up with what is new."""
    if _is_attached(engine, index, embedder):
        return
    if embedder not in _noted(engine):
        # On a server, a role that may not write this down does without.
        with suppress(*(() if engine.store.one_host else (StoreUnavailable,))):
            engine.store.submit(_Note(engine.stream, embedder))
    [(_, has)] = engine.store.read("vectors_known", (engine.stream, embedder))
    if index.count(space_of(engine.store, engine.stream, embedder)) > has:
        _let_go(engine, index, embedder)
    let_go_of_others(engine, embedder)
    engine.place.vectors[engine.stream, "outside", embedder] = index


def _is_attached(engine: Engine, index: VectorIndex, embedder: str) -> bool:
    return engine.place.vectors.get((engine.stream, "outside", embedder)) is index


def let_go_of_others(engine: Engine, embedder: str) -> None:
    """Of what other models have made, an index keeps no more than the store: perhaps nobody asks it any more."""
    if engine.vectors is not None:
        for other in _noted(engine) - {embedder}:
            _let_go(engine, engine.vectors, other)


def _let_go(engine: Engine, index: VectorIndex, embedder: str) -> None:
    """Drop what the store does not have. A number is never given twice, so that what is new is not taken for it."""
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


def _noted(engine: Engine) -> set[str]:
    """The models whose vectors are copied somewhere."""
    prefix = f"{OUTSIDE}{engine.stream} "
    return {key.removeprefix(prefix) for key, _ in engine.store.read("facts_like", (prefix,))}


class _Note(Unit[None]):
    """Done twice, it is the same as done once."""

    site = Site.REEMBED

    def __init__(self, owner: int, embedder: str) -> None:
        self._key = f"{OUTSIDE}{owner} {embedder}"

    def script(self) -> Script[None]:
        yield Last([Statement("put_meta", (self._key, b""))])
