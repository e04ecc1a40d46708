"""Which pieces of memory a question is compared with: all that pass the filter when these are few, else likely ones.

Likely are those with its rare words, or with words that stand in for these; those that mean the nearest; those of the
days that it names; and what was said around any of them, which is where answers are. Ranking (`fusion.py`) decides.
Whatever does not pass the filter is not there, neither as a result nor as a neighbour: the answer is that of an agent
that has nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from ..limits import RECALL_ALL, RECALL_EXACT, RECALL_WIDE
from . import fusion
from .boards import AFTER, BEFORE, Question, Scope
from .drawing import Draw, InStore, Listed, Loose, Spot, Verified, Wanted
from .embedders import Embedder, read
from .known import known, outgrown
from .nearest import ByStore, Compared, compared, in_store_of
from .pieces import arranged, nearer

if TYPE_CHECKING:
    from ..engine import Engine
    from .boards import Piece

_HITS, _HITS_FILTERED = 1000, 3000
"""Pieces that are looked at because of their words: the rarest words first, until there are so many."""

_RARE, _RARE_STAND_IN = 0.05, 0.02
"""Words that more have find nobody; ranking counts them all the same."""

_STAND_INS = 3


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
        few, many = self._few(embedder)
        if not many:
            return self._all(few, embedder)
        engine, scope = self._engine, known(self._engine)
        engine.store.keep_warm()
        sure = sure or self._narrow
        wanted = self._wanted(scope, embedder, _HITS_FILTERED if sure else _HITS)
        draw = self._draw(wanted, few, sure=sure)
        spots = draw.places(engine.store)
        if outgrown(engine, draw.newest):
            return self.found(embedder, sure=sure)
        if isinstance(draw, InStore) and (draw.all or not spots):
            return self._all(draw.all, embedder)
        return self._around(scope, wanted, spots, sure=sure)

    def _few(self, embedder: Embedder | None) -> tuple[list[int], bool]:
        """Those that pass, if they can be listed, and whether they are too many for all to be compared."""
        if self._narrow and embedder is not None and in_store_of(self._engine):
            return [], True  # the store says so along with everything else
        if not self._narrow and known(self._engine).total > RECALL_ALL:
            return [], True
        ids = self._listed(RECALL_EXACT if self._narrow else RECALL_ALL)
        return ids, len(ids) > RECALL_ALL

    def _draw(self, wanted: Wanted, few: Sequence[int], *, sure: bool) -> Draw:
        if not sure:
            return Loose(wanted)
        if self._narrow and isinstance(wanted.beside, ByStore):
            return InStore(wanted, wanted.beside, RECALL_ALL, RECALL_WIDE)
        return Listed(wanted, few) if self._narrow and len(few) <= RECALL_EXACT else Verified(wanted)

    def _listed(self, most: int) -> list[int]:
        """The pieces that pass the filter; one more than `most` says that there are more."""
        args = (self._engine.stream, *self._filters, most + 1)
        return [it for (it,) in self._engine.store.read("matching_pieces", args)]

    def _wanted(self, scope: Scope, embedder: Embedder | None, hits: int) -> Wanted:
        words = list(self._words(scope, hits))
        owner, beside = self._engine.stream, self._beside(embedder, scope)
        return Wanted(owner, _json(words) if words else "", self._asked.spans, beside, self._filters)

    def _beside(self, embedder: Embedder | None, scope: Scope) -> Compared | None:
        if embedder is None:
            return None
        [vector] = read(embedder, [fusion.meant(self._asked, scope)])
        return compared(self._engine, embedder.id, vector)

    def _all(self, ids: Sequence[int], embedder: Embedder | None) -> Candidates:
        rows = self._engine.store.read("pieces_among", (_json(ids),))
        made = arranged(rows, None)
        scope = Scope.of(made.pieces)
        beside = self._beside(embedder, scope)
        if beside is not None:
            made = nearer(made, beside.of(made.ids))
        return Candidates(made.pieces, made.memories, scope)

    def _around(self, scope: Scope, wanted: Wanted, spots: Mapping[int, Spot], *, sure: bool) -> Candidates:
        """What was drawn, and what was said around it: what passes the filter, or else everything."""
        store, owner, ranges = self._engine.store, self._engine.stream, _json(list(_ranges(spots.values())))
        beside, name = wanted.beside, "pieces_near" if sure else "pieces_around"
        where = (owner, ranges, *(self._filters if sure else ()))
        if isinstance(beside, ByStore):
            rows = store.read(f"{name}_compared", (*where, *beside.by))
            near = {row[0]: row[-1] for row in rows if row[-1] is not None}
        else:
            rows = store.read(name, where)
            near = beside.of([row[0] for row in rows]) if beside is not None else {}
        made = arranged(rows, self._asked.wanted, near)
        return Candidates(made.pieces, made.memories, scope, sure)

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
            having_of, rare_enough = scope.having, _RARE_STAND_IN * most
            near = (it for it in asked.alike.get(term, {}).items() if 0 < having_of.get(it[0], 0) <= rare_enough)
            for other, share in islice(near, _STAND_INS):
                yield share * min(scope.rarity(term), scope.rarity(other)), other


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
