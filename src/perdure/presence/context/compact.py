"""`run.compact`: replaces older messages by a summary. The replacement is recorded and can be undone."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from perdure import records as r
from perdure.errors import NothingCompacted, WrongType, WrongValue
from perdure.kernel.protocol import Protocol, Read
from perdure.presence.context.conversation import summary_of
from perdure.presence.context.measure import MeasuredMessage
from perdure.presence.context.parse import TextPart
from perdure.presence.context.refs import ref_to
from perdure.presence.context.turns import RunTurns, Turns
from perdure.run.conversation import UNDO, Conversation
from perdure.run.core import RunCore
from perdure.run.writes import decode_written, read_messages, write
from perdure.values.tokens import counter

KEEP = 10
"""How many messages at the end stay, by default."""
SUMMARY_TOKENS = 800
"""The size of a summary that is made without a model."""


class Compaction(msgspec.Struct, frozen=True):
    """The result of a compaction."""

    messages: int
    """Number of messages that are no longer shown; 0 if there was nothing to compact."""
    tokens_before: int
    """Estimated tokens of the whole conversation."""
    tokens_after: int
    summary: str = ""
    """The text that replaces them."""
    ref: str = ""
    """Pointer to the messages, for `agent.open(ref)`."""

    def __repr__(self) -> str:
        if not self.messages:
            return "<Compaction: nothing to compact>"
        return f"<Compaction of {self.messages} messages: {self.tokens_before:,} -> {self.tokens_after:,} tokens>"


class CompactionPlan(msgspec.Struct, frozen=True):
    """What to compact."""

    upto: int
    """Messages before this number are compacted."""
    old: tuple[MeasuredMessage, ...]
    ref: str
    before: int
    raw: tuple[Any, ...] = ()
    """The messages themselves, for a summarizing function."""


def plan(run: RunCore, keep: int, *, raw: bool) -> Protocol[CompactionPlan]:
    """Select the old messages: all but the last, the pinned, and calls whose results are among the last."""
    checked_keep(keep)
    planned: CompactionPlan = yield Read(_plan, (run, read_messages(run), keep, raw))
    return planned


def checked_keep(keep: object) -> None:
    """Refuse a number of messages that is none."""
    if type(keep) is not int or keep < 0:
        raise WrongValue(f"keep={keep!r}: a number of messages, from 0")


def _plan(run: RunCore, speech: Conversation, keep: int, raw: bool) -> CompactionPlan:
    talk = run.parts.get(RunTurns).turns or Turns(run.id, counter(None)[0], partial(decode_written, run))
    with talk.lock:
        run.parts.get(RunTurns).turns = talk
        talk.update(speech)
        upto = _boundary(talk, keep)
        old = tuple(one for one in talk.heard if _is_old(one, upto))
        if not any(one.item.covers is None for one in old):
            old = ()
        numbers = [number for one in old for number in one.item.covers or (one.item.position,)]
        ref = ref_to(run.id, min(numbers), max(numbers)) if numbers else ""
        messages = tuple(decode_written(run, one.item.value) for one in old) if raw else ()
        return CompactionPlan(upto, old, ref, talk.tokens, messages)


def _is_old(one: MeasuredMessage, upto: int) -> bool:
    return one.item.covers is not None or (one.item.position < upto and not one.pinned)


def _boundary(talk: Turns, keep: int) -> int:
    """Return the number of the first message that stays. A call and its results are never separated."""
    first = max(0, len(talk.heard) - keep)
    while 0 < first < len(talk.heard):
        unit = talk.units[talk.unit_of[first]]
        behind = [min(turn.messages) for turn in talk.units if min(turn.messages) < first <= max(turn.messages)]
        if min(unit.messages) >= first and not behind:
            break
        first = min([min(unit.messages), *behind])
    if first >= len(talk.heard):
        return 1 + max((one.item.position for one in talk.heard), default=-1)
    return talk.heard[first].item.position if first else 0


def record(run: RunCore, planned: CompactionPlan, told: Any) -> Protocol[Compaction]:
    """Record the summary. It replaces the messages from now on and on every replay."""
    if not planned.old:
        return Compaction(0, planned.before, planned.before)
    if told is not None and not isinstance(told, str):
        raise WrongType(f"summarise= must return a text, not {type(told).__name__}")
    yield from write(run, r.WriteOp.COMPACT, "", _message(run, planned, told), "summary", position=planned.upto)
    outcome: Compaction = yield Read(_outcome, (run, read_messages(run), planned))
    return outcome


def _message(run: RunCore, planned: CompactionPlan, told: str | None) -> dict[str, str]:
    talk = run.parts.get(RunTurns).turns
    assert talk is not None
    text = f"[Summary of earlier messages; open {planned.ref}]\n{told}" if told and told.strip() else ""
    return {"role": "user", "content": text or summary_of(talk, planned.old, planned.ref, SUMMARY_TOKENS)}


def _outcome(run: RunCore, speech: Conversation, planned: CompactionPlan) -> Compaction:
    talk = run.parts.get(RunTurns).turns
    assert talk is not None
    with talk.lock:
        talk.update(speech)
        made = next(one for one in talk.heard if one.item.covers is not None)
        text = "".join(part.text for part in made.load_message(talk.load).parts if isinstance(part, TextPart))
        return Compaction(len(planned.old), planned.before, talk.tokens, text, planned.ref)


def uncompact(run: RunCore) -> Protocol[None]:
    """Undo the last compaction."""
    if not read_messages(run).compacted:
        raise NothingCompacted(f"run {run.id!r} has no compaction to undo")
    yield from write(run, r.WriteOp.COMPACT, UNDO, None, "uncompact")
