"""The conversation of a run as it is shown: without what was compacted, with what was pinned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

PIN, UNPIN = "pin", "unpin"
UNDO = "undo"
"""Keys of the writes that pin a message, unpin it, and take a compaction back."""

PINNED = 1
"""The version of the write of a message that is pinned from the beginning."""
_INSTRUCTIONS = ("system", "developer")


def stays(message: object) -> bool:
    """Whether a message is pinned from the beginning: it says so, or it is an instruction."""
    return isinstance(message, Mapping) and (bool(message.get("pinned")) or message.get("role") in _INSTRUCTIONS)


class Spoken(msgspec.Struct, frozen=True):
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


def shown(messages: Sequence[tuple[int, bytes]], pins: dict[int, bool], compacted: Sequence[Compacted]) -> list[Spoken]:
    """The messages that are shown, in their order. Of several compactions the last one counts: it has the others."""
    if not compacted:
        return [Spoken(*message, pins.get(message[0], False)) for message in messages]
    last = compacted[-1]
    summary = Spoken(min(last.covers), last.value, covers=(min(last.covers), max(last.covers)))
    rest = [message for message in messages if message[0] not in last.covers]
    return [summary, *(Spoken(*message, pins.get(message[0], False)) for message in rest)]
