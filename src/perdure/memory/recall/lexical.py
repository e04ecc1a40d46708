"""Lexical scores: what each term of a question gives to each piece of memory, with or without numpy.

`ranking.py` explains the scheme. Both versions give bit-identical results. Without numpy, only pieces near a matching
term are visited. With numpy, all pieces are computed at once, which is faster for a hundred related terms.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from itertools import islice
from typing import Any, Protocol

import msgspec

from perdure.memory.dates.days import DateSpan
from perdure.memory.dates.times import closeness
from perdure.memory.recall.terms import SATURATION, length_normalization, rarity

COMMON = 0.3
COMMON_FROM = 10
"""A term that more than this share of memories have, and at least this many, is common: mostly a speaker's name."""

COMMON_WEIGHT = 1.5
AFTER = (0.5, 0.4, 0.3, 0.2)
BEFORE = (0.4, 0.3, 0.2)
"""The share of its score that a memory lends to the next ones, and to the previous ones."""

LENDS_TERMS = 40
"""Longer pieces neither lend nor borrow: they stand on their own, and would match everything."""

ASKING_LENDS = 0.5
"""A question lends this much more to the next memory."""

ASKING_LOSES = 0.3

STAND_INS = 20
"""How many related terms may stand in for one."""


class RecallQuestion(msgspec.Struct, frozen=True):
    """A parsed question."""

    text: str
    terms: tuple[str, ...]
    spans: tuple[DateSpan, ...]
    alike: Mapping[str, Mapping[str, float]]
    """For each term, related terms that may stand in for it, with their weight; nearest first."""
    wanted: frozenset[str]
    """Every term that a memory may be found by."""


class MemoryPiece(msgspec.Struct, frozen=True, gc=False):
    """A memory, or a part of a long one, as recall sees it."""

    memory: int
    place: int
    """Pieces at consecutive places of one thread are neighbours."""
    thread: int
    counts: Mapping[str, int]
    """How often it has each term. Terms that are not asked for may be left out."""
    length: int
    asks: float
    day: date
    told: tuple[DateSpan, ...] = ()
    likeness: float = 0.0
    """The cosine similarity with the question, if there is an embedder."""


class TermIndex:
    """Where each term of some pieces is, and how often."""

    def __init__(self, pieces: Sequence[MemoryPiece], wanted: frozenset[str] | None = None) -> None:
        places: dict[str, dict[int, int]] = defaultdict(dict)
        for at, piece in enumerate(pieces):
            counts = piece.counts
            # `keys() & wanted` would iterate over all wanted terms
            for term in counts if wanted is None else wanted.intersection(counts):
                places[term][at] = counts[term]
        self.places: Mapping[str, Mapping[int, int]] = dict(places)
        """For each term, the positions of the pieces that have it, with its count."""
        self._arrays: dict[str, tuple[Any, Any]] = {}

    def arrays(self, term: str, numpy: Any) -> tuple[Any, Any]:
        """Return the positions and the counts of a term as arrays."""
        found = self._arrays.get(term)
        if found is None:
            places = self.places[term]
            found = (
                numpy.fromiter(places, dtype=int, count=len(places)),
                numpy.fromiter(places.values(), dtype=int, count=len(places)),
            )
            self._arrays[term] = found
        return found


class IndexStatistics(msgspec.Struct, frozen=True):
    """Statistics of all pieces that are searched, used to compute rarity."""

    total: int
    mean: float
    having: Mapping[str, int]

    @staticmethod
    def from_pieces(pieces: Sequence[MemoryPiece], terms: TermIndex | None = None) -> IndexStatistics:
        """Compute the statistics from the pieces themselves, and from the index of all their terms if there is one."""
        having = {term: len(places) for term, places in (terms or TermIndex(pieces)).places.items()}
        return IndexStatistics(len(pieces), sum(piece.length for piece in pieces) / max(len(pieces), 1), having)

    def is_common(self, term: str) -> bool:
        """Return whether a term is too frequent to distinguish memories."""
        return self.having.get(term, 0) > max(COMMON * self.total, COMMON_FROM)

    def rarity(self, term: str) -> float:
        """Return the inverse document frequency of a term."""
        return rarity(self.total, self.having.get(term, 0))


class RecallMatch(msgspec.Struct, frozen=True):
    """A memory that matches a question, and why."""

    memory: int
    score: float
    own: tuple[str, ...]
    """Terms that it has itself."""
    lent: tuple[str, ...]
    """Terms that its neighbours have."""
    time: float
    meaning: float
    alike: tuple[tuple[str, str], ...] = ()
    """Missing terms, each with the related term that stands in for it."""


