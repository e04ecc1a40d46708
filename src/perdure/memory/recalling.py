"""Looking for memories: what may be the answer (`candidates.py`), in which order (`fusion.py`), and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ..clock import moment
from ..run.requests import Protocol, Read
from . import fusion
from .boards import Found, Question
from .candidates import Candidates, Looking
from .embedders import table
from .found import Memory, Query, Recalled, Why
from .reading import by_id, filter_of, listed, together
from .reembedding import reader_in
from .words import stem, words

if TYPE_CHECKING:
    from ..engine import Engine


_SPARE = 20
"""So many more are chosen before it is looked whether they count."""


def recall(engine: Engine, query: Query) -> Protocol[list[Recalled]]:
    """The memories that answer a question best, the best first."""
    found: list[Recalled] = yield Read(_recall, (engine, query))
    return found


def _recall(engine: Engine, query: Query) -> list[Recalled]:
    if not engine.is_known():
        return []
    if not query.text.strip():
        return [_result(engine, query, it, 0.0, Why()) for it in listed(engine, query, query.k)]
    ranked = _ranked(engine, query)
    there = by_id(engine, [which for which, _ in ranked])
    # One may have been forgotten since it was found.
    return [
        _result(engine, query, there[which], it.score, _why(it, query.text, there[which].text))
        for which, it in ranked
        if which in there
    ]


def _ranked(engine: Engine, query: Query) -> list[tuple[str, Found]]:
    reader = reader_in(engine)
    known = table() if reader.stand_ins else None
    today = moment(engine.store.clock.wall_ms()).date()
    asked = fusion.question(query.text, today, known.alike if known else None)
    filters = (query.about, *filter_of(engine, query))
    looking = Looking(engine, asked, filters, narrow=_narrow(query))
    found = looking.found(reader.embedder)
    if not found.sure:
        likely = _chosen(found, asked, query.k + _SPARE, reader.weight)
        ids = msgspec.json.encode([which for which, _ in likely]).decode()
        passing = {which for (which,) in engine.store.read("memories_passing", (engine.stream, ids, *filters))}
        sure = [it for it in likely if it[0] in passing][: query.k]
        if len(sure) == query.k or len(likely) < query.k + _SPARE:
            return sure
        found = looking.found(reader.embedder, sure=True)
    return _chosen(found, asked, query.k, reader.weight)


def _chosen(found: Candidates, asked: Question, k: int, weight: float) -> list[tuple[str, Found]]:
    ranked = fusion.rank(asked, found.pieces, found.scope, k, meaning=weight)
    return [(found.memories[it.memory], it) for it in ranked]


def _narrow(query: Query) -> bool:
    """Whether more is asked for than that a memory counts now."""
    plain = Query(text=query.text, k=query.k, around=query.around)
    return plain != query


def _around(engine: Engine, query: Query, it: Memory) -> list[Memory]:
    """What was said around it, of what counts and may be shown to who asks: of the same user, and trusted as far."""
    near = together(engine, it, query.around)
    shown = Query(user=query.user, min_trust=query.min_trust, as_of=query.as_of, known_at=query.known_at, all=query.all)
    ids = msgspec.json.encode([one.id for one in near]).decode()
    args = (engine.stream, ids, "", *filter_of(engine, shown))
    passing = {which for (which,) in engine.store.read("memories_passing", args)}
    return [one for one in near if one.id in passing]


def _why(it: Found, question: str, text: str) -> Why:
    """In the words of the question and of the memory, not in what is made of them."""
    asked, has = ({stem(word): word for word in words(said)} for said in (question, text))
    alike = tuple(f"{asked.get(term, term)} ~ {has.get(other, other)}" for term, other in it.alike)
    own, lent = (tuple(asked.get(term, term) for term in terms) for terms in (it.own, it.lent))
    return Why(own, lent, round(it.time, 4), round(it.meaning, 4), alike=alike)


def _result(engine: Engine, query: Query, it: Memory, score: float, why: Why) -> Recalled:
    stream, seq = it.entry
    whence = f"run {it.run}, entry {seq}" if it.run else f"entry {seq} of stream {stream}"
    near = _around(engine, query, it) if query.around else ()
    fields = {name: getattr(it, name) for name in it.__struct_fields__}
    return Recalled(**fields, score=score, why=msgspec.structs.replace(why, event=whence), around=tuple(near))
