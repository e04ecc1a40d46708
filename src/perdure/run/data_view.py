"""State and messages of a run after some of its writes."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable

from perdure import records as r
from perdure.run.conversation import OF_THREAD, PIN, PINNED, UNDO, UNDO_OF_THREAD, CompactedMessages, Conversation


class RunDataView:
    """`run.state` and `run.messages` as the code sees them: the reduction of the writes it has consumed so far."""

    __slots__ = ("compacted", "messages", "next_position", "pins", "replied", "result", "state", "summary", "thread")

    def __init__(self) -> None:
        self.state: dict[str, bytes] = {}
        self.messages: list[tuple[int, bytes]] = []
        self.next_position = 0
        self.pins: dict[int, bool] = {}
        """By message number: whether it was pinned or unpinned."""
        self.compacted: list[CompactedMessages] = []
        """A stack: the last one applies."""
        self.result = b""
        self.replied = False
        """Of a turn: whether it has replied. Only the message that is the reply has a key."""
        self.thread: dict[str, bytes] = {}
        """The keys of its thread's state that it has written; an empty value is a deleted key."""
        self.summary: bytes | None = None
        """Of a turn: its summary of the turns before it, packed; None if it has neither made nor undone one."""

    def apply(self, writes: Iterable[r.RunWrite]) -> None:
        """Apply writes in program order."""
        for write in writes:
            if write.op == r.WriteOp.SET:
                self.state[write.key] = write.value
            elif write.op == r.WriteOp.DELETE:
                self.state.pop(write.key, None)
            elif write.op == r.WriteOp.MESSAGE:
                insort(self.messages, (write.position, write.value), key=lambda message: message[0])
                self.next_position = max(self.next_position, write.position + 1)
                self.replied = self.replied or bool(write.key)
                if write.version == PINNED:
                    self.pins[write.position] = True
            elif write.op == r.WriteOp.RESULT:
                self.result = write.value
            elif write.op == r.WriteOp.PIN:
                self.pins[write.position] = write.key == PIN
            elif write.op == r.WriteOp.COMPACT:
                self._compact(write)
            elif write.op == r.WriteOp.THREAD:
                self.thread[write.key] = write.value

    def drop_message(self, position: int) -> None:
        """Drop a message: with `on_change="rerun"` another one takes its place."""
        self.messages = [message for message in self.messages if message[0] != position]

    def _compact(self, write: r.RunWrite) -> None:
        if write.key == UNDO:
            del self.compacted[-1:]
            return
        if write.key in (OF_THREAD, UNDO_OF_THREAD):
            self.summary = write.value
            return
        there = (position for position, _ in self.messages if position < write.position)
        covers = frozenset(position for position in there if not self.pins.get(position))
        if covers:
            self.compacted.append(CompactedMessages(write.value, covers))

    def conversation(self, also: Iterable[r.RunWrite] = ()) -> Conversation:
        """Return the conversation, including writes that are still buffered."""
        view = RunDataView()
        view.messages, view.pins, view.compacted = list(self.messages), dict(self.pins), list(self.compacted)
        view.apply(write for write in also if write.op in (r.WriteOp.MESSAGE, r.WriteOp.PIN, r.WriteOp.COMPACT))
        return Conversation(view.messages, view.pins, view.compacted)


def view_of(events: Iterable[r.JournalEntry]) -> RunDataView:
    """Return a run's state and messages after some entries, all of which apply."""
    view = RunDataView()
    for event in events:
        record = event.record
        if isinstance(record, r.StepDone | r.EffectDone | r.ItemDone):
            view.apply(record.writes)
        elif isinstance(record, r.Wrote):
            if record.instead and record.write.op == r.WriteOp.MESSAGE:
                view.drop_message(record.write.position)
            view.apply((record.write,))
    return view
