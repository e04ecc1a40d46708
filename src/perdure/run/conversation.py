"""The visible conversation of a run: without compacted messages, with pinned ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

PIN, UNPIN = "pin", "unpin"
UNDO = "undo"
"""Keys of the writes that pin a message, unpin it, and undo a compaction."""

OF_THREAD, UNDO_OF_THREAD = "thread", "thread-undo"
"""Keys of the writes by which a turn compacts the turns before it, and undoes that."""

SUMMED_UP = "compact-"
"""Prefix of the id of a summarizing step, followed by the number of the first message that it leaves out."""

PINNED = 1
"""The version of the write of a message that is pinned from the start."""
_INSTRUCTIONS = ("system", "developer")


def is_pinned(message: object) -> bool:
    """Whether a message is pinned from the start: by its own field, or because it is an instruction."""
    return isinstance(message, Mapping) and (bool(message.get("pinned")) or message.get("role") in _INSTRUCTIONS)


class StoredMessage(msgspec.Struct, frozen=True, gc=False):
    """A stored message."""

    position: int
    """Its permanent number in the run."""
    value: bytes
    pinned: bool = False
    covers: tuple[int, int] | None = None
    """For a summary: the first and last message that it replaces."""


class CompactedMessages(msgspec.Struct, frozen=True):
    """Messages that a summary replaces."""

    value: bytes
    """The summary, packed."""
    covers: frozenset[int]
    """The messages that existed then. One that lands later, from a concurrent step, stays visible."""


class Conversation(msgspec.Struct, frozen=True):
    """All messages of a run, with their pins and compactions."""

    messages: Sequence[tuple[int, bytes]]
    """Numbers and values, in order."""
    pins: Mapping[int, bool]
    compacted: Sequence[CompactedMessages]
    earlier: StoredMessage | None = None
    """In a turn: the summary of the turns that are not among the messages."""

    def is_continuation_of(self, before: Conversation) -> bool:
        """Whether it only adds messages to an earlier one."""
        if (self.pins, self.compacted, self.earlier) != (before.pins, before.compacted, before.earlier):
            return False
        return list(self.messages[: len(before.messages)]) == before.messages

    def list_visible(self, since: int = 0) -> list[StoredMessage]:
        """Return the visible messages in order, without the first `since`.

        Only the last compaction counts: it includes the others. Its summary takes the position of the first message
        that it replaces, so that the conversation still starts with its instructions.
        """
        last = self.compacted[-1] if self.compacted else None
        covered = last.covers if last is not None else frozenset[int]()
        spoken = [
            StoredMessage(*message, self.pins.get(message[0], False))
            for message in self.messages[since:]
            if message[0] not in covered
        ]
        if since:
            return spoken
        if self.earlier is not None:
            spoken = _inserted(spoken, self.earlier)
        if last is None:
            return spoken
        return _inserted(spoken, StoredMessage(min(covered), last.value, covers=(min(covered), max(covered))))


def _inserted(spoken: list[StoredMessage], summary: StoredMessage) -> list[StoredMessage]:
    before = [message for message in spoken if message.position < summary.position]
    return [*before, summary, *spoken[len(before) :]]
