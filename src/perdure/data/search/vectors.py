"""Vectors: their stored form, and the table in memory that is searched.

Every vector is compared, so results are exact under any filter. The table is read once and then updated with what is
new: a changed text has another number and replaces the old row. A deleted text stays in the table until it is found;
the searcher then sees by its version that it is gone.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from operator import mul
from typing import Any, Protocol

import msgspec

from perdure.errors import WrongValue
from perdure.store.base import Row, Store
from perdure.values.limits import VECTOR_DIMENSIONS_MAX
from perdure.values.locks import rlock

VectorKey = tuple[str, str]
"""Namespace and key."""

VectorScores = dict[tuple[str, str, int], float]
"""Namespace, key and version, with the similarity: 1 means equal, 0 unrelated."""


def packed(numbers: Iterable[Any], dims: int) -> bytes:
    """Pack a vector, normalized to length 1, so that a dot product gives the similarity."""
    values = [float(number) for number in numbers]
    if len(values) != dims or not 0 < dims <= VECTOR_DIMENSIONS_MAX:
        raise WrongValue(f"a vector has {len(values)} numbers, but the index has dims={dims}")
    length = math.sqrt(math.fsum(value * value for value in values))
    if not math.isfinite(length):
        raise WrongValue("a vector contains numbers that are not finite")
    return struct.pack(f"<{dims}f", *(value / length if length else 0.0 for value in values))


def packed_rows(rows: Any) -> list[bytes]:
    """Pack the rows of a numpy array, each normalized to length 1."""
    import numpy

    wide = numpy.asarray(rows, dtype="<f8")
    length = numpy.sqrt((wide * wide).sum(axis=1, keepdims=True))
    if not numpy.isfinite(length).all():
        raise WrongValue("a vector contains numbers that are not finite")
    return [row.tobytes() for row in (wide / numpy.where(length == 0, 1, length)).astype("<f4")]


def product(one: bytes, other: bytes) -> float:
    """Return the similarity of two vectors."""
    return math.fsum(map(mul, _numbers(one), _numbers(other)))


def _numbers(vector: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(vector) // 4}f", vector)


class VectorTable(Protocol):
    """A table of vectors in rows."""

    def put(self, row: int, vector: bytes) -> None:
        """Set a row, or append the next one."""

    def products(self, vector: bytes) -> Sequence[float]:
        """Return the similarity of every row."""

    def best(self, products: Any, rows: list[int] | None, count: int) -> Iterable[int]:
        """Return the rows with the largest products, among some or all, in any order."""


class PlainVectorTable:
    """A table without numpy: takes seconds for a million numbers."""

    def __init__(self) -> None:
        self._rows: list[tuple[float, ...]] = []

    def put(self, row: int, vector: bytes) -> None:
        self._rows[row : row + 1] = [_numbers(vector)]

    def products(self, vector: bytes) -> list[float]:
        wanted = _numbers(vector)
        return [sum(map(mul, row, wanted)) for row in self._rows]

    def best(self, products: Any, rows: list[int] | None, count: int) -> Iterable[int]:
        import heapq

        return heapq.nlargest(count, range(len(products)) if rows is None else rows, key=products.__getitem__)


class NumpyVectorTable:
    """A table with numpy."""

    def __init__(self, numpy: Any) -> None:
        self._numpy = numpy
        self._rows = numpy.zeros((0, 0), dtype="<f4")
        self._count = 0

    def put(self, row: int, vector: bytes) -> None:
        if row >= len(self._rows):
            grown = self._numpy.zeros((max(256, 2 * len(self._rows)), len(vector) // 4), dtype="<f4")
            grown[: self._count] = self._rows[: self._count] if self._count else 0
            self._rows = grown
        self._rows[row] = self._numpy.frombuffer(vector, dtype="<f4")
        self._count = max(self._count, row + 1)

    def products(self, vector: bytes) -> Any:
        if not self._count:
            return self._numpy.zeros(0, dtype="<f4")
        return self._rows[: self._count] @ self._numpy.frombuffer(vector, dtype="<f4")

    def best(self, products: Any, rows: list[int] | None, count: int) -> Iterable[int]:
        numpy = self._numpy
        chosen = None if rows is None else numpy.array(rows, dtype=int)
        looked_at = products if chosen is None else products[chosen]
        if count < len(looked_at):
            best = numpy.argpartition(looked_at, len(looked_at) - count)[len(looked_at) - count :]
        else:
            best = numpy.arange(len(looked_at))
        found: list[int] = (best if chosen is None else chosen[best]).tolist()
        return found


class _VectorRow(msgspec.Struct):
    number: int
    space: str
    key: str
    version: int


class EmbedderVectors:
    """All vectors of one embedder for one agent and kind."""

    def __init__(self, owner: int, kind: str, embedder: str) -> None:
        self._which = (owner, kind, embedder)
        self._since = 0
        self._table = new_table()
        self._rows: list[_VectorRow] = []
        self._places: dict[tuple[str, str, str], int] = {}
        self._of: dict[VectorKey, list[int]] = {}
        self._in: dict[str, list[int]] = {}
        self._lock = rlock()

    def __len__(self) -> int:
        return len(self._rows)

    def nearest(
        self, store: Store, vector: bytes, within: Callable[[str], bool], count: int, also: Iterable[VectorKey] = ()
    ) -> VectorScores:
        """Return the nearest keys in some namespaces, and those in `also`.

        For a key with several parts, the nearest counts.
        """
        with self._lock:
            self._catch_up(store)
            products = self._table.products(vector)
            inside = [space for space in self._in if within(space)]
            narrow = len(inside) < len(self._in)
            allowed = [row for space in inside for row in self._in[space]] if narrow else None
            rows = set(self._table.best(products, allowed, count))
            rows.update(row for whose in also for row in self._of.get(whose, ()))
            found: VectorScores = {}
            for row in rows:
                item = self._rows[row]
                key = (item.space, item.key, item.version)
                found[key] = max(found.get(key, -1.0), float(products[row]))
        return found

    def _catch_up(self, store: Store) -> None:
        # Rows written between the two reads are read now, and again the next time.
        [(now,)] = store.read("documents_now")
        if now != self._since or not store.one_host:
            for row in store.read("documents_since", (*self._which, self._since)):
                self._take(row)
        self._since = now

    def _take(self, row: Row) -> None:
        number, space, key, part, version, vector = row
        place = self._places.get((space, key, part))
        if place is None:
            place = self._places[space, key, part] = len(self._rows)
            self._rows.append(_VectorRow(number, space, key, version))
            self._of.setdefault((space, key), []).append(place)
            self._in.setdefault(space, []).append(place)
        elif number <= self._rows[place].number:
            return
        self._rows[place] = _VectorRow(number, space, key, version)
        self._table.put(place, vector)


def new_table() -> VectorTable:
    """Return a table, with numpy if it is installed."""
    numpy: Any = None
    with suppress(ImportError):
        import numpy
    return PlainVectorTable() if numpy is None else NumpyVectorTable(numpy)
