"""Pointers to what is not shown: `perdure:trip-42#17` is message 17 of run trip-42, `#3-40` are several."""

from __future__ import annotations

import re

import msgspec

from ..errors import RefNotFound

SCHEME = "perdure:"
MEMORY = "memory:"
"""And `memory:ID` is a memory of the agent."""
_OPEN = re.compile(r"(?:^|\W)open (?=perdure:|memory:)")
"""How a pointer stands in a text that was shortened."""
_REF = re.compile(r"(?:perdure:)?(?P<run>.+)#(?P<first>\d+)(?:-(?P<last>\d+))?", re.DOTALL)


class Ref(msgspec.Struct, frozen=True):
    """Messages of a run, from one to another."""

    run: str
    first: int
    last: int

    def __str__(self) -> str:
        return ref_to(self.run, self.first, self.last)


def ref_to(run: str, first: int, last: int | None = None) -> str:
    """The pointer to a message, or to several, by their numbers."""
    return f"{SCHEME}{run}#{first}" + (f"-{last}" if last is not None and last != first else "")


def bare(text: str) -> str:
    """A pointer alone: models put all kinds of quotes around one, or copy the line that it stands in."""
    return _OPEN.split(text)[-1].strip().strip("[]()<>\"'`.").removeprefix("open ").strip()


def parse(text: object) -> Ref | str:
    """What a pointer says: which messages, or the id of a memory."""
    if not isinstance(text, str):
        raise TypeError(f"a pointer is a text such as 'perdure:trip-42#17', not {text!r}")
    if bare(text).startswith(MEMORY):
        return bare(text).removeprefix(MEMORY)
    match = _REF.fullmatch(bare(text))
    if match is None:
        raise RefNotFound(f"{text!r} is no pointer to a message")
    first = int(match["first"])
    return Ref(match["run"], first, int(match["last"] or first))
