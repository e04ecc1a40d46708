"""Cached measurements of a message: its size, its short forms, its line in a summary."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from perdure.presence.context.error_lines import find_exception_line
from perdure.presence.context.mask import (
    CALL_TOKENS,
    MESSAGE_TOKENS,
    OTHER_TOKENS,
    PartLimits,
    mask_message,
    shorten_text,
    size_exactly,
    size_of,
)
from perdure.presence.context.parse import (
    MessagePart,
    OpaquePart,
    ParsedMessage,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    to_json_text,
)
from perdure.run.conversation import StoredMessage
from perdure.values.tokens import TokenCounter

KEPT_TOKENS = 1_000
"""Messages up to this size stay in memory; longer ones are read again when shown whole."""

MASK = PartLimits(text=400, result=110, arguments=150, others=False)
"""Limits for older messages: text mostly stays, tool results do not."""
MASKED_RESULTS = 1_600
"""Tokens for all results of parallel tool calls together."""
MASKED_LEAST = 30

LINE_CHARACTERS = 110
PART_CHARACTERS = 60


MessageLoader = Callable[[StoredMessage], ParsedMessage]
"""Reads a message again."""


class MeasuredMessage:
    """A message with its measurements."""

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

    def __init__(self, item: StoredMessage, message: ParsedMessage, ref: str, count: TokenCounter) -> None:
        self.item, self.ref = item, ref
        self.role, self.calls, self.results = message.role, message.calls, message.results
        self.pinned = item.pinned
        self.tokens = size_of(message, count)
        self.exact = self.tokens <= KEPT_TOKENS
        """Whether all of it was counted."""
        self.whole = message if self.exact else None
        self.masked = mask_message(message, _mask(len(message.results), len(message.calls)), count, ref)
        self.masked_tokens = self.tokens if self.masked is message else size_of(self.masked, count)
        self.line = _line(message)
        self._clip: tuple[int, ParsedMessage, int] | None = None
        self._tight: tuple[int, ParsedMessage, int] | None = None

    def load_message(self, load: MessageLoader) -> ParsedMessage:
        """Return the whole message."""
        return self.whole if self.whole is not None else load(self.item)

    def clip(self, room: int, load: MessageLoader, count: TokenCounter) -> tuple[ParsedMessage, int]:
        """Return as much of it as fits, and its tokens."""
        if self._clip is None or self._clip[0] != room:
            short = clip_message(self.load_message(load), room, count, self.ref)
            size = size_exactly(short, count)
            # Arguments are cut part by part, and may exceed the limit.
            self._clip = (room, short, size) if size <= room else (room, self.masked, self.masked_tokens)
        return self._clip[1:]

    def shrink(self, room: int, load: MessageLoader, count: TokenCounter) -> tuple[ParsedMessage, int]:
        """Return less than the masked form: what fits, or the shortest possible form, which may not fit."""
        if self._tight is None or self._tight[0] != room:
            short = shrink_message(self.load_message(load), room, count, self.ref)
            self._tight = room, short, size_exactly(short, count)
        return self._tight[1:]

    def measure(self, load: MessageLoader, count: TokenCounter) -> None:
        """Count all of it, before it is shown whole."""
        if not self.exact:
            self.tokens, self.exact = size_exactly(self.load_message(load), count), True


def clip_message(message: ParsedMessage, room: int, count: TokenCounter, ref: str) -> ParsedMessage:
    """Shorten a new message that is too long to be shown whole."""
    apart = sum(isinstance(part, OpaquePart) for part in message.parts)
    others = apart + sum(part.others for part in message.parts if isinstance(part, ToolResultPart))
    stay = others * OTHER_TOKENS <= room // 2
    left = room - MESSAGE_TOKENS - (others * OTHER_TOKENS if stay else 0)
    each = max(MASKED_LEAST, left // max(1, len(message.parts) - apart) - CALL_TOKENS)
    return mask_message(message, PartLimits(each, each, each, stay), count, ref)


def shrink_message(message: ParsedMessage, room: int, count: TokenCounter, ref: str) -> ParsedMessage:
    """Shorten a message to a minimum: calls and results stay, each at least as a pointer."""
    words = [_words(part) for part in message.parts if isinstance(part, TextPart | OpaquePart)]
    text = "\n".join(word for word in words if word)
    calls = [_strip_call(part, ref) for part in message.parts if isinstance(part, ToolCallPart)]
    results = [part for part in message.parts if isinstance(part, ToolResultPart)]
    left = room - size_of(
        ParsedMessage(message.role, (*calls, *(ToolResultPart(part.id, "") for part in results))), count
    )
    each = max(0, left // max(1, len(results) + bool(text)))
    said: list[MessagePart] = [TextPart(shorten_text(text, each, count, ref))] if text else []
    said += [
        *calls,
        *(ToolResultPart(part.id, shorten_text(part.text, each, count, ref), part.error) for part in results),
    ]
    return ParsedMessage(message.role, tuple(said), message.shape)


def _words(part: TextPart | OpaquePart) -> str:
    if isinstance(part, TextPart):
        return part.text
    return "" if "thinking" in part.kind else f"[{part.kind}]"


def _strip_call(call: ToolCallPart, ref: str) -> ToolCallPart:
    short = to_json_text({"shortened": f"open {ref}"})
    return call if len(call.arguments) <= len(short) else ToolCallPart(call.id, call.name, short)


def _mask(results: int, calls: int) -> PartLimits:
    """Return the limits for an older message. The results of many parallel calls share the room."""
    many = max(results, calls, 1)
    return msgspec.structs.replace(MASK, result=max(MASKED_LEAST, min(MASK.result, MASKED_RESULTS // many)))


def _line(message: ParsedMessage) -> str:
    """Return a message as a line of a summary."""
    who = "tool" if message.results else message.role
    calls = [
        f"{part.name}({first_line(part.arguments.strip('{}'), PART_CHARACTERS)})"
        for part in message.parts
        if isinstance(part, ToolCallPart)
    ]
    results = [
        first_line(find_exception_line(part.text) or part.text, PART_CHARACTERS)
        for part in message.parts
        if isinstance(part, ToolResultPart)
    ]
    called = f"called {', '.join(calls[:3])}{', …' if len(calls) > 3 else ''}" if calls else ""
    told = f"returned {'; '.join(results[:2])}{'; …' if len(results) > 2 else ''}" if results else ""
    return f"- {who}: " + "; ".join(one for one in (first_line(message.text, LINE_CHARACTERS), called, told) if one)


def first_line(text: str, size: int) -> str:
    """Return the beginning of a text, on one line."""
    line = " ".join(text[: size * 4].split())
    return line if len(line) <= size else line[: size - 1].rstrip() + "…"
