"""`run.compact`: a summary stands for older messages from then on. It is recorded, and can be taken back."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from .. import records as r
from ..errors import NothingCompacted
from ..run.core import RunCore
from ..run.requests import Protocol, Read
from ..run.spoken import UNDO, Speech
from ..run.writes import opened, read_messages, write
from ..tokens import counter
from .conversation import summary_of
from .heard import Heard
from .refs import ref_to
from .said import Text
from .talk import Talk

KEEP = 10
"""Messages at the end that stay, when nobody says how many."""
SUMMARY_TOKENS = 800
"""Of the summary that is made without a model."""


class Compaction(msgspec.Struct, frozen=True):
    """What a compaction has come to."""

    messages: int
    """So many are not shown any more; 0 when there was nothing to compact."""
    tokens_before: int
    """Of the whole conversation, about."""
    tokens_after: int
    summary: str = ""
    """What stands for them."""
    ref: str = ""
    """`agent.open(ref)` reads them."""

    def __repr__(self) -> str:
        if not self.messages:
            return "<Compaction: nothing to compact>"
        return f"<Compaction of {self.messages} messages: {self.tokens_before:,} -> {self.tokens_after:,} tokens>"


class Plan(msgspec.Struct, frozen=True):
    """What is to be compacted."""

    upto: int
    """Messages before this number."""
    old: tuple[Heard, ...]
    ref: str
    before: int
    raw: tuple[Any, ...] = ()
    """The messages themselves, for somebody who sums them up."""


def plan(run: RunCore, keep: int, *, raw: bool) -> Protocol[Plan]:
    """Which messages are old: all but the last, the pinned ones, and calls whose results are among the last."""
    if type(keep) is not int or keep < 0:
        raise ValueError(f"keep={keep!r}: a number of messages, from 0")
    planned: Plan = yield Read(_plan, (run, read_messages(run), keep, raw))
    return planned


def _plan(run: RunCore, speech: Speech, keep: int, raw: bool) -> Plan:
    talk = run.talk or Talk(run.id, counter(None)[0], partial(opened, run))
    with talk.lock:
        run.talk = talk
        talk.hear(speech)
        upto = _boundary(talk, keep)
        old = tuple(one for one in talk.heard if _is_old(one, upto))
        if not any(one.item.covers is None for one in old):
            old = ()
        numbers = [number for one in old for number in one.item.covers or (one.item.position,)]
        ref = ref_to(run.id, min(numbers), max(numbers)) if numbers else ""
        messages = tuple(opened(run, one.item.value) for one in old) if raw else ()
        return Plan(upto, old, ref, talk.tokens, messages)


def _is_old(one: Heard, upto: int) -> bool:
    return one.item.covers is not None or (one.item.position < upto and not one.pinned)


def _boundary(talk: Talk, keep: int) -> int:
    """The number of the first message that stays. A call and its results are on the same side of it."""
    first = max(0, len(talk.heard) - keep)
    while 0 < first < len(talk.heard):
        unit = talk.units[talk.unit_of[first]]
        behind = [min(it.messages) for it in talk.units if min(it.messages) < first <= max(it.messages)]
        if min(unit.messages) >= first and not behind:
            break
        first = min([min(unit.messages), *behind])
    if first >= len(talk.heard):
        return 1 + max((one.item.position for one in talk.heard), default=-1)
    return talk.heard[first].item.position if first else 0


def record(run: RunCore, planned: Plan, told: Any) -> Protocol[Compaction]:
    """Let a summary stand for them, from now on and on every replay."""
    if not planned.old:
        return Compaction(0, planned.before, planned.before)
    if told is not None and not isinstance(told, str):
        raise TypeError(f"summarise= returns a text, not {type(told).__name__}")
    yield from write(run, r.Op.COMPACT, "", _message(run, planned, told), "summary", position=planned.upto)
    outcome: Compaction = yield Read(_outcome, (run, read_messages(run), planned))
    return outcome


def _message(run: RunCore, planned: Plan, told: str | None) -> dict[str, str]:
    talk = run.talk
    assert talk is not None
    text = f"[Summary of earlier messages; open {planned.ref}]\n{told}" if told and told.strip() else ""
    return {"role": "user", "content": text or summary_of(talk, planned.old, planned.ref, SUMMARY_TOKENS)}


def _outcome(run: RunCore, speech: Speech, planned: Plan) -> Compaction:
    talk = run.talk
    assert talk is not None
    with talk.lock:
        talk.hear(speech)
        made = next(one for one in talk.heard if one.item.covers is not None)
        text = "".join(part.text for part in made.read(talk.load).parts if isinstance(part, Text))
        return Compaction(len(planned.old), planned.before, talk.tokens, text, planned.ref)


def uncompact(run: RunCore) -> Protocol[None]:
    """Take the last compaction back."""
    if not read_messages(run).compacted:
        raise NothingCompacted(f"run {run.id!r} has no compaction to take back")
    yield from write(run, r.Op.COMPACT, UNDO, None, "uncompact")