class TermScores(Protocol):
    """The pieces in order, with the score that each term gives them."""

    pieces: Sequence[MemoryPiece]

    def sum_terms(self) -> list[float]:
        """Return the sum over the terms, scaled so that the best piece has 1.

        Time and meaning are weighed against it.
        """

    def explain_match(self, at: int, score: float) -> RecallMatch:
        """Return the explanation of a chosen piece."""


def board_of(
    asked: RecallQuestion, pieces: Sequence[MemoryPiece], scope: IndexStatistics, terms: TermIndex | None = None
) -> TermScores:
    """Return the term scores, with numpy if it is installed. `terms` is the index of these pieces, if there is one."""
    numpy: Any = None
    with suppress(ImportError):
        import numpy
    if numpy is None:
        return PlainTermScores(asked, pieces, scope, terms)
    return NumpyTermScores(asked, pieces, scope, numpy, terms)


class _TermPositions:
    """The common part: the positions of each term."""

    def __init__(
        self,
        asked: RecallQuestion,
        pieces: Sequence[MemoryPiece],
        scope: IndexStatistics,
        terms: TermIndex | None = None,
    ) -> None:
        self.pieces = pieces
        self._asked = asked
        self._scope = scope
        self._terms = terms or TermIndex(pieces, asked.wanted)
        self._places = self._terms.places
        self._sources = {term: list(self._sources_of(term)) for term in asked.terms}

    def _sources_of(self, term: str) -> Iterator[tuple[str, float]]:
        """Yield a term and its stand-ins, each with its maximum weight."""
        scope = self._scope
        rare = scope.rarity(term)
        for other, share in [(term, 1.0), *self._stand_ins(term)]:
            # A stand-in is worth no more than the term it replaces, and a common word does not become rare by it.
            if other in self._places:
                yield other, share * min(rare, scope.rarity(other)) * (SATURATION + 1)

    def _stand_ins(self, term: str) -> list[tuple[str, float]]:
        if self._scope.is_common(term):
            return []
        there = (entry for entry in self._asked.alike.get(term, {}).items() if entry[0] in self._places)
        return list(islice(there, STAND_INS))

    def _make_match(self, at: int, score: float, own: Sequence[str], lent: Sequence[str]) -> RecallMatch:
        piece, asked = self.pieces[at], self._asked
        time = closeness(asked.spans, piece.day, piece.told) if asked.spans else 0.0
        itself = tuple(term for term in own if term in piece.counts)
        alike = tuple((term, self._find_stand_in(term, piece)) for term in own if term not in piece.counts)
        return RecallMatch(piece.memory, score, itself, tuple(lent), time, piece.likeness, alike)

    def _find_stand_in(self, term: str, piece: MemoryPiece) -> str:
        return max((worth, other) for other, worth in self._sources[term] if other in piece.counts)[1]


class PlainTermScores(_TermPositions):
    """Term scores without numpy."""

    def __init__(
        self,
        asked: RecallQuestion,
        pieces: Sequence[MemoryPiece],
        scope: IndexStatistics,
        terms: TermIndex | None = None,
    ) -> None:
        super().__init__(asked, pieces, scope, terms)
        self._reached: dict[int, list[tuple[int, float]]] = {}
        self._own = {term: self._score_own(term) for term in asked.terms}
        self._best = {term: self._score_with_neighbours(term) for term in asked.terms}

    def sum_terms(self) -> list[float]:
        got = [0.0] * len(self.pieces)
        for best in self._best.values():
            for at, value in best.items():
                got[at] += value * (1 - ASKING_LOSES * self.pieces[at].asks)
        most = max(got, default=0.0) or 1.0
        return [value / most for value in got]

    def explain_match(self, at: int, score: float) -> RecallMatch:
        own = [term for term, has in self._own.items() if at in has]
        lent = [term for term, has in self._best.items() if at in has and at not in self._own[term]]
        return self._make_match(at, score, own, lent)

    def _score_own(self, term: str) -> dict[int, float]:
        """Return the score of each piece from a term itself, or from its stand-ins."""
        own: dict[int, float] = {}
        for other, worth in self._sources[term]:
            for at, times in self._places[other].items():
                value = worth * times / (times + length_normalization(self.pieces[at].length, self._scope.mean))
                if value > own.get(at, 0.0):
                    own[at] = value
        return own

    def _score_with_neighbours(self, term: str) -> dict[int, float]:
        """Return the better of each piece's own score and what its neighbours lend."""
        own = self._own[term]
        if self._scope.is_common(term):
            return {at: COMMON_WEIGHT * value for at, value in own.items()}
        best = dict(own)
        for at, value in own.items():
            for other, share in self._reach(at):
                lent = value * share
                if lent > best.get(other, 0.0):
                    best[other] = lent
        return best

    def _reach(self, at: int) -> list[tuple[int, float]]:
        """Return the neighbours that a piece lends to, and how much. Cached for all terms."""
        reached = self._reached.get(at)
        if reached is None:
            reached = self._reached[at] = list(_reach(self.pieces, at))
        return reached


