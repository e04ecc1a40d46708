"""`run.context`: what a model is to be shown next, of an open run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from ..run.core import RunCore
from ..run.requests import Protocol, Read
from ..run.spoken import Spoken
from ..run.writes import opened, read_messages
from ..tokens import Tokens
from .building import Wanted, compose
from .counting import counter
from .layout import Layout, read
from .shown import Context
from .talk import Talk

BUDGET = 8_000
"""Tokens, when nobody says how many."""


class Asked(msgspec.Struct, frozen=True):
    """What the caller wants, checked."""

    query: str | None
    budget: int
    wanted: Wanted
    count: Tokens


def asked(query: str | None, budget: int, layout: Layout | None, tokens: Tokens | None) -> Asked:
    """What the caller wants; a mistake is told here."""
    if type(budget) is not int or budget < 1:
        raise ValueError(f"budget={budget!r}: a number of tokens, from 1")
    if query is not None and not isinstance(query, str):
        raise TypeError(f"query= is a text, not {query!r}")
    count, is_estimate = counter(tokens)
    return Asked(query, budget, Wanted(budget, read(layout), estimated=is_estimate), count)


def context(run: RunCore, it: Asked) -> Protocol[Context]:
    """What the model is to be shown now."""
    context: Context = yield Read(_made, (run, it, read_messages(run)))
    return context


def _made(run: RunCore, it: Asked, spoken: Sequence[Spoken]) -> Context:
    talk = run.talk
    if talk is None or talk.count != it.count:
        talk = run.talk = Talk(run.id, it.count, partial(opened, run))
    with talk.lock:
        talk.hear(spoken)
        return compose(talk, it.wanted)
