"""A long text made short: its beginning, its end, the lines that tell of errors, and where the rest is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ..tokens import Tokens
from .complaints import Complaints, Line, complaints
from .said import Call, Part, Result, Said, Text, as_json

SAMPLED_CHARACTERS = 4_000
"""Of a longer text a part is counted, and the rest is taken to be like it."""

ERRORS_SHOWN = 6
ERROR_CHARACTERS = 160
ARGUMENT_CHARACTERS = 120

TIGHT = 120
"""Characters in which nothing but what went wrong is said, when something did."""

Span = tuple[int, int]
"""A part of a text: where it begins and ends."""


def measured(text: str, count: Tokens) -> int:
    """How many tokens a text has: exactly, or of a long one about."""
    if len(text) <= SAMPLED_CHARACTERS:
        return count(text)
    size = SAMPLED_CHARACTERS // 4
    starts = [(len(text) - size) * which // 3 for which in range(4)]
    return sum(count(text[start : start + size]) for start in starts) * len(text) // SAMPLED_CHARACTERS + 1


def shortened(text: str, room: int, count: Tokens, ref: str) -> str:
    """A text in at most so many tokens, if that is possible at all: what is left out is named, and how to open it."""
    if measured(text, count) <= room and count(text) <= room:
        return text
    note = f"[shortened: {text.count(chr(10)) + 1:,} lines, {len(text):,} characters; open {ref}]"
    if count(note) > room // 2:
        note = f"[shortened; open {ref}]"
    wrong, characters = complaints(text), max(0, (room - count(note)) * 3)
    while characters > 0:
        made = _composed(text, note, characters, wrong)
        if count(made) <= room:
            return made
        characters = characters * 4 // 5 if characters > 10 else 0
    return note


def _composed(text: str, note: str, characters: int, wrong: Complaints) -> str:
    """The beginning, the end, and between them what tells of something wrong: in half of it if that is for sure."""
    share = 1 if wrong.strong and characters < TIGHT else 2 if wrong.strong else 5
    each = (characters - characters // share) // 2
    head, tail = _first(text, each), _last(text, each)
    errors = _errors(text, wrong, (len(head), len(text) - len(tail)), characters // share)
    left = characters - sum(end - begin for begin, end in errors)
    head, tail = max(head, _first(text, left // 2), key=len), max(tail, _last(text, left // 2), key=len)
    return "\n".join(line for line in (note, *_shown(text, head, errors, tail)) if line)


def _first(text: str, size: int) -> str:
    """The beginning, in whole lines when they are not too long."""
    part = text[:size]
    cut = part.rfind("\n")
    return part[: cut + 1] if cut >= size // 2 else part


def _last(text: str, size: int) -> str:
    part = text[len(text) - size :]
    cut = part.find("\n")
    return part[cut + 1 :] if 0 <= cut < size // 2 else part


def _errors(text: str, wrong: Complaints, between: Span, size: int) -> list[Span]:
    """The lines that tell most, of those that are not shown anyway, and as much as fits of what stands around them."""
    parts = [(it, _part(it, min(size, ERROR_CHARACTERS))) for it in wrong.by_weight()]
    lines = [it for it, (begin, end) in parts if end > between[0] and begin < between[1]][:ERRORS_SHOWN]
    spans = list[Span]()
    for line in lines:
        size -= _take(spans, _part(line, min(size, ERROR_CHARACTERS)), size)
    for line in lines if wrong.strong else ():
        for near in _beside(text, line):
            size -= _take(spans, near, size)
    return sorted(spans)


def _take(spans: list[Span], span: Span, size: int) -> int:
    """Adds a part, if there is room for it; how much it takes."""
    begin, end = span
    if not 0 < end - begin <= size or any(begin < other[1] and other[0] < end for other in spans):
        return 0
    spans.append(span)
    return end - begin


def _part(line: Line, size: int) -> Span:
    """A line, or of a long one what stands around the word."""
    if line.end - line.begin <= size:
        return line.begin, line.end
    begin = max(line.begin, line.place - size // 2) if line.place - line.begin > size // 2 else line.begin
    return begin, min(line.end, begin + size)


def _beside(text: str, line: Line) -> Iterator[Span]:
    """The lines before and after one, unless they are long: where it went wrong, and what else is said of it."""
    begin, end = text.rfind("\n", 0, max(0, line.begin - 1)) + 1, text.find("\n", line.end + 1)
    for near in ((begin, line.begin - 1), (line.end + 1, end if end >= 0 else len(text))):
        if 0 < near[1] - near[0] <= ERROR_CHARACTERS:
            yield near


def _shown(text: str, head: str, errors: Sequence[Span], tail: str) -> Iterator[str]:
    """All parts in their order, each once, with a mark where something is left out."""
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


class Room(msgspec.Struct, frozen=True):
    """How much each part of a message may have, in tokens."""

    text: int
    result: int
    arguments: int = 1 << 30
    others: bool = True
    """Whether images, thoughts and the like stay."""


def masked(one: Said, room: Room, count: Tokens, ref: str) -> Said:
    """A message with what is too long in it made short. The same object when nothing is."""
    parts = tuple(_masked(part, room, count, ref) for part in one.parts)
    if all(new is old for new, old in zip(parts, one.parts, strict=True)):
        return one
    return Said(one.role, parts, one.shape)


def _masked(part: Part, room: Room, count: Tokens, ref: str) -> Part:
    if isinstance(part, Text):
        text = shortened(part.text, room.text, count, ref)
        return part if text is part.text else Text(text)
    if isinstance(part, Result):
        text = shortened(part.text, room.result, count, ref)
        if text is part.text and (room.others or not part.others):
            return part
        told = f"\n[open {ref}]" if text is part.text else ""
        return Result(part.id, text + told, part.error)
    if isinstance(part, Call):
        if measured(part.arguments, count) <= room.arguments:
            return part
        return Call(part.id, part.name, _short_arguments(part.arguments, ref))
    return part if room.others else Text("" if "thinking" in part.kind else f"[{part.kind}, open {ref}]")


def _short_arguments(arguments: str, ref: str) -> str:
    """Arguments are JSON, and stay JSON: their long texts are cut."""
    try:
        given = json.loads(arguments)
    except ValueError:
        given = arguments
    short = _short_value(given, ref)
    text = as_json(short if isinstance(short, dict) else {"arguments": short})
    return text if len(text) < len(arguments) else as_json({"shortened": f"open {ref}"})


def _short_value(value: Any, ref: str) -> Any:
    if isinstance(value, str) and len(value) > ARGUMENT_CHARACTERS:
        return f"{value[:ARGUMENT_CHARACTERS]}… [{len(value):,} characters; open {ref}]"
    if isinstance(value, dict):
        shown = {key: _short_value(it, ref) for key, it in list(value.items())[:20]}
        return shown if len(value) <= 20 else {**shown, "…": f"{len(value) - 20} more"}
    if isinstance(value, list):
        return [_short_value(it, ref) for it in value[:10]] + ([f"… {len(value) - 10} more"] if len(value) > 10 else [])
    return value


def size_of(one: Said, count: Tokens) -> int:
    """The tokens of a message, with what a shape adds to it; of a long one about."""
    return _around(one) + sum(_size(part, lambda text: measured(text, count)) for part in one.parts)


def size_exactly(one: Said, count: Tokens) -> int:
    """The same, counted to the end."""
    return _around(one) + sum(_size(part, count) for part in one.parts)


def _around(one: Said) -> int:
    """What a provider adds: in one of the shapes each result is a message of its own."""
    results = len(one.results)
    return MESSAGE_TOKENS * max(1, results + (results < len(one.parts)))


MESSAGE_TOKENS = 4
"""What a provider adds to each message: who says it, where it ends."""
CALL_TOKENS = 8
"""The same of a call or a result: its id, its kind."""
OTHER_TOKENS = 1_000
"""An image, a document: providers count them by their sizes, about like this."""


def _size(part: Part, count: Tokens) -> int:
    if isinstance(part, Text):
        return count(part.text)
    if isinstance(part, Result):
        return CALL_TOKENS + count(part.text) + part.others * OTHER_TOKENS
    if isinstance(part, Call):
        return CALL_TOKENS + count(part.name) + count(part.arguments)
    if isinstance(thought := part.raw.get("thinking"), str):
        return count(thought)
    return OTHER_TOKENS
