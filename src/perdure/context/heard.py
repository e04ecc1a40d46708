"""What is known of a message after it was looked at once: its size, its short forms, its line in a summary."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..run.spoken import Spoken
from ..tokens import Tokens
from .complaints import raised
from .masking import CALL_TOKENS, MESSAGE_TOKENS, OTHER_TOKENS, Room, masked, shortened, size_exactly, size_of
from .said import Call, Other, Part, Result, Said, Text, as_json

KEPT_TOKENS = 1_000
"""A message up to that size stays in memory as a whole; a longer one is read again where it is shown as a whole."""

MASK = Room(text=400, result=110, arguments=150, others=False)
"""What is left of an older message: words mostly stay, observations do not."""
MASKED_RESULTS = 1_600
"""Tokens of all results of calls that were made at once, when they are many."""
MASKED_LEAST = 30

LINE_CHARACTERS = 110
PART_CHARACTERS = 60


Load = Callable[[Spoken], Said]
"""Reads a message again."""


class Heard:
    """One message, looked at."""

    __slots__ = (
        "_clip",
        "_tight",
        "calls",
        "exact",
        "item",
        "line",
        "masked",
        "masked_tokens",
        "pinned",
        "ref",
        "results",
        "role",
        "tokens",
        "whole",
    )

    def __init__(self, item: Spoken, it: Said, ref: str, count: Tokens) -> None:
        self.item, self.ref = item, ref
        self.role, self.calls, self.results = it.role, it.calls, it.results
        self.pinned = item.pinned
        self.tokens = size_of(it, count)
        self.exact = self.tokens <= KEPT_TOKENS
        """Whether it was counted to its end."""
        self.whole = it if self.exact else None
        self.masked = masked(it, _mask(len(it.results), len(it.calls)), count, ref)
        self.masked_tokens = self.tokens if self.masked is it else size_of(self.masked, count)
        self.line = _line(it)
        self._clip: tuple[int, Said, int] | None = None
        self._tight: tuple[int, Said, int] | None = None

    def read(self, load: Load) -> Said:
        """All of it."""
        return self.whole if self.whole is not None else load(self.item)

    def clipped(self, room: int, load: Load, count: Tokens) -> tuple[Said, int]:
        """As much of it as fits, and what that takes."""
        if self._clip is None or self._clip[0] != room:
            short = clipped(self.read(load), room, count, self.ref)
            size = size_exactly(short, count)
            # Arguments are cut by their parts, and may come to more than was meant.
            self._clip = (room, short, size) if size <= room else (room, self.masked, self.masked_tokens)
        return self._clip[1:]

    def tight(self, room: int, load: Load, count: Tokens) -> tuple[Said, int]:
        """Less than when it is masked: as much as fits, or as little as can be said, which may still be more."""
        if self._tight is None or self._tight[0] != room:
            short = tightened(self.read(load), room, count, self.ref)
            self._tight = room, short, size_exactly(short, count)
        return self._tight[1:]

    def measure(self, load: Load, count: Tokens) -> None:
        """Count it to its end: it may be shown as a whole."""
        if not self.exact:
            self.tokens, self.exact = size_exactly(self.read(load), count), True


def clipped(it: Said, room: int, count: Tokens, ref: str) -> Said:
    """A new message that is too long to be shown as a whole."""
    apart = sum(isinstance(part, Other) for part in it.parts)
    others = apart + sum(part.others for part in it.parts if isinstance(part, Result))
    stay = others * OTHER_TOKENS <= room // 2
    left = room - MESSAGE_TOKENS - (others * OTHER_TOKENS if stay else 0)
    each = max(MASKED_LEAST, left // max(1, len(it.parts) - apart) - CALL_TOKENS)
    return masked(it, Room(each, each, each, stay), count, ref)


def tightened(it: Said, room: int, count: Tokens, ref: str) -> Said:
    """A message for which there is hardly any room: calls and results stay, and of what they say at least a pointer."""
    words = [_words(part) for part in it.parts if isinstance(part, Text | Other)]
    text = "\n".join(word for word in words if word)
    calls = [_bare(part, ref) for part in it.parts if isinstance(part, Call)]
    results = [part for part in it.parts if isinstance(part, Result)]
    left = room - size_of(Said(it.role, (*calls, *(Result(part.id, "") for part in results))), count)
    each = max(0, left // max(1, len(results) + bool(text)))
    said: list[Part] = [Text(shortened(text, each, count, ref))] if text else []
    said += [*calls, *(Result(part.id, shortened(part.text, each, count, ref), part.error) for part in results)]
    return Said(it.role, tuple(said), it.shape)


def _words(part: Text | Other) -> str:
    if isinstance(part, Text):
        return part.text
    return "" if "thinking" in part.kind else f"[{part.kind}]"


def _bare(call: Call, ref: str) -> Call:
    short = as_json({"shortened": f"open {ref}"})
    return call if len(call.arguments) <= len(short) else Call(call.id, call.name, short)


def _mask(results: int, calls: int) -> Room:
    """Of many calls at once, each result has less room; the message with the calls knows of them all."""
    many = max(results, calls, 1)
    return msgspec.structs.replace(MASK, result=max(MASKED_LEAST, min(MASK.result, MASKED_RESULTS // many)))


def _line(it: Said) -> str:
    """A message in a line of a summary."""
    who = "tool" if it.results else it.role
    calls = [
        f"{part.name}({short(part.arguments.strip('{}'), PART_CHARACTERS)})"
        for part in it.parts
        if isinstance(part, Call)
    ]
    results = [short(raised(part.text) or part.text, PART_CHARACTERS) for part in it.parts if isinstance(part, Result)]
    called = f"called {', '.join(calls[:3])}{', …' if len(calls) > 3 else ''}" if calls else ""
    told = f"returned {'; '.join(results[:2])}{'; …' if len(results) > 2 else ''}" if results else ""
    return f"- {who}: " + "; ".join(one for one in (short(it.text, LINE_CHARACTERS), called, told) if one)


def short(text: str, size: int) -> str:
    """The beginning of a text, in one line."""
    line = " ".join(text[: size * 4].split())
    return line if len(line) <= size else line[: size - 1].rstrip() + "…"
