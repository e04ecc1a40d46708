"""Which pieces of memory a question is compared with: all that pass the filter when these are few, else likely ones.

Likely are those with its rare words, or with words that stand in for these; those that mean the nearest; those of the
days that it names; and what was said around any of them, which is where answers are. Ranking (`fusion.py`) decides.
Whatever does not pass the filter is not there, neither as a result nor as a neighbour: the answer is that of an agent
that has nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ..limits import RECALL_ALL, RECALL_EXACT, RECALL_MEANING, RECALL_WORDS
from ..store.base import Row
from . import fusion
from .boards import AFTER, BEFORE, Question, Scope
from .embedders import Embedder, read
from .known import known
from .nearest import Compared, compared
from .pieces import Stored, arranged

if TYPE_CHECKING:
    from ..engine import Engine
    from .boards import Piece

_HITS, _HITS_FILTERED = 2000, 6000
"""Pieces that are looked at because of their words: the rarest words first, until there are so many."""

_RARE, _RARE_STAND_IN = 0.05, 0.02
"""Words that more have find nobody; ranking counts them all the same."""

_STAND_INS = 3
_LATE_DAYS = 10
_OF_DAYS = 60
_WIDER = 4
_TRIES = 12

Place = tuple[int, str, int]
"""A piece, its thread and its place there."""


class Candidates(msgspec.Struct, frozen=True):
    """What is ranked."""

    pieces: Sequence[Piece]
    memories: Sequence[str]
    """Their ids, by the numbers that the pieces have."""
    scope: Scope
    sure: bool = True
    """Whether each of them passes the filter: otherwise those that are chosen have to be looked at."""


class Looking:
    """One question, on its way through the index."""

    def __init__(self, engine: Engine, asked: Question, filters: tuple[Any, ...], *, narrow: bool) -> None:
        self._engine = engine
        self._asked = asked
        self._filters = filters
        self._narrow = narrow
        """Whether more is asked for than that a memory counts now."""

    def found(self, embedder: Embedder | None, *, sure: bool = False) -> Candidates:
        """What may be the answer. Most memories count, so that it is enough to look at the few that are chosen."""
        owner, store = self._engine.stream, self._engine.store
        scope = None if self._narrow else known(self._engine)
        ids: list[int] | None = None
        if scope is None or scope.total <= RECALL_ALL:
            ids = [it for (it,) in store.read("matching_pieces", (owner, *self._filters, RECALL_EXACT + 1))]
            if len(ids) <= RECALL_ALL:
                return self._all(ids, embedder)
            if len(ids) > RECALL_EXACT or not self._narrow:
                ids = None
        scope = scope or known(self._engine)
        store.keep_warm()
        beside = self._beside(embedder, scope)
        return self._likely(scope, ids, beside, sure=sure or self._narrow)

    def _beside(self, embedder: Embedder | None, scope: Scope) -> Compared | None:
        if embedder is None:
            return None
        [vector] = read(embedder, [fusion.meant(self._asked, scope)])
        return compared(self._engine, embedder.id, vector)

    def _all(self, ids: Sequence[int], embedder: Embedder | None) -> Candidates:
        rows = self._engine.store.read("pieces_among", (_json(ids),))
        made, stored = arranged(rows, None)
        scope = Scope.of(made)
        beside = self._beside(embedder, scope)
        near = beside.of([it.id for it in stored]) if beside else {}
        return _candidates(made, stored, near, scope)

    def _likely(self, scope: Scope, among: Sequence[int] | None, beside: Compared | None, *, sure: bool) -> Candidates:
        wanted, factor = self._asked.wanted, 1
        while True:
            there = {it: (thread, place) for it, thread, place in self._places(scope, among, beside, factor)}
            rows = self._around(there.values(), among, sure=sure)
            passed = sum(1 for row in rows if row[0] in there)
            # A filter that leaves many may still leave few of the best: then it takes more of them.
            if among is not None or 2 * passed >= len(there) or passed >= RECALL_WORDS or factor >= _WIDER**4:
                break
            factor *= _WIDER
        made, stored = arranged(rows, wanted)
        near = beside.of([it.id for it in stored]) if beside else {}
        return msgspec.structs.replace(_candidates(made, stored, near, scope), sure=sure)

    def _around(self, places: Iterable[tuple[str, int]], among: Sequence[int] | None, *, sure: bool) -> Sequence[Row]:
        """What was said there: what passes the filter, or else everything."""
        store, args = self._engine.store, (self._engine.stream, _json(list(_ranges(places))))
        if sure and among is None:
            return store.read("pieces_near", (*args, *self._filters))
        rows = store.read("pieces_around", args)
        allowed = set(among or ())
        return rows if among is None else [row for row in rows if row[0] in allowed]

    def _places(
        self, scope: Scope, among: Sequence[int] | None, beside: Compared | None, factor: int
    ) -> Iterator[Place]:
        yield from self._by_words(scope, among, factor)
        if beside is not None:
            yield from self._by_meaning(beside, among, factor)
        yield from self._by_time(among, factor)

    def _by_words(self, scope: Scope, among: Sequence[int] | None, factor: int) -> list[Place]:
        words = list(self._words(scope, _HITS if among is None else _HITS_FILTERED))
        if not words:
            return []
        count = _HITS_FILTERED if among is not None else RECALL_WORDS * factor
        ids = [it for (it,) in self._engine.store.read("pieces_with_words", (_json(words), count))]
        if among is not None:
            allowed = set(among)
            ids = [it for it in ids if it in allowed][:RECALL_WORDS]
        return _allowed(self._engine.store.read("places_of_pieces", (_json(ids),)), None, count)

    def _words(self, scope: Scope, most: int) -> Iterator[tuple[str, int]]:
        """The rarest words, and what stands in for them, each with what it is worth."""
        owner, hits = self._engine.stream, 0
        for worth, term in sorted(self._worths(scope), reverse=True):
            having = scope.having.get(term, 1)
            if hits and hits + having > most:
                continue
            hits += having
            yield f"k{owner}x{term}", round(1000 * worth)

    def _worths(self, scope: Scope) -> Iterator[tuple[float, str]]:
        asked, most = self._asked, max(scope.total, 1)
        # One that is not known may be the newest of all.
        having = {term: scope.having.get(term, 1) for term in asked.terms}
        there = list(having)
        rare = [term for term in there if having[term] <= max(_RARE * most, 1)]
        for term in rare or sorted(there, key=having.__getitem__)[:1]:
            yield scope.rarity(term), term
        for term in there:
            if scope.common(term):
                continue
            near = [it for it in asked.alike.get(term, ()) if 0 < scope.having.get(it[0], 0) <= _RARE_STAND_IN * most]
            for other, share in near[:_STAND_INS]:
                yield share * min(scope.rarity(term), scope.rarity(other)), other

    def _by_meaning(self, beside: Compared, among: Sequence[int] | None, factor: int) -> list[Place]:
        store, count, rows = self._engine.store, RECALL_MEANING * factor, list[Row]()
        for _ in range(_TRIES):
            ids = beside.best(count, among)
            rows = store.read("places_of_pieces", (_json(ids),))
            beside.gone(set(ids) - {row[0] for row in rows})
            if 2 * len(rows) >= len(ids):
                break
            count *= 2  # most of them were forgotten by others: this process hears of it now
        return _allowed(rows, None, count)

    def _by_time(self, among: Sequence[int] | None, factor: int) -> Iterator[Place]:
        count = _HITS_FILTERED if among is not None else _OF_DAYS * factor
        for span in self._asked.spans:
            days = (span.first.toordinal(), span.last.toordinal() + _LATE_DAYS)
            rows = self._engine.store.read("pieces_of_days", (self._engine.stream, *days, count))
            yield from _allowed(rows, among, _OF_DAYS)


def _allowed(rows: Sequence[Row], among: Sequence[int] | None, count: int) -> list[Place]:
    """The first of those that a filter leaves; without one, all."""
    if among is None:
        return [(it, thread, place) for it, thread, place in rows]
    allowed = set(among)
    return [(it, thread, place) for it, thread, place in rows if it in allowed][:count]


def _candidates(made: Sequence[Piece], stored: Sequence[Stored], near: dict[int, float], scope: Scope) -> Candidates:
    if near:
        # What the model has not read yet is as near as others are: it is found by its words.
        middle = sum(near.values()) / len(near)
        made = [
            msgspec.structs.replace(piece, likeness=near.get(it.id, middle))
            for piece, it in zip(made, stored, strict=True)
        ]
    return Candidates(made, list(dict.fromkeys(it.memory for it in stored)), scope)


def _ranges(places: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int, int]]:
    """What was said around some places, each part of a thread once."""
    thread, first, last = "", 0, -1
    for where, place in sorted(places):
        begin, end = place - len(BEFORE), place + len(AFTER)
        if where == thread and begin <= last + 1:
            last = end
            continue
        if last >= first:
            yield thread, first, last
        thread, first, last = where, begin, end
    if last >= first:
        yield thread, first, last


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