class NumpyTermScores(_TermPositions):
    """Term scores with numpy: a row for each term, a column for each piece."""

    def __init__(
        self,
        asked: RecallQuestion,
        pieces: Sequence[MemoryPiece],
        scope: IndexStatistics,
        numpy: Any,
        terms: TermIndex | None = None,
    ) -> None:
        super().__init__(asked, pieces, scope, terms)
        self._numpy = numpy
        self._asks = numpy.array([piece.asks for piece in pieces])
        self._length = numpy.array([piece.length for piece in pieces], dtype=int)
        self._own = self._score_own()
        self._best = self._score_with_neighbours()

    def sum_terms(self) -> list[float]:
        numpy = self._numpy
        got = numpy.zeros(len(self.pieces))
        for row in self._best * (1 - ASKING_LOSES * self._asks):
            got += row
        most = got.max(initial=0.0) or 1.0
        scores: list[float] = (got / most).tolist()
        return scores

    def explain_match(self, at: int, score: float) -> RecallMatch:
        terms = self._asked.terms
        own = [term for row, term in enumerate(terms) if self._own[row, at]]
        lent = [term for row, term in enumerate(terms) if self._best[row, at] and not self._own[row, at]]
        return self._make_match(at, score, own, lent)

    def _score_own(self) -> Any:
        numpy = self._numpy
        own = numpy.zeros((len(self._asked.terms), len(self.pieces)))
        found = [
            (row, worth, *self._terms.arrays(other, numpy))
            for row, term in enumerate(self._asked.terms)
            for other, worth in self._sources[term]
        ]
        if found:
            rows, worths, there, times = zip(*found, strict=True)
            many = [len(places) for places in there]
            places, often = numpy.concatenate(there), numpy.concatenate(times)
            size = length_normalization(self._length, self._scope.mean)
            value = numpy.repeat(worths, many) * often / (often + size[places])
            numpy.maximum.at(own, (numpy.repeat(rows, many), places), value)
        return own

    def _score_with_neighbours(self) -> Any:
        numpy, own = self._numpy, self._own
        best = own.copy()
        thread = numpy.array([piece.thread for piece in self.pieces], dtype=int)
        place = numpy.array([piece.place for piece in self.pieces], dtype=int)
        short = self._length <= LENDS_TERMS
        for step, share in enumerate(AFTER, 1):
            joined = short[:-step] & short[step:] & (thread[:-step] == thread[step:])
            joined &= place[step:] - place[:-step] == step
            shares = share + ASKING_LENDS * self._asks[:-step] * (step == 1)
            _lend(numpy, own[:, :-step], shares * joined, best[:, step:])
            if step <= len(BEFORE):
                _lend(numpy, own[:, step:], BEFORE[step - 1] * joined, best[:, :-step])
        common = [self._scope.is_common(term) for term in self._asked.terms]
        best[common] = COMMON_WEIGHT * own[common]
        return best


def _lend(numpy: Any, has: Any, shares: Any, best: Any) -> None:
    numpy.maximum(best, has * shares, out=best)


def _reach(pieces: Sequence[MemoryPiece], at: int) -> Iterator[tuple[int, float]]:
    here = pieces[at]
    if here.length > LENDS_TERMS:
        return
    for step, share in enumerate(AFTER, 1):
        if at + step < len(pieces) and _are_neighbours(here, pieces[at + step], step):
            yield at + step, share + ASKING_LENDS * here.asks * (step == 1)
    for step, share in enumerate(BEFORE, 1):
        if at >= step and _are_neighbours(here, pieces[at - step], -step):
            yield at - step, share


def _are_neighbours(here: MemoryPiece, there: MemoryPiece, step: int) -> bool:
    return there.length <= LENDS_TERMS and here.thread == there.thread and there.place - here.place == step
