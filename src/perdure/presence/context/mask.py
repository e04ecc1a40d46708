"""Shortens a long text: keeps its beginning, its end and lines that report errors, and points to the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from perdure.presence.context.error_lines import ErrorLine, ErrorLines, complaints
from perdure.presence.context.parse import (
    MessagePart,
    ParsedMessage,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    to_json_text,
)
from perdure.values.tokens import TokenCounter

SAMPLED_CHARACTERS = 4_000
"""Above this length the token count is extrapolated from a sample."""

ERRORS_SHOWN = 6
ERROR_CHARACTERS = 160
ARGUMENT_CHARACTERS = 120

TIGHT = 120
"""Below this many characters only the error is shown, if there is one."""

TextSpan = tuple[int, int]
"""Start and end of a part of a text."""


def count_tokens(text: str, count: TokenCounter) -> int:
    """Count the tokens of a text; estimated if it is long."""
    if len(text) <= SAMPLED_CHARACTERS:
        return count(text)
    size = SAMPLED_CHARACTERS // 4
    starts = [(len(text) - size) * which // 3 for which in range(4)]
    return sum(count(text[start : start + size]) for start in starts) * len(text) // SAMPLED_CHARACTERS + 1


def shorten_text(text: str, room: int, count: TokenCounter, ref: str) -> str:
    """Shorten a text to at most `room` tokens, if possible. A note says how much is missing and how to open it."""
    if count_tokens(text, count) <= room and count(text) <= room:
        return text
    note = f"[shortened: {text.count(chr(10)) + 1:,} lines, {len(text):,} characters; open {ref}]"
    if count(note) > room // 2:
        note = f"[shortened; open {ref}]"
    wrong, characters = complaints(text), max(0, (room - count(note)) * 3)
    while characters > 0:
        made = _compose_excerpt(text, note, characters, wrong)
        if count(made) <= room:
            return made
        characters = characters * 4 // 5 if characters > 10 else 0
    return note


def _compose_excerpt(text: str, note: str, characters: int, wrong: ErrorLines) -> str:
    """Return the beginning, the end, and error lines between them; up to half of it if the error is certain."""
    share = 1 if wrong.strong and characters < TIGHT else 2 if wrong.strong else 5
    each = (characters - characters // share) // 2
    head, tail = _take_head(text, each), _take_tail(text, each)
    errors = _errors(text, wrong, (len(head), len(text) - len(tail)), characters // share)
    left = characters - sum(end - begin for begin, end in errors)
    head, tail = max(head, _take_head(text, left // 2), key=len), max(tail, _take_tail(text, left // 2), key=len)
    return "\n".join(line for line in (note, *_render_excerpt(text, head, errors, tail)) if line)


def _take_head(text: str, size: int) -> str:
    """Return the beginning, in whole lines unless they are too long."""
    part = text[:size]
    cut = part.rfind("\n")
    return part[: cut + 1] if cut >= size // 2 else part


def _take_tail(text: str, size: int) -> str:
    part = text[len(text) - size :]
    cut = part.find("\n")
    return part[cut + 1 :] if 0 <= cut < size // 2 else part


def _errors(text: str, wrong: ErrorLines, between: TextSpan, size: int) -> list[TextSpan]:
    """Return the most significant error lines that are not shown anyway, with as much of their context as fits."""
    parts = [(item, _part(item, min(size, ERROR_CHARACTERS))) for item in wrong.iterate_by_weight()]
    lines = [part for part, (begin, end) in parts if end > between[0] and begin < between[1]][:ERRORS_SHOWN]
    spans = list[TextSpan]()
    for line in lines:
        size -= _take(spans, _part(line, min(size, ERROR_CHARACTERS)), size)
    for line in lines if wrong.strong else ():
        for near in _adjacent_lines(text, line):
            size -= _take(spans, near, size)
    return sorted(spans)


def _take(spans: list[TextSpan], span: TextSpan, size: int) -> int:
    """Add a part if there is room. Returns how much it takes."""
    begin, end = span
    if not 0 < end - begin <= size or any(begin < other[1] and other[0] < end for other in spans):
        return 0
    spans.append(span)
    return end - begin


def _part(line: ErrorLine, size: int) -> TextSpan:
    """Return a line, or the part of a long line around the word."""
    if line.end - line.begin <= size:
        return line.begin, line.end
    begin = max(line.begin, line.place - size // 2) if line.place - line.begin > size // 2 else line.begin
    return begin, min(line.end, begin + size)


def _adjacent_lines(text: str, line: ErrorLine) -> Iterator[TextSpan]:
    """Yield the lines before and after one, unless they are long."""
    begin, end = text.rfind("\n", 0, max(0, line.begin - 1)) + 1, text.find("\n", line.end + 1)
    for near in ((begin, line.begin - 1), (line.end + 1, end if end >= 0 else len(text))):
        if 0 < near[1] - near[0] <= ERROR_CHARACTERS:
            yield near


def _render_excerpt(text: str, head: str, errors: Sequence[TextSpan], tail: str) -> Iterator[str]:
    """Yield all parts in order, each once, with a mark at each gap."""
    begin, end = len(head), len(text) - len(tail)
    yield head.rstrip()
    at = begin
    for first, last in errors:
        if last <= at or first >= end:
            continue
        first, last = max(first, at), min(last, end)
        if text[at:first].strip():
            yield "[...]"
        cut_before = first > at and text[first - 1] != "\n"
        cut_after = last < end and text[last : last + 1] != "\n"
        yield ("…" if cut_before else "") + text[first:last].strip("\n") + ("…" if cut_after else "")
        at = last
    if text[at:end].strip():
        yield "[...]"
    yield tail.lstrip("\n") if tail.strip() else ""


class PartLimits(msgspec.Struct, frozen=True):
    """The maximum tokens of each part of a message."""

    text: int
    result: int
    arguments: int = 1 << 30
    others: bool = True
    """Whether images, reasoning and the like stay."""


def mask_message(one: ParsedMessage, room: PartLimits, count: TokenCounter, ref: str) -> ParsedMessage:
    """Shorten the long parts of a message. Returns the same object if there are none."""
    parts = tuple(_mask_part(part, room, count, ref) for part in one.parts)
    if all(new is old for new, old in zip(parts, one.parts, strict=True)):
        return one
    return ParsedMessage(one.role, parts, one.shape)


def _mask_part(part: MessagePart, room: PartLimits, count: TokenCounter, ref: str) -> MessagePart:
    if isinstance(part, TextPart):
        text = shorten_text(part.text, room.text, count, ref)
        return part if text is part.text else TextPart(text)
    if isinstance(part, ToolResultPart):
        text = shorten_text(part.text, room.result, count, ref)
        if text is part.text and (room.others or not part.others):
            return part
        told = f"\n[open {ref}]" if text is part.text else ""
        return ToolResultPart(part.id, text + told, part.error)
    if isinstance(part, ToolCallPart):
        if count_tokens(part.arguments, count) <= room.arguments:
            return part
        return ToolCallPart(part.id, part.name, _shorten_arguments(part.arguments, ref))
    return part if room.others else TextPart("" if "thinking" in part.kind else f"[{part.kind}, open {ref}]")


def _shorten_arguments(arguments: str, ref: str) -> str:
    """Shorten long texts in JSON arguments; the result is still JSON."""
    try:
        given = json.loads(arguments)
    except ValueError:
        given = arguments
    short = _shorten_value(given, ref)
    text = to_json_text(short if isinstance(short, dict) else {"arguments": short})
    return text if len(text) < len(arguments) else to_json_text({"shortened": f"open {ref}"})


def _shorten_value(value: Any, ref: str) -> Any:
    if isinstance(value, str) and len(value) > ARGUMENT_CHARACTERS:
        return f"{value[:ARGUMENT_CHARACTERS]}… [{len(value):,} characters; open {ref}]"
    if isinstance(value, dict):
        shown = {key: _shorten_value(part, ref) for key, part in list(value.items())[:20]}
        return shown if len(value) <= 20 else {**shown, "…": f"{len(value) - 20} more"}
    if isinstance(value, list):
        return [_shorten_value(part, ref) for part in value[:10]] + (
            [f"… {len(value) - 10} more"] if len(value) > 10 else []
        )
    return value


def size_of(one: ParsedMessage, count: TokenCounter) -> int:
    """Return the tokens of a message including the provider's overhead; estimated if it is long."""
    return _provider_overhead(one) + sum(_size(part, lambda text: count_tokens(text, count)) for part in one.parts)


def size_exactly(one: ParsedMessage, count: TokenCounter) -> int:
    """Return the exact tokens of a message including the provider's overhead."""
    return _provider_overhead(one) + sum(_size(part, count) for part in one.parts)


def _provider_overhead(one: ParsedMessage) -> int:
    """Return the provider's overhead. In OpenAI's format each tool result is a message of its own."""
    results = len(one.results)
    return MESSAGE_TOKENS * max(1, results + (results < len(one.parts)))


MESSAGE_TOKENS = 4
"""The overhead of a message: role and delimiters."""
CALL_TOKENS = 8
"""The overhead of a tool call or result: its id and kind."""
OTHER_TOKENS = 1_000
"""The estimated size of an image or document, which providers count by its dimensions."""


def _size(part: MessagePart, count: TokenCounter) -> int:
    if isinstance(part, TextPart):
        return count(part.text)
    if isinstance(part, ToolResultPart):
        return CALL_TOKENS + count(part.text) + part.others * OTHER_TOKENS
    if isinstance(part, ToolCallPart):
        return CALL_TOKENS + count(part.name) + count(part.arguments)
    if isinstance(thought := part.raw.get("thinking"), str):
        return count(thought)
    return OTHER_TOKENS
