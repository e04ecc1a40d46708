"""Compares a question with the vectors of memories, in this process or in the store.

In a file store the vectors are blobs. This process keeps a table of them in memory and updates it with what is new.
Under a filter every vector that passes is compared. Without one, up to 20,000 are; among more, sketches choose some
thousand, which are compared exactly (`data/search/vectors.py`). A server with pgvector compares them itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from perdure.data.search.vectors import make_table, product
from perdure.memory.recall.index_choice import vectors_of
from perdure.store.base import Floats, Statement, Store
from perdure.values.locks import rlock

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine


_GONE = 0
"""Marks the row of an erased piece."""


class VectorComparison(Protocol):
    """A question compared with the vectors of one model."""

    def find_nearest(self, count: int, among: Sequence[int] | None = None) -> list[int]:
        """Return the nearest pieces, among some or all."""

    def nearest_query(self, count: int) -> tuple[list[int], Statement]:
        """Return a query for the positions of the nearest pieces, and their numbers if only this process knows them."""

    def similarities(self, ids: Sequence[int]) -> dict[int, float]:
        """Return the similarity of some pieces, where 1 means equal. Pieces without a vector are left out."""

    def exclude(self, ids: Iterable[int]) -> None:
        """Record that some of the found pieces no longer exist."""


def compare(engine: Engine, embedder: str, vector: Floats) -> VectorComparison:
    """Compare with the store if it can, else in this process."""
    store, owner = engine.store, engine.stream
    if (index := vectors_of(engine)) is not None:
        from perdure.memory.recall.vector_index import MirroredVectors

        return MirroredVectors(engine, embedder, index).compare(vector)
    if store_compares_vectors(engine):
        return StoreComparison(store, owner, embedder, vector)
    table: VectorMatrix = engine.place.vectors.setdefault((owner, "memory", embedder), VectorMatrix(owner, embedder))
    return table.compare(store, vector)


def store_compares_vectors(engine: Engine) -> bool:
    """Return whether the store compares vectors itself. Asked once per process."""
    which = (0, "vector home", "")
    if which not in engine.place.vectors:
        engine.place.vectors[which] = bool(engine.store.read("vector_schema"))
    return vectors_of(engine) is None and bool(engine.place.vectors[which])


class VectorMatrix:
    """All vectors that one model has made for an agent, in memory."""

    def __init__(self, owner: int, embedder: str) -> None:
        self._which = (owner, embedder)
        self._since = 0
        self._table = make_table()
        self._pieces: list[int] = []
        self._rows: dict[int, int] = {}
        self._lock = rlock()

    def compare(self, store: Store, vector: Floats) -> VectorComparison:
        """Compare a question with the current vectors."""
        with self._lock:
            self._catch_up(store)
        return _MatrixComparison(self, vector)

    def find_nearest(self, vector: Floats, count: int, among: Sequence[int] | None) -> list[int]:
        """Return the nearest pieces, best first."""
        with self._lock:
            if among is None:
                chosen = self._table.nearest(vector, count)
            else:
                rows = [row for row in map(self._rows.get, among) if row is not None]
                products = self._table.products(vector, rows)
                best = sorted(self._table.find_best(products, None, count), key=lambda at: -products[at])
                chosen = [rows[at] for at in best]
            return [self._pieces[row] for row in chosen if self._pieces[row] != _GONE]

    def similarities(self, vector: Floats, ids: Sequence[int]) -> dict[int, float]:
        """Return the similarity of some pieces."""
        with self._lock:
            there = [(piece_id, self._rows[piece_id]) for piece_id in ids if piece_id in self._rows]
            products = self._table.products(vector, [row for _, row in there])
        values = products if isinstance(products, list) else products.tolist()
        return {piece_id: value for (piece_id, _), value in zip(there, values, strict=True)}

    def exclude(self, ids: Iterable[int], size: int) -> None:
        """Remove pieces that no longer exist."""
        with self._lock:
            for piece_id in ids:
                row = self._rows.get(piece_id)
                if row is not None and self._pieces[row] != _GONE:
                    self._pieces[row] = _GONE
                    self._table.put(row, bytes(size))

    def _catch_up(self, store: Store) -> None:
        # Rows written between the two reads are read now, and again the next time.
        [(now,)] = store.read("vectors_now")
        if now != self._since or not store.one_host:
            new = [row for row in store.read("vectors_since", (*self._which, self._since)) if row[0] not in self._rows]
            pieces = [piece for piece, _ in new]
            self._rows.update(zip(pieces, count(len(self._pieces)), strict=False))
            self._pieces += pieces
            self._table.extend([vector for _, vector in new])
        self._since = now


class _MatrixComparison:
    def __init__(self, matrix: VectorMatrix, vector: Floats) -> None:
        self._matrix = matrix
        self._vector = vector

    def find_nearest(self, count: int, among: Sequence[int] | None = None) -> list[int]:
        return self._matrix.find_nearest(self._vector, count, among)

    def nearest_query(self, count: int) -> tuple[list[int], Statement]:
        return positions_query(self.find_nearest(count))

    def similarities(self, ids: Sequence[int]) -> dict[int, float]:
        return self._matrix.similarities(self._vector, ids)

    def exclude(self, ids: Iterable[int]) -> None:
        self._matrix.exclude(ids, len(self._vector))


class StoreComparison:
    """pgvector: an index finds the nearest of all; results among some pieces or under a filter are exact."""

    def __init__(self, store: Store, owner: int, embedder: str, vector: Floats) -> None:
        self._store = store
        self._owner = owner
        self.by = (embedder, vector)

    def find_nearest(self, count: int, among: Sequence[int] | None = None) -> list[int]:
        if among is not None:
            near = self.similarities(among)
            return sorted(near, key=lambda piece_id: -near[piece_id])[:count]
        return [piece for (piece,) in self._store.read("nearest_by_scan", (self._owner, *self.by, count))]

    def nearest_query(self, count: int) -> tuple[list[int], Statement]:
        return [], Statement("nearest_chunks", (self._owner, *self.by, count))

    def likely_query(
        self, filters: tuple[Any, ...], room: tuple[int, int], words: tuple[str, int], count: int
    ) -> Statement:
        """Return a query for pieces that pass a filter and have some words, or are nearest among those that pass.

        `room` has two limits: up to the first, all pieces are listed; above the second, nothing is returned.
        """
        return Statement("candidate_chunks", (self._owner, *filters, *room, *words, *self.by, count))

    def similarities(self, ids: Sequence[int]) -> dict[int, float]:
        wanted = msgspec.json.encode(list(ids)).decode()
        return dict(self._store.read("vector_similarity", (*self.by, wanted)))

    def exclude(self, ids: Iterable[int]) -> None:
        pass  # the server no longer returns them


def positions_query(ids: list[int]) -> tuple[list[int], Statement]:
    """Return pieces, and the query for their positions."""
    return ids, Statement("positions_of_chunks", (msgspec.json.encode(ids).decode(),))


def likeness(store: Store, embedder: str, vector: Floats, ids: Sequence[int]) -> dict[int, float]:
    """Return the similarity of some pieces, read from the store."""
    wanted = msgspec.json.encode(list(ids)).decode()
    return {piece: product(kept, vector) for piece, kept in store.read("vectors_among", (embedder, wanted))}
