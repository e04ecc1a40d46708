"""Looking for memories: what may be the answer (`candidates.py`), in which order (`fusion.py`), and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ..clock import moment
from ..journal.memories import Keep
from ..run.requests import Protocol, Read
from . import fusion
from .boards import Found, Question
from .candidates import Candidates, Looking
from .confidence import confidence, middle_of
from .embedders import table
from .found import Memory, Query, Recalled, Why
from .reading import filter_of, listed, passing, together
from .reembedding import reader_in
from .seeing import asked_for, chained
from .terms import stem, words
from .unlanded import Once, Unlanded

if TYPE_CHECKING:
    from ..engine import Engine


_SPARE, _FEW = 20, 4
"""So many more are chosen before it is looked whether they count, and so many more looked at at once: most do."""


def recall(engine: Engine, query: Query) -> Protocol[list[Recalled]]:
    """The memories that answer a question best, the best first; in a body also those that it has asked for."""
    found: list[Recalled] = yield Read(_recall, (engine, query, asked_for(engine)))
    return found


def _recall(engine: Engine, query: Query, keeps: Sequence[Keep]) -> list[Recalled]:
    if not engine.is_known():
        return []
    own = Unlanded(engine, chained(engine, keeps), query)
    if not query.text.strip():
        stored = listed(engine, query, query.k + len(own.over))
        newest = [*reversed(own.memories.values()), *(it for it in stored if it.id not in own.over)]
        return [_result(engine, query, it, own) for it in newest[: query.k]]
    asked = _by_stem(query.text)
    return [
        _result(engine, query, it, own, ranked, _why(ranked.found, asked, it.text))
        for it, ranked in _ranked(engine, query, own)
    ]


class Ranked(msgspec.Struct, frozen=True):
    """Why a memory was chosen, and how sure that is."""

    found: Found
    confidence: float


Chosen = tuple[str, Found]
"""The id of a memory, and why it was chosen."""


def _ranked(engine: Engine, query: Query, own: Unlanded) -> list[tuple[Memory, Ranked]]:
    reader = reader_in(engine)
    embedder = Once(reader.embedder) if reader.embedder is not None else None
    known = table() if reader.stand_ins else None
    today = moment(engine.store.clock.wall_ms()).date()
    asked = fusion.question(query.text, today, known.alike if known else None)
    filters = (query.about, *filter_of(engine, query))
    looking = Looking(engine, asked, filters, narrow=_narrow(query))
    found = own.among(looking.found(embedder), asked, embedder)
    wanted = query.k if found.sure else query.k + _SPARE
    likely = _chosen(found, asked, wanted, reader.weight)
    there = _there(engine, likely, filters, query.k, own)
    if not found.sure and len(there) < query.k and len(likely) == wanted:
        found = own.among(looking.found(embedder, sure=True), asked, embedder)
        there = _there(engine, _chosen(found, asked, query.k, reader.weight), filters, query.k, own)
    middle = middle_of(found.pieces)
    return [(it, Ranked(why, confidence(why, asked, found.scope, middle))) for it, why in there]


def _there(
    engine: Engine, likely: Sequence[Chosen], filters: tuple[Any, ...], k: int, own: Unlanded
) -> list[tuple[Memory, Found]]:
    """The first of them. Some may not count, or have been forgotten since they were found."""
    there: list[tuple[Memory, Found]] = []
    for part in (likely[: k + _FEW], likely[k + _FEW :]):
        if len(there) < k and part:
            stored = passing(engine, [which for which, _ in part if which not in own.memories], filters)
            known = {**{it.id: it for it in stored}, **own.memories}
            there += [(known[which], why) for which, why in part if which in known]
    return there[:k]


def _chosen(found: Candidates, asked: Question, k: int, weight: float) -> list[Chosen]:
    return [(found.memories[it.memory], it) for it in fusion.rank(asked, found.pieces, found.scope, k, meaning=weight)]


def _narrow(query: Query) -> bool:
    """Whether more is asked for than that a memory counts now."""
    plain = Query(text=query.text, k=query.k, around=query.around)
    return plain != query


def _around(engine: Engine, query: Query, it: Memory, own: Unlanded) -> list[Memory]:
    """What was said around it, of what counts and may be shown to who asks: of the same user, and trusted as far."""
    near = together(engine, it, query.around)
    shown = Query(
        user=query.user,
        min_trust=query.min_trust,
        as_of=query.as_of,
        known_at=query.known_at,
        all=query.all,
        around=query.around,
    )
    stored = passing(engine, [one.id for one in near if one.id not in own.over], ("", *filter_of(engine, shown)))
    return [*stored, *own.together(it, shown)]


def _by_stem(said: str) -> dict[str, str]:
    return {stem(word): word for word in words(said)}


def _why(it: Found, asked: Mapping[str, str], text: str) -> Why:
    """In the words of the question and of the memory, not in what is made of them."""
    has = _by_stem(text) if it.alike else {}
    alike = tuple(f"{asked.get(term, term)} ~ {has.get(other, other)}" for term, other in it.alike)
    own, lent = (tuple(asked.get(term, term) for term in terms) for terms in (it.own, it.lent))
    return Why(own, lent, round(it.time, 4), round(it.meaning, 4), alike=alike)


def _result(
    engine: Engine, query: Query, it: Memory, own: Unlanded, ranked: Ranked | None = None, why: Why | None = None
) -> Recalled:
    stream, seq = it.entry
    whence = f"run {it.run}, entry {seq}" if it.run else f"entry {seq} of stream {stream}"
    if it.id in own.memories:
        whence = f"run {it.run}, not landed yet"
    near = _around(engine, query, it, own) if query.around else ()
    fields = {name: getattr(it, name) for name in it.__struct_fields__}
    return Recalled(
        **fields,
        score=ranked.found.score if ranked is not None else 0.0,
        confidence=round(ranked.confidence, 4) if ranked is not None else 0.0,
        why=msgspec.structs.replace(why or Why(), event=whence),
        around=tuple(near),
    )
