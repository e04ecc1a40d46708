"""Where a long text says what went wrong: the last line of a traceback, lines that name an error, and others.

A text of a megabyte is gone through with `str.find` only, and of many such lines the first and the last few are looked
at: what broke first and what it came to in the end are what one wants to know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

EACH_WAY = 2
"""Lines that are looked at for one word, from the beginning and from the end."""

FRAMES_MAX = 400
"""Lines of one traceback."""

NEAR = 80
"""Characters of a long line, on each side of the word."""

_TRACEBACK = "Traceback (most recent call last)"
_SAID = {
    "traceback": (),
    "error": ("Error:", "error:", "ERROR", "error[", '"error"'),
    "exception": ("Exception:", "EXCEPTION"),
    "fatal": ("fatal:", "FATAL"),
    "panic": ("panic:", "panicked at"),
    "failed": ("FAILED",),
    "failure": ("FAILURE",),
    "denied": ("denied:", "Permission denied"),
    "refused": (),
    "timed out": (),
}
"""Words in a line that tells of something wrong; and how they are written where it is what went wrong."""

_DIGITS = re.compile(r"\d")
_NOTHING_WRONG = re.compile(r"\b(?:0|no|zero|without)\s+(?:\w+\s+)?(?:errors?|exceptions?|failed|failures?)\b", re.I)
_SOME_WRONG = re.compile(r"\b[1-9]\d*\s+(?:(?!no|without)\w+\s+)?(?:errors?|exceptions?|failed|failures?)\b", re.I)


class Line(msgspec.Struct, frozen=True):
    """A line of a text, and where in it the word is."""

    begin: int
    end: int
    place: int


class Complaints(msgspec.Struct, frozen=True):
    """What was found in a text, each kind in the order of the text."""

    raised: Sequence[Line] = ()
    """What exceptions said: the last lines of tracebacks."""
    named: Sequence[Line] = ()
    """Lines that name an error as errors are named."""
    others: Sequence[Line] = ()
    """Lines that only have such a word."""

    def __bool__(self) -> bool:
        return bool(self.raised or self.named or self.others)

    @property
    def strong(self) -> bool:
        """Whether something is surely wrong."""
        return bool(self.raised or self.named)

    def by_weight(self) -> Iterator[Line]:
        """The first and the last of each kind, what tells most first; then those between them."""
        kinds = [list(_outside_in(lines)) for lines in (self.raised, self.named, self.others)]
        for first in (True, False):
            for lines in kinds:
                yield from lines[:2] if first else lines[2:]


def _outside_in(lines: Sequence[Line]) -> Iterator[Line]:
    left = list(lines)
    while left:
        yield left.pop(0)
        if left:
            yield left.pop()


def complaints(text: str) -> Complaints:
    """The lines of a text that tell of something wrong."""
    small = text.lower()
    if len(small) != len(text):  # a letter that has none of its size: places would not be the same
        small = text
    words = [word for word in _SAID if word in small]
    if not words:
        return Complaints()
    tracebacks = list(_places(text, _TRACEBACK)) if "traceback" in words else []
    thrown = _lines(text, [place for it in tracebacks for place in _raised_in(text, it)], surely=True)
    # How a traceback begins says nothing of what it was about.
    known = {line.begin for line in (*thrown, *_lines(text, tracebacks))}
    named = [line for line in _lines(text, _named(text, words)) if line.begin not in known]
    known.update(line.begin for line in named)
    others = [place for word in words for place in _places(small, word)]
    return Complaints(thrown, named, [line for line in _lines(text, others) if line.begin not in known])


def raised(text: str) -> str:
    """What the last traceback in a text says that it was; empty without one."""
    place = text.rfind(_TRACEBACK)
    found = [text[it : it + 2 * NEAR].partition("\n")[0] for it in _raised_in(text, place)] if place >= 0 else []
    return found[0] if found else ""


def _named(text: str, words: Sequence[str]) -> Iterator[int]:
    for word in words:
        for written in _SAID[word]:
            yield from _places(text, written)


def _places(text: str, word: str) -> Iterator[int]:
    """Where a word is, in the first few lines that have it and in the last few."""
    place = text.find(word)
    for _ in range(EACH_WAY):
        if place < 0:
            return
        yield place
        end = text.find("\n", place)
        place = text.find(word, end) if end >= 0 else -1
    place = text.rfind(word)
    for _ in range(EACH_WAY):
        if place < 0:
            return
        yield place
        begin = text.rfind("\n", 0, place)
        place = text.rfind(word, 0, begin) if begin >= 0 else -1


def _raised_in(text: str, traceback: int) -> Iterator[int]:
    """Where the exception of a traceback is: in the first line behind it that is not of a frame."""
    begin = text.rfind("\n", 0, traceback) + 1
    before, here = text[begin:traceback], text.find("\n", traceback)
    for _ in range(FRAMES_MAX):
        if here < 0 or here + 1 >= len(text):
            return
        start, here = here + 1, text.find("\n", here + 1)
        line = text[start : here if here >= 0 else len(text)]
        # What stands before every line, in a log or an indented block, is no part of it.
        own = line[len(before) :] if _alike(line[: len(before)], before) else line
        if own.strip() and not own[0].isspace():
            yield start + line.index(own)
            return


def _alike(one: str, other: str) -> bool:
    """Whether two texts differ in nothing but numbers, as the times of a log do."""
    return one == other or _DIGITS.sub("0", one) == _DIGITS.sub("0", other)


def _lines(text: str, places: Iterable[int], *, surely: bool = False) -> list[Line]:
    """The lines around some places, once each; those that say that nothing is wrong are left out."""
    found: dict[int, Line] = {}
    for place in sorted(places):
        begin, end = text.rfind("\n", 0, place) + 1, text.find("\n", place)
        line = Line(begin, end if end >= 0 else len(text), place)
        if begin not in found and (surely or not _says_all_is_well(text, line)):
            found[begin] = line
    return list(found.values())


def _says_all_is_well(text: str, line: Line) -> bool:
    """Whether it is `0 failed`, and not `3 failed, 0 errors`."""
    words = text[max(line.begin, line.place - NEAR) : min(line.end, line.place + NEAR)]
    return _NOTHING_WRONG.search(words) is not None and _SOME_WRONG.search(words) is None
