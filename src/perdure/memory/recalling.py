"""Looking for memories.

First version: all that pass the filter are ranked by their words, their neighbours and their time.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from ..run.requests import Protocol, Read
from . import fusion
from .found import EVER, Memory, Query, Recalled, Why
from .reading import listed, together

if TYPE_CHECKING:
    from ..engine import Engine


def recall(engine: Engine, query: Query) -> Protocol[list[Recalled]]:
    """The memories that answer a question best, the best first."""
    found: list[Recalled] = yield Read(_recall, (engine, query))
    return found


def _recall(engine: Engine, query: Query) -> list[Recalled]:
    there = listed(engine, query, EVER)
    if not query.text.strip():
        return [_result(engine, query, it, 0.0, Why()) for it in there[: query.k]]
    today = datetime.fromtimestamp(engine.store.clock.wall_ms() / 1000, UTC).date()
    asked = fusion.question(query.text, today)
    threads = {thread: number for number, thread in enumerate(sorted({it.thread for it in there}))}
    pieces = [
        piece
        for number, it in enumerate(there)
        for _, piece in fusion.pieces(
            it.text, memory=number, place=it.place, day=it.valid_from.date(), thread=threads[it.thread]
        )
    ]
    ranked = fusion.rank(asked, pieces, fusion.Scope.of(pieces), query.k) if pieces else []
    return [
        _result(engine, query, there[hit.memory], hit.score, Why(hit.own, hit.lent, hit.time, hit.meaning))
        for hit in ranked
    ]


def _result(engine: Engine, query: Query, it: Memory, score: float, why: Why) -> Recalled:
    stream, seq = it.entry
    whence = f"run {it.run}, entry {seq}" if it.run else f"entry {seq} of stream {stream}"
    near = together(engine, it, query.around) if query.around else ()
    fields = {name: getattr(it, name) for name in it.__struct_fields__}
    return Recalled(**fields, score=score, why=msgspec.structs.replace(why, event=whence), around=tuple(near))
