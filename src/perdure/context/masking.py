"""A long text made short: its beginning, its end, the lines that tell of errors, and where the rest is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from ..tokens import Tokens
from .said import Call, Part, Result, Said, Text, as_json

SAMPLED_CHARACTERS = 4_000
"""Of a longer text a part is counted, and the rest is taken to be like it."""

ERRORS_SHOWN = 4
ERROR_CHARACTERS = 160
ARGUMENT_CHARACTERS = 120

_ERRORS = ("error", "exception", "traceback", "fatal", "panic", "failed", "failure", "denied", "refused", "timed out")
"""Words in a line that tells of something wrong."""


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
    characters = max(0, (room - count(note)) * 3)
    while True:
        made = _composed(text, note, characters)
        if characters == 0 or count(made) <= room:
            return made
        characters = characters * 4 // 5 if characters > 40 else 0


def _composed(text: str, note: str, characters: int) -> str:
    if characters == 0:
        return note
    head, tail = _first(text, characters * 2 // 5), _last(text, characters * 2 // 5)
    between = text[len(head) : len(text) - len(tail)]
    errors = _errors(between, characters // 5)
    return "\n".join(line for line in (note, head.rstrip(), *errors, "[...]", tail.lstrip("\n")) if line)


def _first(text: str, size: int) -> str:
    """The beginning, in whole lines when they are not too long."""
    part = text[:size]
    cut = part.rfind("\n")
    return part[: cut + 1] if cut >= size // 2 else part


def _last(text: str, size: int) -> str:
    part = text[len(text) - size :]
    cut = part.find("\n")
    return part[cut + 1 :] if 0 <= cut < size // 2 else part


def _errors(text: str, size: int) -> list[str]:
    """The first lines that tell of something wrong, once each."""
    small = text.lower()
    if len(small) != len(text):  # a letter that has none of its size: places would not be the same
        small = text
    places = sorted(place for word in _ERRORS for place in _places(small, word))
    found = dict.fromkeys(_line_at(text, place) for place in places)
    shown, used = list[str](), 0
    for line in list(found)[:ERRORS_SHOWN]:
        used += len(line)
        if used <= size:
            shown += ["[...]", line]
    return shown


def _places(text: str, word: str) -> Iterator[int]:
    """Where a word is, in the first few lines that have it."""
    place = text.find(word)
    for _ in range(ERRORS_SHOWN):
        if place < 0:
            return
        yield place
        end = text.find("\n", place)
        place = text.find(word, end) if end >= 0 else -1


def _line_at(text: str, place: int) -> str:
    """The line around a place, without most of it when it is long."""
    begin, end = text.rfind("\n", 0, place) + 1, text.find("\n", place)
    line = text[max(begin, place - ERROR_CHARACTERS // 2) : end if end >= 0 else len(text)].strip()
    return line if len(line) <= ERROR_CHARACTERS else line[: ERROR_CHARACTERS - 1] + "…"


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
        return part if text is part.text else Result(part.id, text, part.error)
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
    return MESSAGE_TOKENS + sum(_size(part, lambda text: measured(text, count)) for part in one.parts)


def size_exactly(one: Said, count: Tokens) -> int:
    """The same, counted to the end."""
    return MESSAGE_TOKENS + sum(_size(part, count) for part in one.parts)


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
        return CALL_TOKENS + count(part.text)
    if isinstance(part, Call):
        return CALL_TOKENS + count(part.name) + count(part.arguments)
    if isinstance(thought := part.raw.get("thinking"), str):
        return count(thought)
    return OTHER_TOKENS
