"""The visible conversation of a run: without compacted messages, with pinned ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

PIN, UNPIN = "pin", "unpin"
UNDO = "undo"
"""Keys of the writes that pin a message, unpin it, and undo a compaction."""

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

    def follows(self, before: Conversation) -> bool:
        """Whether it only adds messages to an earlier one."""
        if self.pins != before.pins or self.compacted != before.compacted:
            return False
        return list(self.messages[: len(before.messages)]) == before.messages

    def shown(self, since: int = 0) -> list[StoredMessage]:
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
        if last is None or since:
            return spoken
        first = min(covered)
        before = [message for message in spoken if message.position < first]
        return [*before, StoredMessage(first, last.value, covers=(first, max(covered))), *spoken[len(before) :]]
