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

SKETCHES_FROM = 20_000
"""From this number of rows on, sketches are made; fewer vectors are compared one by one."""
SKETCHED_ROWS, SKETCHED_SHARE = 2000, 50
"""How many vectors are compared exactly after the sketches: so many, and one in fifty."""
SKETCHED_MAX = 100
"""For more results than this, all vectors are compared."""
HALF_FROM = 200_000
"""From this number of rows on, numbers are kept in half precision."""
_ASKED_BEFORE = 2
_JOINED = 4096

VectorScores = dict[tuple[str, str, int], float]
"""Namespace, key and version, with the similarity: 1 means equal, 0 unrelated."""


def pack_vector(numbers: Iterable[Any], dims: int) -> bytes:
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

    def extend(self, vectors: Sequence[bytes]) -> None:
        """Append rows."""

    def products(self, vector: bytes, rows: Sequence[int] | None = None) -> Any:
        """Return the similarity of every row, or of some."""

    def nearest(self, vector: bytes, count: int) -> list[int]:
        """Return the rows with the largest products, best first."""

    def find_best(self, products: Any, rows: list[int] | None, count: int) -> Iterable[int]:
        """Return the rows with the largest products, among some or all, in any order."""


class PlainVectorTable:
    """A table without numpy: takes seconds for a million numbers."""

    def __init__(self) -> None:
        self._rows: list[tuple[float, ...]] = []

    def put(self, row: int, vector: bytes) -> None:
        self._rows[row : row + 1] = [_numbers(vector)]

    def extend(self, vectors: Sequence[bytes]) -> None:
        self._rows += map(_numbers, vectors)

    def products(self, vector: bytes, rows: Sequence[int] | None = None) -> list[float]:
        wanted = _numbers(vector)
        return [sum(map(mul, row, wanted)) for row in (self._rows if rows is None else [self._rows[at] for at in rows])]

    def nearest(self, vector: bytes, count: int) -> list[int]:
        products = self.products(vector)
        return sorted(self.find_best(products, None, count), key=lambda row: -products[row])

    def find_best(self, products: Any, rows: list[int] | None, count: int) -> Iterable[int]:
        import heapq

        return heapq.nlargest(count, range(len(products)) if rows is None else rows, key=products.__getitem__)


