"""The conversation of a thread as a turn sees it: its own messages, and those of the turns before it.

Messages are numbered through the thread, so that a pointer leads to one: turn 12, message 3 is number 120,003.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from perdure import records as r
from perdure.journal import objects
from perdure.journal.objects import reference
from perdure.kernel.engine import Engine
from perdure.run.conversation import OF_THREAD, UNDO_OF_THREAD, CompactedMessages, Conversation, StoredMessage
from perdure.run.core import RunCore
from perdure.run.turn_start import snapshot_in
from perdure.run.writes import decode_written, list_buffered_writes
from perdure.work.threads.conversations import ThreadIndex, read_index
from perdure.work.threads.history import TurnMessages, read_turn

PER_TURN = 10_000
"""The numbers reserved for the messages of each turn. In a longer turn, the last messages share a number."""
MESSAGE_TOKENS = 4
BYTES_PER_TOKEN = 4
LARGE_BYTES = 16_384
"""What a message counts that is stored as an object of its own."""


class EarlierTurns:
    """The turns before an open one that were read for it; kept between contexts."""

    def __init__(self) -> None:
        self.index: ThreadIndex | None = None
        self.turns: dict[int, TurnMessages] = {}


class TurnThread(msgspec.Struct, frozen=True):
    """The thread around an open turn."""

    engine: Engine
    id: str
    number: int
    earlier: EarlierTurns

    @property
    def index(self) -> ThreadIndex:
        if self.earlier.index is None:
            self.earlier.index = read_index(self.engine, self.id)
        return self.earlier.index

    def read_turn(self, number: int) -> TurnMessages:
        """Return the messages of an earlier turn."""
        if number not in self.earlier.turns:
            self.earlier.turns[number] = read_turn(self.engine, self.index, number)
        return self.earlier.turns[number]


def thread_of(run: RunCore) -> TurnThread | None:
    """Return the thread that an open run is a turn of."""
    if snapshot_in(run.ledger) is None:
        return None
    thread, _, number = run.id.rpartition("#")
    return TurnThread(run.engine, thread, int(number), run.parts.get(EarlierTurns))


class ThreadSummary(msgspec.Struct, frozen=True):
    """The summary of the turns before one."""

    upto: int
    """The first turn that it does not cover."""
    numbers: tuple[int, int]
    """The first and the last message number that it covers."""
    pinned: tuple[int, ...]
    """The messages among them that stay."""
    message: dict[str, str]

    def as_record(self) -> list[Any]:
        return [self.upto, list(self.numbers), list(self.pinned), self.message]

    @classmethod
    def of(cls, record: Sequence[Any]) -> ThreadSummary:
        upto, (first, last), pinned, message = record
        return cls(upto, (first, last), tuple(pinned), message)


def summary_in_use(run: RunCore, thread: TurnThread) -> ThreadSummary | None:
    """Return the summary of older turns that contexts of this turn show."""
    packed = run.view.summary
    for write in list_buffered_writes(run):
        packed = write.value if write.op == r.WriteOp.COMPACT and write.key in (OF_THREAD, UNDO_OF_THREAD) else packed
    made_by = thread.index.summary
    if packed is None and thread.index.first <= made_by < thread.number:
        packed = thread.read_turn(made_by).summary
    found = decode_written(run, packed) if packed else None
    return ThreadSummary.of(found) if found is not None else None


def find_first_turn(thread: TurnThread, budget: int, summary: ThreadSummary | None) -> int:
    """Return the earliest turn that fits into the token budget, read backwards."""
    number, tokens = thread.number, 0
    floor = max(thread.index.first, summary.upto if summary is not None else 0)
    while number > floor and tokens <= budget:
        number -= 1
        tokens += sum(map(_tokens, thread.read_turn(number).messages))
    return number


def _tokens(message: tuple[int, bytes]) -> int:
    size = LARGE_BYTES if reference(message[1]) else len(message[1])
    return MESSAGE_TOKENS + size // BYTES_PER_TOKEN


def prepend_earlier(
    thread: TurnThread, own: Conversation, earliest: int, summary: ThreadSummary | None = None
) -> Conversation:
    """Return the conversation of a turn after the turns before it, from the earliest one, and a summary of others."""
    messages = list(_staying(thread, earliest, summary))
    pins: dict[int, bool] = dict.fromkeys((number for number, _ in messages), True)
    for number in range(earliest, thread.number):
        turn = thread.read_turn(number)
        messages += [(_number(number, at), value) for at, value in turn.messages]
        pins |= {_number(number, at): True for at in turn.pins}
    messages += [(_number(thread.number, at), value) for at, value in own.messages]
    pins |= {_number(thread.number, at): pinned for at, pinned in own.pins.items()}
    compacted = [
        CompactedMessages(one.value, frozenset(_number(thread.number, at) for at in one.covers))
        for one in own.compacted
    ]
    earlier = None
    if summary is not None:
        value = objects.pack(thread.engine.store, summary.message, "summary")[0]
        earlier = StoredMessage(summary.numbers[0], value, covers=summary.numbers)
    return Conversation(messages, pins, compacted, earlier)


def _staying(thread: TurnThread, earliest: int, summary: ThreadSummary | None) -> Iterator[tuple[int, bytes]]:
    """Yield the pinned messages before the earliest turn: of the first turn, and of those that were compacted."""
    first = thread.index.first
    if first < earliest:  # what the thread begins with, its instructions mostly, stays
        turn = thread.read_turn(first)
        yield from ((_number(first, at), value) for at, value in turn.messages if at in turn.pins)
    for number in summary.pinned if summary is not None else ():
        value = earlier_message(thread, number)
        if value is not None and first < number // PER_TURN < earliest:
            yield number, value


def earlier_message(thread: TurnThread, number: int) -> bytes | None:
    """Return a message of an earlier turn by its number in the thread; None if that was dropped."""
    turn, position = divmod(number, PER_TURN)
    if not thread.index.first <= turn < thread.number:
        return None
    return dict(thread.read_turn(turn).messages).get(position)


def first_number(turn: int) -> int:
    """Return the number of the first message of a turn."""
    return turn * PER_TURN


def _number(turn: int, position: int) -> int:
    return turn * PER_TURN + min(position, PER_TURN - 1)


def messages_at(engine: Engine, thread: str, first: int, last: int) -> list[bytes]:
    """Return the messages of a thread from one number to another."""
    index = read_index(engine, thread)
    numbers = range(max(index.first, first // PER_TURN), min(index.turns, last // PER_TURN) + 1)
    return [
        value
        for number in numbers
        for at, value in read_turn(engine, index, number, raw=True).messages
        if first <= _number(number, at) <= last
    ]
