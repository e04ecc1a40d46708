"""The conversation of a run as it is shown: without what was compacted, with what was pinned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

PIN, UNPIN = "pin", "unpin"
UNDO = "undo"
"""Keys of the writes that pin a message, unpin it, and take a compaction back."""

SUMMED_UP = "compact-"
"""How the id of a step begins that sums messages up, before the number of the first one that it does not."""

PINNED = 1
"""The version of the write of a message that is pinned from the beginning."""
_INSTRUCTIONS = ("system", "developer")


def stays(message: object) -> bool:
    """Whether a message is pinned from the beginning: it says so, or it is an instruction."""
    return isinstance(message, Mapping) and (bool(message.get("pinned")) or message.get("role") in _INSTRUCTIONS)


class Spoken(msgspec.Struct, frozen=True, gc=False):
    """A message, as it is stored."""

    position: int
    """Its number in the run, which it keeps."""
    value: bytes
    pinned: bool = False
    covers: tuple[int, int] | None = None
    """Of a summary: the first and the last message that it stands for."""


class Compacted(msgspec.Struct, frozen=True):
    """Messages for which another one stands."""

    value: bytes
    """That one, packed."""
    covers: frozenset[int]
    """The messages that there were: one that lands later, from a step beside it, is shown."""


class Speech(msgspec.Struct, frozen=True):
    """All that was said, with what became of it."""

    messages: Sequence[tuple[int, bytes]]
    """Numbers and values, in order."""
    pins: Mapping[int, bool]
    compacted: Sequence[Compacted]

    def follows(self, before: Speech) -> bool:
        """Whether it only goes on from an earlier one."""
        if self.pins != before.pins or self.compacted != before.compacted:
            return False
        return list(self.messages[: len(before.messages)]) == before.messages

    def shown(self, since: int = 0) -> list[Spoken]:
        """The messages that are shown, in their order; after the first ones.

        Of several compactions the last one counts: it has the others. What stands for messages is where the first of
        them was: what a conversation begins with, its instructions mostly, stays its beginning.
        """
        last = self.compacted[-1] if self.compacted else None
        covered = last.covers if last is not None else frozenset[int]()
        spoken = [
            Spoken(*message, self.pins.get(message[0], False))
            for message in self.messages[since:]
            if message[0] not in covered
        ]
        if last is None or since:
            return spoken
        first = min(covered)
        before = [it for it in spoken if it.position < first]
        return [*before, Spoken(first, last.value, covers=(first, max(covered))), *spoken[len(before) :]]
