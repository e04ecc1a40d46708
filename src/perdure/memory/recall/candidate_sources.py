"""Draws pieces of memory that may be the answer: the best by words, the nearest by meaning, those of named days.

With a filter, pieces are drawn as if no others existed. How the filter is applied depends on how many pieces pass, and
on whether the store compares vectors. The result does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from itertools import islice
from typing import Any, Protocol

import msgspec

from perdure.memory.dates.days import DateSpan
from perdure.memory.recall.nearest import StoreComparison, VectorComparison
from perdure.store.base import Row, Rows, Statement, Store
from perdure.values.limits import RECALL_MEANING, RECALL_WORDS

LATE_DAYS = 10
"""Things are mostly told within this many days after they happened."""

MONTH_DAYS = 30
OF_DAYS = 60
WIDER = 4
TRIES = 12
EVERY = (1 << 31) - 1

_NOW, _INDEX_FIRST = Statement("last_chunk_number"), Statement("prefer_indexes")

PiecePosition = tuple[str, int]
"""A thread and a position in it."""


class CandidateQuery(msgspec.Struct, frozen=True):
    """What pieces are drawn by."""

    owner: int
    words: str
    """[word, weight] pairs as JSON; empty if there are none."""
    spans: tuple[DateSpan, ...]
    beside: VectorComparison | None
    filters: tuple[Any, ...]

    @property
    def by_words(self) -> int:
        """How many pieces are drawn by words: more if there is no embedder."""
        return RECALL_WORDS if self.beside is not None else RECALL_WORDS + RECALL_MEANING

    def day_queries(self) -> Iterator[Statement]:
        """Yield the queries for pieces of the named days."""
        for span in self.spans:
            first, last = span.first.toordinal(), span.last.toordinal() + LATE_DAYS
            # Of everything before a day, take the last month.
            first = first if span.first > date.min else last - LATE_DAYS - MONTH_DAYS
            yield Statement("positions_of_days", (self.owner, *self.filters, first, last, OF_DAYS))


class CandidateSource(Protocol):
    """A way to draw pieces."""

    newest: int
    """The number of the newest piece at that time."""

    def places(self, store: Store) -> dict[int, PiecePosition]:
        """Return the positions of the drawn pieces, by number."""


class UnfilteredCandidates:
    """Draws from all pieces, whether they pass the filter or not. The caller checks the chosen ones."""

    newest = 0

    def __init__(self, wanted: CandidateQuery) -> None:
        self._wanted = wanted

    def places(self, store: Store) -> dict[int, PiecePosition]:
        wanted, beside, count = self._wanted, self._wanted.beside, RECALL_MEANING
        queries = [_NOW, *wanted.day_queries()]
        if wanted.words:
            queries.append(Statement("positions_with_words", (wanted.words, wanted.by_words)))
        if beside is None:
            [(self.newest,)], *others = store.read_all(queries)
            return _spots(others)
        ids, near = beside.nearest_query(count)
        [(self.newest,)], *others, rows = store.read_all([*queries, near])
        while len(rows) < len(ids) // 2 and count < RECALL_MEANING << TRIES:
            # Most of them were erased by another process, and this process learns of it now.
            beside.exclude(set(ids) - {row[0] for row in rows})
            count *= 2
            ids, near = beside.nearest_query(count)
            [rows] = store.read_all([near])
        beside.exclude(set(ids) - {row[0] for row in rows})
        return _spots([*others, rows])


class ListedCandidates:
    """Draws from a list of pieces that pass the filter."""

    newest = 0

    def __init__(self, wanted: CandidateQuery, among: Sequence[int]) -> None:
        self._wanted = wanted
        self._among = among

    def places(self, store: Store) -> dict[int, PiecePosition]:
        wanted, ids = self._wanted, list[int]()
        if wanted.words:
            ids += store.scan("chunks_with_words", (wanted.words, EVERY), self._first_by_words)
        if wanted.beside is not None:
            ids += wanted.beside.find_nearest(RECALL_MEANING, self._among)
        where = Statement("positions_of_chunks", (_json(ids),))
        [(self.newest,)], *found = store.read_all([_NOW, where, *wanted.day_queries()])
        return _spots(found)

    def _first_by_words(self, rows: Iterable[Row]) -> list[int]:
        """Take the best that pass, and leave the rest unread."""
        allowed = set(self._among)
        return list(islice((piece_id for (piece_id,) in rows if piece_id in allowed), self._wanted.by_words))


class CheckedCandidates:
    """Draws from too many pieces to list: in order of quality, until enough of them pass."""

    newest = 0

    def __init__(self, wanted: CandidateQuery) -> None:
        self._wanted = wanted

    def places(self, store: Store) -> dict[int, PiecePosition]:
        wanted, beside = self._wanted, self._wanted.beside
        [(self.newest,)], *found = store.read_all([_NOW, *wanted.day_queries()])
        if wanted.words:
            hits = [piece_id for (piece_id,) in store.read("chunks_with_words", (wanted.words, EVERY))]
            found.append(self._read_first_passing(store, lambda count: hits[:count], wanted.by_words))
        if beside is not None:
            found.append(self._read_first_passing(store, beside.find_nearest, RECALL_MEANING))
        return _spots(found)

    def _read_first_passing(self, store: Store, best: Callable[[int], Sequence[int]], wanted: int) -> Rows:
        """Return the first pieces that pass, reading the ranking in growing steps."""
        found, seen, count = Rows(), 0, WIDER * wanted
        while True:
            ids = best(count)
            there = {row[0]: row for row in self._filter_passing(store, ids[seen:])}
            found += [there[piece_id] for piece_id in ids[seen:] if piece_id in there]
            if len(found) >= wanted or len(ids) < count:
                return found[:wanted]
            # As many as needed if the rest pass at the same rate, plus a margin.
            seen, count = count, max(2 * count, 3 * count * wanted // (2 * len(found) + 1))

    def _filter_passing(self, store: Store, ids: Sequence[int]) -> Rows:
        return store.read("positions_matching", (_json(ids), *self._wanted.filters)) if ids else []


class StoreCandidates:
    """Lets a store with vector search do everything at once, unless too many pieces pass to be listed."""

    newest = 0

    def __init__(self, wanted: CandidateQuery, beside: StoreComparison, few: int, most: int) -> None:
        self._wanted = wanted
        self._beside = beside
        self._room = (few, most)
        self.all: list[int] = []
        """All pieces that pass, if they are few. Then none was drawn."""

    def places(self, store: Store) -> dict[int, PiecePosition]:
        wanted = self._wanted
        words = (wanted.words or "[]", wanted.by_words)
        likely = self._beside.likely_query(wanted.filters, self._room, words, RECALL_MEANING)
        [(self.newest,)], _, rows, *others = store.read_all([_NOW, _INDEX_FIRST, likely, *wanted.day_queries()])
        if rows and rows[-1][0] is None:
            return CheckedCandidates(wanted).places(store)
        self.all = [piece_id for piece_id, thread, _ in rows if thread is None]
        return _spots([rows, *others])


def _spots(found: Iterable[Sequence[Row]]) -> dict[int, PiecePosition]:
    return {piece_id: (thread, place) for rows in found for piece_id, thread, place in rows}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
