"""Selects the pieces of memory to rank: all that pass the filter if they are few, else likely ones.

Likely pieces have the question's rare words or related ones, have the nearest meaning, or are from the days it names.
Their neighbours in the conversation are added, because answers are there. `ranking.py` ranks them. Memories that do not
pass the filter do not count at all, not even as neighbours: the result is as if the agent had no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.memory.pieces import add_similarities, arrange_rows, parsed
from perdure.memory.recall import ranking
from perdure.memory.recall.candidate_sources import (
    CandidateQuery,
    CandidateSource,
    CheckedCandidates,
    ListedCandidates,
    PiecePosition,
    StoreCandidates,
    UnfilteredCandidates,
)
from perdure.memory.recall.embedders import Embedder, embed_texts
from perdure.memory.recall.lexical import AFTER, BEFORE, IndexStatistics, RecallQuestion, TermIndex
from perdure.memory.recall.nearest import StoreComparison, VectorComparison, compare, store_compares_vectors
from perdure.memory.recall.piece_cache import cache_of
from perdure.memory.recall.statistics import is_stale, read_statistics
from perdure.values.limits import RECALL_ALL, RECALL_EXACT, RECALL_WIDE

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine
    from perdure.memory.recall.lexical import MemoryPiece

_HITS, _HITS_FILTERED = 1000, 3000
"""How many pieces are selected by words, rarest words first."""

_RARE, _RARE_STAND_IN = 0.05, 0.02
"""Words that a larger share of memories have select nothing; ranking still counts them."""

_STAND_INS = 3


class RecallCandidates(msgspec.Struct, frozen=True):
    """The pieces to rank."""

    pieces: Sequence[MemoryPiece]
    memories: Sequence[str]
    """The ids of the memories, by their numbers in the pieces."""
    scope: IndexStatistics
    sure: bool = True
    """Whether all of them are known to pass the filter. Otherwise the chosen ones must be checked."""
    terms: TermIndex | None = None
    """The index of these pieces, which are in order then; otherwise ranking makes one."""


class IndexSearch:
    """Searches the index for one question."""

    def __init__(self, engine: Engine, asked: RecallQuestion, filters: tuple[Any, ...], *, narrow: bool) -> None:
        self._engine = engine
        self._asked = asked
        self._filters = filters
        self._narrow = narrow
        """Whether the filter asks for more than that a memory is current."""

    def find_candidates(self, embedder: Embedder | None, *, sure: bool = False) -> RecallCandidates:
        """Return the candidates. Most memories are current, so checking the few chosen ones is enough."""
        few, many = self._list_if_few(embedder)
        if not many:
            return self._read_all(few, embedder)
        engine, scope = self._engine, read_statistics(self._engine)
        engine.store.keep_warm()
        sure = sure or self._narrow
        wanted = self._make_query(scope, embedder, _HITS_FILTERED if sure else _HITS)
        draw = self._draw(wanted, few, sure=sure)
        spots = draw.places(engine.store)
        if is_stale(engine, draw.newest):
            return self.find_candidates(embedder, sure=sure)
        if isinstance(draw, StoreCandidates) and (draw.all or not spots):
            return self._read_all(draw.all, embedder)
        return self._read_neighbours(scope, wanted, spots, sure=sure)

    def _list_if_few(self, embedder: Embedder | None) -> tuple[list[int], bool]:
        """Return the pieces that pass the filter if they can be listed, and whether they are too many to compare."""
        if self._narrow and embedder is not None and store_compares_vectors(self._engine):
            return [], True  # the store answers this together with the rest
        if not self._narrow and read_statistics(self._engine).total > RECALL_ALL:
            return [], True
        ids = self._list_pieces(self._most if self._narrow else RECALL_ALL)
        return ids, len(ids) > RECALL_ALL

    @property
    def _most(self) -> int:
        """How many pieces that pass the filter are listed at most. Those of one user or subject have an index."""
        about, _, user, *_ = self._filters
        return RECALL_WIDE if about or user else RECALL_EXACT

    def _draw(self, wanted: CandidateQuery, few: Sequence[int], *, sure: bool) -> CandidateSource:
        if not sure:
            return UnfilteredCandidates(wanted)
        if self._narrow and isinstance(wanted.beside, StoreComparison):
            return StoreCandidates(wanted, wanted.beside, RECALL_ALL, RECALL_WIDE)
        return ListedCandidates(wanted, few) if self._narrow and len(few) <= self._most else CheckedCandidates(wanted)

    def _list_pieces(self, most: int) -> list[int]:
        """Return the pieces that pass the filter, at most `most` + 1 of them."""
        args = (self._engine.stream, *self._filters, most + 1)
        return [piece_id for (piece_id,) in self._engine.store.read("matching_chunks", args)]

    def _make_query(self, scope: IndexStatistics, embedder: Embedder | None, hits: int) -> CandidateQuery:
        words = list(self._words(scope, hits))
        owner, beside = self._engine.stream, self._compare_vectors(embedder, scope)
        return CandidateQuery(owner, _json(words) if words else "", self._asked.spans, beside, self._filters)

    def _compare_vectors(self, embedder: Embedder | None, scope: IndexStatistics) -> VectorComparison | None:
        if embedder is None:
            return None
        [vector] = embed_texts(embedder, [ranking.make_embedding_query(self._asked, scope)])
        return compare(self._engine, embedder.id, vector)

    def _read_all(self, ids: Sequence[int], embedder: Embedder | None) -> RecallCandidates:
        *filters, _, past = self._filters  # without the time of the question
        made = cache_of(self._engine).among(self._engine.store, (*filters, past), ids)
        beside = self._compare_vectors(embedder, made.scope)
        there = made.arranged
        pieces = there.pieces if beside is None else add_similarities(there, beside.similarities(there.ids))
        return RecallCandidates(pieces, there.memories, made.scope, terms=made.terms)

    def _read_neighbours(
        self, scope: IndexStatistics, wanted: CandidateQuery, spots: Mapping[int, PiecePosition], *, sure: bool
    ) -> RecallCandidates:
        """Return the drawn pieces and their neighbours: those that pass the filter, or all."""
        store, owner, ranges = self._engine.store, self._engine.stream, _json(list(_ranges(spots.values())))
        beside, name = wanted.beside, "chunks_in_ranges" if sure else "all_chunks_in_ranges"
        where = (owner, ranges, *(self._filters if sure else ()))
        if isinstance(beside, StoreComparison):
            rows = store.read(f"{name}_compared", (*where, *beside.by))
            near = {piece_id: distance for piece_id, *_, distance in rows if distance is not None}
        else:
            rows = store.read(name, where)
            near = beside.similarities([row[0] for row in rows]) if beside is not None else {}
        made = arrange_rows([parsed(row, self._asked.wanted) for row in rows], near)
        return RecallCandidates(made.pieces, made.memories, scope, sure)

    def _words(self, scope: IndexStatistics, most: int) -> Iterator[tuple[str, int]]:
        """Yield the rarest words and their stand-ins, each with its weight."""
        owner, hits = self._engine.stream, 0
        for worth, term in sorted(self._worths(scope), reverse=True):
            having = scope.having.get(term, 1)
            if hits and hits + having > most:
                continue
            hits += having
            yield f"k{owner}x{term}", round(1000 * worth)

    def _worths(self, scope: IndexStatistics) -> Iterator[tuple[float, str]]:
        asked, most = self._asked, max(scope.total, 1)
        # A term that is not in the statistics may come from the newest memory.
        having = {term: scope.having.get(term, 1) for term in asked.terms}
        there = list(having)
        rare = [term for term in there if having[term] <= max(_RARE * most, 1)]
        for term in rare or sorted(there, key=having.__getitem__)[:1]:
            yield scope.rarity(term), term
        for term in there:
            if scope.is_common(term):
                continue
            having_of, rare_enough = scope.having, _RARE_STAND_IN * most
            near = (
                entry for entry in asked.alike.get(term, {}).items() if 0 < having_of.get(entry[0], 0) <= rare_enough
            )
            for other, share in islice(near, _STAND_INS):
                yield share * min(scope.rarity(term), scope.rarity(other)), other


def _ranges(places: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int, int]]:
    """Yield the ranges around some places, each part of a thread once."""
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
