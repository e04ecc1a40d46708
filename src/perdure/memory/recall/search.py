"""Recall: selects candidates (`candidates.py`), ranks them (`ranking.py`) and explains the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.journal.memory_writes import SaveMemory
from perdure.kernel.protocol import Protocol, Read
from perdure.memory.lifecycle.reembed import reader_in
from perdure.memory.read import filter_ids, filter_of, find_neighbours, list_memories
from perdure.memory.recall import ranking
from perdure.memory.recall.candidates import IndexSearch, RecallCandidates
from perdure.memory.recall.confidence import confidence, middle_of
from perdure.memory.recall.embedders import table
from perdure.memory.recall.lexical import RecallMatch, RecallQuestion
from perdure.memory.recall.pending import BufferedMemories, CachingEmbedder
from perdure.memory.recall.terms import last_forms, stem, words
from perdure.memory.results import Memory, MemoryQuery, Recalled, RecallReason
from perdure.memory.visible import list_uncommitted, resolve_ends
from perdure.values.clock import moment

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine


_SPARE, _FEW = 20, 4
"""How many extra memories are ranked, because some are filtered out later, and how many of them are read at first."""


def recall(engine: Engine, query: MemoryQuery) -> Protocol[list[Recalled]]:
    """Return the memories that best answer a question, best first, including uncommitted ones of the enclosing body."""
    found: list[Recalled] = yield Read(_recall, (engine, query, list_uncommitted(engine)))
    return found


def _recall(engine: Engine, query: MemoryQuery, keeps: Sequence[SaveMemory]) -> list[Recalled]:
    if not engine.is_known():
        return []
    own = BufferedMemories(engine, resolve_ends(engine, keeps), query)
    if not query.text.strip():
        stored = list_memories(engine, query, query.k + len(own.over))
        newest = [*reversed(own.memories.values()), *(memory for memory in stored if memory.id not in own.over)]
        return [_result(engine, query, memory, own) for memory in newest[: query.k]]
    asked = _map_stems(query.text)
    return [
        _result(engine, query, memory, own, ranked, _explain_match(ranked.found, asked, memory.text))
        for memory, ranked in _rank_memories(engine, query, own)
    ]


class RankedMemory(msgspec.Struct, frozen=True):
    """Why a memory was chosen, and with what confidence."""

    found: RecallMatch
    confidence: float


ChosenMemory = tuple[str, RecallMatch]
"""The id of a memory, and how it matches."""


def _rank_memories(engine: Engine, query: MemoryQuery, own: BufferedMemories) -> list[tuple[Memory, RankedMemory]]:
    reader = reader_in(engine)
    embedder = CachingEmbedder(reader.embedder) if reader.embedder is not None else None
    known = table() if reader.stand_ins else None
    today = moment(engine.store.clock.wall_ms()).date()
    asked = ranking.question(query.text, today, known.find_similar_terms if known else None)
    filters = (query.about, *filter_of(engine, query))
    looking = IndexSearch(engine, asked, filters, narrow=_narrow(query))
    found = own.merge_into(looking.find_candidates(embedder), asked, embedder)
    wanted = query.k if found.sure else query.k + _SPARE
    likely = _choose_memories(found, asked, wanted, reader.weight)
    there = _take_existing(engine, likely, filters, query.k, own)
    if not found.sure and len(there) < query.k and len(likely) == wanted:
        found = own.merge_into(looking.find_candidates(embedder, sure=True), asked, embedder)
        there = _take_existing(engine, _choose_memories(found, asked, query.k, reader.weight), filters, query.k, own)
    middle = middle_of(found.pieces)
    return [(memory, RankedMemory(why, confidence(why, asked, found.scope, middle))) for memory, why in there]


def _take_existing(
    engine: Engine, likely: Sequence[ChosenMemory], filters: tuple[Any, ...], k: int, own: BufferedMemories
) -> list[tuple[Memory, RecallMatch]]:
    """Return the first k that pass the filter. Some may have been forgotten since they were found."""
    there: list[tuple[Memory, RecallMatch]] = []
    for part in (likely[: k + _FEW], likely[k + _FEW :]):
        if len(there) < k and part:
            stored = filter_ids(engine, [which for which, _ in part if which not in own.memories], filters)
            known = {**{memory.id: memory for memory in stored}, **own.memories}
            there += [(known[which], why) for which, why in part if which in known]
    return there[:k]


def _choose_memories(found: RecallCandidates, asked: RecallQuestion, k: int, weight: float) -> list[ChosenMemory]:
    hits = ranking.rank(asked, found.pieces, found.scope, k, meaning=weight, terms=found.terms)
    return [(found.memories[hit.memory], hit) for hit in hits]


def _narrow(query: MemoryQuery) -> bool:
    """Return whether the filter asks for more than that a memory is current."""
    plain = MemoryQuery(text=query.text, k=query.k, around=query.around)
    return plain != query


def _read_neighbours(engine: Engine, query: MemoryQuery, memory: Memory, own: BufferedMemories) -> list[Memory]:
    """Return the neighbours of a result that the caller may see: same user, same minimum trust."""
    near = find_neighbours(engine, memory, query.around)
    shown = MemoryQuery(
        user=query.user,
        min_trust=query.min_trust,
        as_of=query.as_of,
        known_at=query.known_at,
        all=query.all,
        around=query.around,
    )
    stored = filter_ids(engine, [one.id for one in near if one.id not in own.over], ("", *filter_of(engine, shown)))
    return [*stored, *own.find_neighbours(memory, shown)]


def _map_stems(said: str) -> dict[str, str]:
    return {stem(word): word for word in words(said)}


def _explain_match(hit: RecallMatch, asked: Mapping[str, str], text: str) -> RecallReason:
    """Explain a match in the original words, not in stems."""
    has = last_forms(text, {other for _, other in hit.alike}) if hit.alike else {}
    alike = tuple(f"{asked.get(term, term)} ~ {has.get(other, other)}" for term, other in hit.alike)
    own, lent = (tuple(asked.get(term, term) for term in terms) for terms in (hit.own, hit.lent))
    return RecallReason(own, lent, round(hit.time, 4), round(hit.meaning, 4), alike=alike)


def _result(
    engine: Engine,
    query: MemoryQuery,
    memory: Memory,
    own: BufferedMemories,
    ranked: RankedMemory | None = None,
    why: RecallReason | None = None,
) -> Recalled:
    stream, seq = memory.entry
    whence = f"run {memory.run}, entry {seq}" if memory.run else f"entry {seq} of stream {stream}"
    if memory.id in own.memories:
        whence = f"run {memory.run}, not landed yet"
    near = _read_neighbours(engine, query, memory, own) if query.around else ()
    fields = {name: getattr(memory, name) for name in memory.__struct_fields__}
    return Recalled(
        **fields,
        score=ranked.found.score if ranked is not None else 0.0,
        confidence=round(ranked.confidence, 4) if ranked is not None else 0.0,
        why=msgspec.structs.replace(why or RecallReason(), event=whence),
        around=tuple(near),
    )
