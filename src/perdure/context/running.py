"""`run.context`: what a model is to be shown next; of an open run, or of one in the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from ..engine import Engine
from ..journal.lineage import events_of
from ..memory.found import Query
from ..memory.given import read_count, read_name, read_trust
from ..objects import unpack as unpacked
from ..run.core import RunCore, view_of
from ..run.history import effective
from ..run.requests import Protocol, Read
from ..run.spoken import Speech
from ..run.writes import opened, read_messages
from ..runs import must_exist, summary_of
from ..tokens import Tokens, counter
from .building import Wanted, compose
from .filling import Piece
from .layout import Layout, read
from .shown import Context
from .sources import pieces_of
from .talk import Talk

BUDGET = 8_000
"""Tokens, when nobody says how many."""
QUERY_CHARACTERS = 1_000
"""Of what the user said last: so much of it is looked for in the memory."""


class Asked(msgspec.Struct, frozen=True):
    """What the caller wants, checked."""

    query: Query
    wanted: Wanted
    count: Tokens


def asked(
    query: str | None = None,
    budget: int = BUDGET,
    layout: Layout | None = None,
    tokens: Tokens | None = None,
    *,
    memories: int = 8,
    user: str | None = None,
    min_trust: float | str = 0.0,
) -> Asked:
    """What the caller wants; a mistake is told here."""
    if type(budget) is not int or budget < 1:
        raise ValueError(f"budget={budget!r}: a number of tokens, from 1")
    if query is not None and not isinstance(query, str):
        raise TypeError(f"query= is a text, not {query!r}")
    count, is_estimate = counter(tokens)
    looked_for = Query(
        query or "",
        read_count(memories, "memories"),
        user=read_name(user, "user"),
        min_trust=read_trust(min_trust, "min_trust"),
    )
    return Asked(looked_for, Wanted(budget, read(layout), estimated=is_estimate), count)


def context(run: RunCore, it: Asked) -> Protocol[Context]:
    """What the model is to be shown now."""
    talk = run.talk
    if talk is None or talk.count != it.count:
        talk = run.talk = Talk(run.id, it.count, partial(opened, run))
    return (yield from _made(run.engine, talk, read_messages(run), it))


def context_of(
    engine: Engine, run_id: str, it: Asked, unpack: Callable[[bytes], Any] | None = None
) -> Protocol[Context]:
    """The same of a run that is not open here, as the store has it."""
    speech: Speech = yield Read(_stored, (engine, run_id))
    talk = Talk(run_id, it.count, unpack or partial(unpacked, engine.store))
    return (yield from _made(engine, talk, speech, it))


def _stored(engine: Engine, run_id: str) -> Speech:
    store = engine.store
    summary = summary_of(store, must_exist(store, engine.name, run_id))
    return view_of(effective(events_of(store, summary.stream, fork=summary.origin > 0))).speech()


def _made(engine: Engine, talk: Talk, speech: Speech, it: Asked) -> Protocol[Context]:
    words: str = yield Read(_heard, (talk, speech))
    text = it.query.text or words[:QUERY_CHARACTERS]
    wanted = {slot.name for slot in it.wanted.slots if slot.text is None}
    pieces = yield from pieces_of(engine, msgspec.structs.replace(it.query, text=text), wanted, it.count)
    made: Context = yield Read(_composed, (talk, speech, it.wanted, pieces))
    return made


def _heard(talk: Talk, speech: Speech) -> str:
    with talk.lock:
        talk.hear(speech)
        return talk.last_words()


def _composed(talk: Talk, speech: Speech, wanted: Wanted, pieces: Sequence[Piece]) -> Context:
    with talk.lock:
        talk.hear(speech)  # somebody else may have asked meanwhile, from where more or less has been said
        return compose(talk, msgspec.structs.replace(wanted, pieces=tuple(pieces)))
