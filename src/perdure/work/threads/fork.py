"""Forks and deletes whole threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from perdure import records as r
from perdure.data import state
from perdure.errors import PointNotFound, RunBusy, ThreadNotFound, TurnUnfinished, VersionConflict
from perdure.kernel.protocol import Protocol, Read
from perdure.run.order_delivery import give_order
from perdure.run.order_handling import PendingOrder
from perdure.work.threads import conversations
from perdure.work.threads.conversations import ThreadIndex, read_index
from perdure.work.threads.erasure import erase_dropped, scrub
from perdure.work.threads.history import require_quiet
from perdure.work.threads.thread_state import state_after
from perdure.work.threads.turn import LastTurn, read_last_turn

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine


def fork(engine: Engine, thread: str, at: int | None, to: str) -> Protocol[None]:
    """Make a thread that begins with the turns of another one, up to `at`, and with its state as of then."""
    while True:
        index: ThreadIndex = yield Read(read_index, (engine, thread))
        if not index.known:
            raise ThreadNotFound(f"agent {engine.name!r} has no thread {thread!r}")
        number = index.turns if at is None else at
        if type(number) is not int or not index.first <= number <= index.turns:
            raise PointNotFound(f"thread {thread!r} has no turn {at!r}: it has {index.first} to {index.turns}")
        last = yield Read(read_last_turn, (engine, index))
        if last is not None and number == last.number and last.in_the_way:
            raise TurnUnfinished(f"turn {number} of thread {thread!r} has not ended")
        there: ThreadIndex = yield Read(read_index, (engine, to))
        if there.known:
            told = "choose another id for the fork, or delete that thread first"
            raise VersionConflict(f"thread {to!r} exists", expected=0, found=there.revision, hint=told)
        shared = yield Read(state_after, (engine, thread, number))
        asks = conversations.head_write(engine, ThreadIndex(to, number, index.first, thread, number))
        asks += [conversations.state_write(engine, to, key, value) for key, value in shared.items()]
        asks.append(conversations.fork_write(engine, thread, to))
        if 0 < index.summary <= number:
            asks.append(conversations.summary_write(engine, to, index.summary))
        try:
            yield from state.commit(
                engine, asks, [conversations.require_unchanged(engine, one) for one in (index, there)]
            )
        except VersionConflict:
            continue  # one of the two has changed since it was read
        return


def delete(engine: Engine, thread: str) -> Protocol[int]:
    """Delete a thread, and erase its turns, its state and its queue. Returns how many turns it had."""
    return (yield from shorten(engine, thread, None))


def shorten(engine: Engine, thread: str, first: int | None) -> Protocol[int]:
    """Drop the turns of a thread before one, or all of them, and erase them. Returns how many."""
    count = yield from drop_turns(engine, thread, first)
    gone = yield from erase_dropped(engine, thread)
    yield from scrub(engine, gone)
    return count


def drop_turns(engine: Engine, thread: str, first: int | None) -> Protocol[int]:
    """Drop the turns of a thread before one; without it, the whole thread. Returns how many."""
    while True:
        index = yield from require_quiet(engine, thread)
        if not index.known:
            raise ThreadNotFound(f"agent {engine.name!r} has no thread {thread!r}")
        kept = index.turns + 1 if first is None else max(index.first, first)
        asks = conversations.head_write(engine, msgspec.structs.replace(index, first=kept))
        if first is None:
            yield from _end_last(engine, index)
            asks += yield Read(conversations.delete_everything, (engine, index))
        asks.append((yield Read(conversations.erasing_write, (engine, thread, index.first))))
        try:
            yield from state.commit(engine, asks, [conversations.require_unchanged(engine, index)])
        except VersionConflict:
            continue
        return kept - index.first


def _end_last(engine: Engine, index: ThreadIndex) -> Protocol[None]:
    """Cancel the last turn if it was killed, so that nobody resumes it while it is being erased."""
    last: LastTurn | None = yield Read(read_last_turn, (engine, index))
    if last is None or last.run.status.over:
        return
    told = PendingOrder(r.Order.CANCEL, "its thread was deleted", "the thread")
    given = yield from give_order(engine, engine.name, last.run.id, told)
    if not given.obeyed:
        raise RunBusy(f"turn {last.number} of thread {index.thread!r} was opened meanwhile")
