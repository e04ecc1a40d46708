"""Finds the lines of a long text that report errors: the last line of a traceback, and lines that name an error.

Megabytes are searched with `str.find` only. Of many matching lines, the first and last few are examined: they show
what failed first and how it ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

EACH_WAY = 2
"""How many matching lines per word are examined, from the beginning and from the end."""

FRAMES_MAX = 400
"""Maximum number of lines of one traceback."""

NEAR = 80
"""Characters of a long line that are kept on each side of the word."""

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
"""Words that indicate an error; and their spelling where they name one."""

_DIGITS = re.compile(r"\d")
_NOTHING_WRONG = re.compile(r"\b(?:0|no|zero|without)\s+(?:\w+\s+)?(?:errors?|exceptions?|failed|failures?)\b", re.I)
_SOME_WRONG = re.compile(r"\b[1-9]\d*\s+(?:(?!no|without)\w+\s+)?(?:errors?|exceptions?|failed|failures?)\b", re.I)


class ErrorLine(msgspec.Struct, frozen=True):
    """A line of a text, and the position of the word in it."""

    begin: int
    end: int
    place: int


class ErrorLines(msgspec.Struct, frozen=True):
    """The matching lines of a text, each kind in order."""

    raised: Sequence[ErrorLine] = ()
    """Exceptions: the last lines of tracebacks."""
    named: Sequence[ErrorLine] = ()
    """Lines that name an error in its usual spelling."""
    others: Sequence[ErrorLine] = ()
    """Lines that only contain such a word."""

    def __bool__(self) -> bool:
        return bool(self.raised or self.named or self.others)

    @property
    def strong(self) -> bool:
        """Whether an error is certain."""
        return bool(self.raised or self.named)

    def iterate_by_weight(self) -> Iterator[ErrorLine]:
        """Yield the first and last line of each kind, most significant kind first; then those between."""
        kinds = [list(_alternate_ends(lines)) for lines in (self.raised, self.named, self.others)]
        for first in (True, False):
            for lines in kinds:
                yield from lines[:2] if first else lines[2:]


def _alternate_ends(lines: Sequence[ErrorLine]) -> Iterator[ErrorLine]:
    left = list(lines)
    while left:
        yield left.pop(0)
        if left:
            yield left.pop()


def complaints(text: str) -> ErrorLines:
    """Return the lines of a text that report errors."""
    small = text.lower()
    if len(small) != len(text):  # lower-casing changed the length, so positions would not match
        small = text
    words = [word for word in _SAID if word in small]
    if not words:
        return ErrorLines()
    tracebacks = list(_places(text, _TRACEBACK)) if "traceback" in words else []
    thrown = _lines(
        text, [place for traceback in tracebacks for place in _find_exception_positions(text, traceback)], surely=True
    )
    # The first line of a traceback does not name the error.
    known = {line.begin for line in (*thrown, *_lines(text, tracebacks))}
    named = [line for line in _lines(text, _find_named_lines(text, words)) if line.begin not in known]
    known.update(line.begin for line in named)
    others = [place for word in words for place in _places(small, word)]
    return ErrorLines(thrown, named, [line for line in _lines(text, others) if line.begin not in known])


def find_exception_line(text: str) -> str:
    """Return the exception line of the last traceback in a text; empty without one."""
    place = text.rfind(_TRACEBACK)
    found = (
        [text[start : start + 2 * NEAR].partition("\n")[0] for start in _find_exception_positions(text, place)]
        if place >= 0
        else []
    )
    return found[0] if found else ""


def _find_named_lines(text: str, words: Sequence[str]) -> Iterator[int]:
    for word in words:
        for written in _SAID[word]:
            yield from _places(text, written)


def _places(text: str, word: str) -> Iterator[int]:
    """Yield the positions of a word, in the first and last few lines that have it."""
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


def _find_exception_positions(text: str, traceback: int) -> Iterator[int]:
    """Yield the position of a traceback's exception: the first line after it that is not part of a frame."""
    begin = text.rfind("\n", 0, traceback) + 1
    before, here = text[begin:traceback], text.find("\n", traceback)
    for _ in range(FRAMES_MAX):
        if here < 0 or here + 1 >= len(text):
            return
        start, here = here + 1, text.find("\n", here + 1)
        line = text[start : here if here >= 0 else len(text)]
        # Ignore a prefix of every line, such as a timestamp or indentation.
        own = line[len(before) :] if _differ_only_in_digits(line[: len(before)], before) else line
        if own.strip() and not own[0].isspace():
            yield start + line.index(own)
            return


def _differ_only_in_digits(one: str, other: str) -> bool:
    """Return whether two texts differ only in digits, as log timestamps do."""
    return one == other or _DIGITS.sub("0", one) == _DIGITS.sub("0", other)


def _lines(text: str, places: Iterable[int], *, surely: bool = False) -> list[ErrorLine]:
    """Return the lines around some positions, once each, without lines that report success."""
    found: dict[int, ErrorLine] = {}
    for place in sorted(places):
        begin, end = text.rfind("\n", 0, place) + 1, text.find("\n", place)
        line = ErrorLine(begin, end if end >= 0 else len(text), place)
        if begin not in found and (surely or not _reports_success(text, line)):
            found[begin] = line
    return list(found.values())


def _reports_success(text: str, line: ErrorLine) -> bool:
    """Return whether a line reports success: `0 failed`, but not `3 failed, 0 errors`."""
    words = text[max(line.begin, line.place - NEAR) : min(line.end, line.place + NEAR)]
    return _NOTHING_WRONG.search(words) is not None and _SOME_WRONG.search(words) is None