class NumpyVectorTable:
    """A table with numpy. Among very many rows, it compares the vectors of the most similar sketches only."""

    def __init__(self, numpy: Any) -> None:
        self._numpy = numpy
        self._rows = numpy.zeros((0, 0), dtype="<f4")
        self._count = 0
        self._sketches: VectorSketches | None = None
        self._asked = 0

    def put(self, row: int, vector: bytes) -> None:
        self._make_room(row + 1, len(vector) // 4)
        self._rows[row] = self._numpy.frombuffer(vector, dtype="<f4")
        self._count = max(self._count, row + 1)
        if self._sketches is not None:
            self._sketches.put(row, self._rows[row : row + 1])

    def extend(self, vectors: Sequence[bytes]) -> None:
        if not vectors:
            return
        first, size = self._count, len(vectors[0]) // 4
        self._make_room(first + len(vectors), size)
        for start in range(0, len(vectors), _JOINED):
            part = b"".join(vectors[start : start + _JOINED])
            given = self._numpy.frombuffer(part, dtype="<f4").reshape(-1, size)
            self._rows[first + start : first + start + len(given)] = given
        self._count = first + len(vectors)
        if self._sketches is not None:
            self._sketches.put(first, self._rows[first : self._count])

    def products(self, vector: bytes, rows: Sequence[int] | None = None) -> Any:
        if not self._count:
            return self._numpy.zeros(0, dtype="<f4")
        there = self._rows[: self._count] if rows is None else self._rows[self._numpy.asarray(rows, dtype=int)]
        return multiply_rows(there.astype("<f4", copy=False), self._numpy.frombuffer(vector, dtype="<f4"))

    def nearest(self, vector: bytes, count: int) -> list[int]:
        numpy, sketches = self._numpy, self._sketched()
        if sketches is None or count > SKETCHED_MAX:
            products = self.products(vector)
            rows = numpy.asarray(list(self.find_best(products, None, count)), dtype=int)
            products = products[rows]
        else:
            rows = sketches.similar(numpy.frombuffer(vector, dtype="<f4"), self._count)
            products = self.products(vector, rows)
        found: list[int] = rows[numpy.argsort(-products, kind="stable")[:count]].tolist()
        return found

    def find_best(self, products: Any, rows: list[int] | None, count: int) -> Iterable[int]:
        numpy = self._numpy
        chosen = None if rows is None else numpy.array(rows, dtype=int)
        looked_at = products if chosen is None else products[chosen]
        if count < len(looked_at):
            best = numpy.argpartition(looked_at, len(looked_at) - count)[len(looked_at) - count :]
        else:
            best = numpy.arange(len(looked_at))
        found: list[int] = (best if chosen is None else chosen[best]).tolist()
        return found

    def _make_room(self, count: int, size: int) -> None:
        if count <= len(self._rows):
            return
        room = max(256, count + count // 4 if self._count else count)
        # Half precision for very many: the products differ from the fifth digit on.
        grown = self._numpy.zeros((room, size), dtype="<f4" if count < HALF_FROM else "<f2")
        if self._count:
            grown[: self._count] = self._rows[: self._count]
        self._rows = grown

    def _sketched(self) -> VectorSketches | None:
        """Return the sketches, made when a process asks more than a few questions; of very many, at once."""
        self._asked += 1
        soon = self._asked > _ASKED_BEFORE or self._count >= HALF_FROM
        if self._sketches is None and self._count >= SKETCHES_FROM and soon:
            sketches = VectorSketches(self._numpy, self._rows[: self._count : 10].astype("<f4").mean(axis=0))
            sketches.put(0, self._rows[: self._count])
            self._sketches = sketches
        return self._sketches


def multiply_rows(rows: Any, vector: Any) -> Any:
    """Return the product of each row with a vector, in this thread.

    `rows @ vector` wakes the threads of the linear algebra library. Afterwards they wait in a loop for more work and
    take ten times as much processor time as the products.
    """
    import numpy

    return numpy.vecdot(rows, vector)


class VectorSketches:
    """The signs of vectors in two bases, as bits: near vectors differ in few, which is found in a tenth of the time."""

    def __init__(self, numpy: Any, middle: Any) -> None:
        self._numpy = numpy
        self._middle = middle
        turned, _ = numpy.linalg.qr(numpy.random.default_rng(1).standard_normal((len(middle), len(middle))))
        self._turned = turned.astype("<f4")
        self._words = numpy.zeros((-(-2 * len(middle) // 64), 0), dtype="<u8")

    def put(self, first: int, vectors: Any) -> None:
        """Set the sketches of rows from the first on."""
        numpy, last = self._numpy, first + len(vectors)
        if last > self._words.shape[1]:
            grown = numpy.zeros((len(self._words), max(last, 5 * self._words.shape[1] // 4)), dtype="<u8")
            grown[:, : self._words.shape[1]] = self._words
            self._words = grown
        for start in range(0, len(vectors), _JOINED):
            part = self._words_of(vectors[start : start + _JOINED])
            self._words[:, first + start : first + start + part.shape[1]] = part

    def similar(self, vector: Any, count: int) -> Any:
        """Return the rows whose sketches differ least from that of a vector: some thousand, and a share of all."""
        numpy = self._numpy
        differences = numpy.zeros(count, dtype="<u2")
        for row, word in zip(self._words, self._words_of(vector[None])[:, 0], strict=True):
            differences += numpy.bitwise_count(row[:count] ^ word)
        at_most = numpy.bincount(differences).cumsum().searchsorted(SKETCHED_ROWS + count // SKETCHED_SHARE)
        return numpy.flatnonzero(differences <= at_most)

    def _words_of(self, vectors: Any) -> Any:
        numpy, near = self._numpy, vectors.astype("<f4", copy=False) - self._middle
        turned = near @ self._turned if len(near) > 1 else multiply_rows(self._turned.T, near[0])[None]
        bits = numpy.packbits(numpy.concatenate([near, turned], axis=1) > 0, axis=1)
        wide = numpy.zeros((len(bits), 8 * len(self._words)), dtype="u1")
        wide[:, : bits.shape[1]] = bits
        return wide.view("<u8").T


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
        self._table = make_table()
        self._rows: list[_VectorRow] = []
        self._places: dict[tuple[str, str, str], int] = {}
        self._of: dict[VectorKey, list[int]] = {}
        self._in: dict[str, list[int]] = {}
        self._lock = rlock()

    def __len__(self) -> int:
        return len(self._rows)

    def find_nearest(
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
            rows = set(self._table.find_best(products, allowed, count))
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


def make_table() -> VectorTable:
    """Return a table, with numpy if it is installed."""
    numpy: Any = None
    with suppress(ImportError):
        import numpy
    return PlainVectorTable() if numpy is None else NumpyVectorTable(numpy)
