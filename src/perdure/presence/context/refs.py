"""Pointers to messages and memories: `perdure:trip-42#17` is message 17 of run trip-42; `#3-40` is a range."""

from __future__ import annotations

import re

import msgspec

from perdure.errors import RefNotFound, WrongType

SCHEME = "perdure:"
MEMORY = "memory:"
"""The prefix of a pointer to a memory: `memory:ID`."""
_OPEN = re.compile(r"(?:^|\W)open (?=perdure:|memory:)")
"""Precedes a pointer in a shortened text."""
_REF = re.compile(r"(?:perdure:)?(?P<run>.+)#(?P<first>\d+)(?:-(?P<last>\d+))?", re.DOTALL)


class MessageRef(msgspec.Struct, frozen=True):
    """A range of messages of a run."""

    run: str
    first: int
    last: int

    def __str__(self) -> str:
        return ref_to(self.run, self.first, self.last)


def ref_to(run: str, first: int, last: int | None = None) -> str:
    """Return the pointer to a message or a range of messages."""
    return f"{SCHEME}{run}#{first}" + (f"-{last}" if last is not None and last != first else "")


def extract_pointer(text: str) -> str:
    """Extract a pointer: models put quotes around it, or copy the whole line."""
    return _OPEN.split(text)[-1].strip().strip("[]()<>\"'`.").removeprefix("open ").strip()


def parse(text: object) -> MessageRef | str:
    """Parse a pointer into a range of messages, or the id of a memory."""
    if not isinstance(text, str):
        raise WrongType(f"a pointer is a text such as 'perdure:trip-42#17', not {text!r}")
    if extract_pointer(text).startswith(MEMORY):
        return extract_pointer(text).removeprefix(MEMORY)
    match = _REF.fullmatch(extract_pointer(text))
    if match is None:
        raise RefNotFound(f"{text!r} is not a pointer to a message")
    first = int(match["first"])
    return MessageRef(match["run"], first, int(match["last"] or first))
