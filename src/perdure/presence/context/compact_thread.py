"""`turn.compact`: replaces the older turns of a thread by a summary, in the contexts of this turn and of later ones.

The summary is a write of the turn that made it. The index of the thread names that turn, so that a context finds the
summary however long ago it was made. Nothing is removed: `thread.messages` and pointers still read every message.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from perdure import records as r
from perdure.errors import WrongType
from perdure.kernel.protocol import Protocol, Read
from perdure.kernel.scope import frame_of
from perdure.platform.failpoints import Site
from perdure.presence.context.compact import SUMMARY_TOKENS, Compaction, checked_keep
from perdure.presence.context.conversation import summary_of
from perdure.presence.context.measure import MeasuredMessage
from perdure.presence.context.refs import ref_to
from perdure.presence.context.thread_context import (
    ThreadSummary,
    TurnThread,
    first_number,
    prepend_earlier,
    summary_in_use,
    thread_of,
)
from perdure.presence.context.turns import Turns
from perdure.run.conversation import OF_THREAD, UNDO_OF_THREAD, Conversation
from perdure.run.core import RunCore
from perdure.run.writes import decode_written, read_messages, record_value
from perdure.values.tokens import counter
from perdure.work.threads import conversations

PLANNED, UNDOING = "compaction", "uncompaction"
"""The keys of the recorded values that say which turns were compacted, and whether a summary was dropped."""


class ThreadCompactionPlan(msgspec.Struct, frozen=True):
    """Which turns to compact. It is recorded, so that a replay compacts the same ones."""

    upto: int
    """Turns before this one; 0 if there is nothing to compact."""
    since: int = 0
    """The first turn that no earlier summary covers."""
    numbers: tuple[int, int] = (0, 0)
    """The first and the last message number that the summary covers."""
    pinned: tuple[int, ...] = ()
    count: int = 0
    tokens: int = 0
    ref: str = ""


NOTHING = ThreadCompactionPlan(0)


def plan(run: RunCore, keep: int) -> Protocol[ThreadCompactionPlan]:
    """Select whole turns at the beginning, so that at least the last `keep` messages of the thread stay."""
    checked_keep(keep)
    thread = thread_of(run)
    if thread is None:
        return NOTHING
    upto, since, numbers, pinned, *rest = yield from record_value(run, PLANNED, partial(_made, run, thread, keep))
    return ThreadCompactionPlan(upto, since, tuple(numbers), tuple(pinned), *rest)


def _made(run: RunCore, thread: TurnThread, keep: int) -> Protocol[list[Any]]:
    planned: ThreadCompactionPlan = yield Read(_planned, (run, thread, keep))
    return list(msgspec.structs.astuple(planned))


def _planned(run: RunCore, thread: TurnThread, keep: int) -> ThreadCompactionPlan:
    before = summary_in_use(run, thread)
    since = max(thread.index.first, before.upto if before is not None else 0)
    upto, left = thread.number, keep - len(read_messages(run).list_visible())
    while left > 0 and upto > since:
        upto -= 1
        left -= len(thread.read_turn(upto).messages)
    talk = _talk(run, thread, since, upto) if upto > since else None
    old = _old(talk) if talk is not None else []
    if talk is None or not old:
        return NOTHING
    numbers = (before.numbers[0] if before is not None else first_number(since), first_number(upto) - 1)
    pinned = tuple(one.item.position for one in talk.heard if one.pinned)
    return ThreadCompactionPlan(upto, since, numbers, pinned, len(old), talk.tokens, ref_to(thread.id, *numbers))


def _talk(run: RunCore, thread: TurnThread, since: int, upto: int) -> Turns:
    """Return the messages of some turns, after the summary of those before them."""
    here = msgspec.structs.replace(thread, number=upto)
    speech = prepend_earlier(here, Conversation((), {}, ()), since, summary_in_use(run, thread))
    talk = Turns(thread.id, counter(None)[0], partial(decode_written, run))
    talk.update(speech)
    return talk


def _old(talk: Turns) -> list[MeasuredMessage]:
    return [one for one in talk.heard if not one.pinned]


def messages(run: RunCore, planned: ThreadCompactionPlan) -> Protocol[list[Any]]:
    """Return the messages to compact, for a summarizing function."""
    thread = thread_of(run)
    assert thread is not None
    old = yield Read(lambda: _old(_talk(run, thread, planned.since, planned.upto)))
    return [decode_written(run, one.item.value) for one in old]


def record(run: RunCore, planned: ThreadCompactionPlan, told: Any) -> Protocol[Compaction]:
    """Record the summary of older turns. Contexts show it in their place from now on."""
    if told is not None and not isinstance(told, str):
        raise WrongType(f"summarise= must return a text, not {type(told).__name__}")
    made = yield from _write(run, OF_THREAD, planned.upto, partial(_summary, run, planned, told))
    text = ThreadSummary.of(made).message["content"]
    return Compaction(planned.count, planned.tokens, counter(None)[0](text), text, planned.ref)


def _summary(run: RunCore, planned: ThreadCompactionPlan, told: str | None) -> list[Any]:
    text = f"[Summary of earlier turns; open {planned.ref}]\n{told}" if told and told.strip() else ""
    if not text:
        thread = thread_of(run)
        assert thread is not None
        talk = _talk(run, thread, planned.since, planned.upto)
        text = summary_of(talk, _old(talk), planned.ref, SUMMARY_TOKENS)
    message = {"role": "user", "content": text}
    return ThreadSummary(planned.upto, planned.numbers, planned.pinned, message).as_record()


def uncompact(run: RunCore) -> Protocol[bool]:
    """Show the older turns again. Returns whether there was a summary of them."""
    thread = thread_of(run)
    if thread is None:
        return False
    there = yield from record_value(run, UNDOING, partial(_in_use, run, thread))
    if there:
        yield from _write(run, UNDO_OF_THREAD, 0, lambda: None)
    return bool(there)


def _in_use(run: RunCore, thread: TurnThread) -> Protocol[bool]:
    found: ThreadSummary | None = yield Read(summary_in_use, (run, thread))
    return found is not None


def _write(run: RunCore, key: str, upto: int, make: Callable[[], Any]) -> Protocol[Any]:
    """Write the summary, and tell the thread which turn has it, in one commit. Returns the recorded value."""
    thread, frame = thread_of(run), frame_of(run)
    assert thread is not None
    if frame.buffer is None:
        nth = frame.count(f"\0write {r.WriteOp.COMPACT}", key.encode())
        recorded = run.ledger.find_write(frame.path, r.WriteOp.COMPACT, key, nth)
        if recorded is not None:
            run.land(frame, (recorded,))
            return (yield from run.load(recorded.value))
    value = yield Read(make)
    packed, objects = run.pack(value, "summary")
    made = r.RunWrite(r.WriteOp.COMPACT, key, packed, upto)
    ask = conversations.summary_write(run.engine, thread.id, thread.number)
    if frame.buffer is not None:
        run.check_not_left()
        frame.buffer.add(made, objects)
        frame.buffer.asks.append(ask)
        return value
    yield from run.commit(Site.WRITE, r.Wrote(frame.path, made), objects=objects, asks=[ask])
    run.land(frame, (made,))
    return value
