"""Forks and deletes whole threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from perdure.data import state
from perdure.errors import PointNotFound, ThreadNotFound, TurnUnfinished, VersionConflict
from perdure.kernel.protocol import Protocol, Read
from perdure.work.threads import conversations
from perdure.work.threads.conversations import ThreadIndex, read_index
from perdure.work.threads.history import require_quiet
from perdure.work.threads.thread_state import state_after
from perdure.work.threads.turn import last_turn

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine


def fork(engine: Engine, thread: str, at: int | None, to: str) -> Protocol[None]:
    """Make a thread that begins with the turns of another one, up to `at`, and with its state as of then."""
    index: ThreadIndex = yield Read(read_index, (engine, thread))
    number = index.turns if at is None else at
    if type(number) is not int or not index.first <= number <= index.turns:
        raise PointNotFound(f"thread {thread!r} has no turn {at}: it has {index.first} to {index.turns}")
    last = yield Read(last_turn, (engine, index))
    if last is not None and number == last.number and last.in_the_way:
        raise TurnUnfinished(f"turn {number} of thread {thread!r} has not ended")
    there: ThreadIndex = yield Read(read_index, (engine, to))
    shared = yield Read(state_after, (engine, thread, number))
    made = ThreadIndex(to, number, index.first, thread, number)
    asks = [*conversations.head_write(engine, made)]
    asks += [conversations.state_write(engine, to, key, value) for key, value in shared.items()]
    if there.known:
        raise VersionConflict(f"thread {to!r} exists", expected=0, found=there.revision)
    yield from state.commit(engine, asks, [conversations.unchanged(engine, there)])


def delete(engine: Engine, thread: str) -> Protocol[int]:
    """Delete a thread: its turns, its state and its queue are not seen any more. Returns how many turns it had."""
    return (yield from drop_turns(engine, thread, None))


def drop_turns(engine: Engine, thread: str, first: int | None) -> Protocol[int]:
    """Drop the turns of a thread before one; without it, the whole thread. Returns how many."""
    while True:
        index = yield from require_quiet(engine, thread)
        if not index.known:
            raise ThreadNotFound(f"agent {engine.name!r} has no thread {thread!r}")
        kept = index.turns + 1 if first is None else max(index.first, first)
        asks = conversations.head_write(engine, msgspec.structs.replace(index, first=kept))
        if first is None:
            asks = [*asks, *conversations.everything_drop(engine, index)]
        try:
            yield from state.commit(engine, asks, [conversations.unchanged(engine, index)])
        except VersionConflict:
            continue
        return kept - index.first
