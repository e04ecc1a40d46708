"""Merging texts that two have changed, by lines. Nothing here reads or writes anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

import msgspec

LINES_MAX = 4000
"""Longer pieces that differ are not compared line by line: both are kept."""

OURS, BETWEEN, THEIRS = "<<<<<<< the journal\n", "=======\n", ">>>>>>> the file\n"

Lines = Sequence[str]


class Merged(msgspec.Struct, frozen=True):
    """What became of a text that two have changed."""

    text: str
    conflict: bool = False
    """Whether both have changed the same place: then both versions are there, marked."""


class _Region(msgspec.Struct, frozen=True):
    base: Lines
    ours: Lines
    theirs: Lines


def merge(base: str | None, ours: str, theirs: str) -> Merged:
    """What both have changed since `base`: what each has added and removed. Contradictions are kept between marks.

    Without a base nobody knows what was removed, so nothing is: each line that is in one of them is in the result.
    """
    if ours == theirs or base == theirs:
        return Merged(ours)
    if base == ours:
        return Merged(theirs)
    base, ours, theirs = _ending_alike(base, ours, theirs)
    mine, yours = _lines(ours), _lines(theirs)
    regions = _regions(_lines(base) if base is not None else _shared(mine, yours), mine, yours)
    parts, conflict = list[str](), False
    for region in regions:
        chosen = _chosen(region, base is not None)
        if chosen is None:
            conflict = True
            chosen = [OURS, *_ended(region.ours), BETWEEN, *_ended(region.theirs), THEIRS]
        parts += chosen
    return Merged(_joined(parts, ours, theirs), conflict)


def is_marked(text: str) -> bool:
    """Whether there are marks of a contradiction that nobody has settled."""
    return OURS.strip() in text and _has(_lines(text.replace("\r\n", "\n") + "\n"), (OURS, BETWEEN, THEIRS))


def merge_notes(base: str, ours: str, theirs: str, *, guessed: bool = False) -> str:
    """A text that is made anew (`ours`), with the lines that somebody has added to the one that was made before.

    There are no marks: what was made is known, and is made again. What somebody has added is kept as it is. If the
    base is only `guessed`, no line is added that is there.
    """
    if base in (ours, theirs):
        return theirs if base == ours else ours
    parts, there = list[str](), {line.strip() for line in _lines(ours)} if guessed else set[str]()
    for region in _regions(_lines(base), _lines(ours), _lines(theirs)):
        added = [line for line in _beyond(region.theirs, region.base) if line.strip() not in there]
        parts += [*_ended(region.ours), *_beyond(added, region.ours, blank=False)]
    return _joined(parts, ours, theirs)


def notes_of(made: str, text: str) -> str:
    """What somebody has written in place of a text that was made, as he has written it.

    Only pieces of what was made that he has left are none of his. A single line, such as a heading, may well be.
    """
    mine = _lines(text)
    left = [(at, size) for _, at, size in _blocks(_lines(made), mine) if _said(mine[at : at + size]) > 1]
    taken = {place for at, size in left for place in range(at, at + size)}
    found = "".join(line for place, line in enumerate(mine) if place not in taken).strip("\n")
    return f"{found}\n" if found else ""


def _said(lines: Lines) -> int:
    return sum(1 for line in lines if line.strip())


def _beyond(lines: Lines, others: Lines, *, blank: bool = True) -> list[str]:
    """The lines that are not among others, by their order; empty ones alone say nothing unless they count."""
    mine = list(lines)
    blocks = [
        (at, size) for _, at, size in _blocks(list(others), mine) if blank or "".join(mine[at : at + size]).strip()
    ]
    taken = {place for at, size in blocks for place in range(at, at + size)}
    return [line for place, line in enumerate(mine) if place not in taken]


def _ending_alike(base: str | None, ours: str, theirs: str) -> tuple[str | None, str, str]:
    """The texts with the ends of lines that the one has who has changed them: else no line would be the same."""
    styles = [text is not None and "\r\n" in text for text in (base, ours, theirs)]
    if styles[1] == styles[2]:
        return base, ours, theirs
    wanted = "\n" if styles[0] else "\r\n"
    texts = [
        text if text is None else text.replace("\r\n", "\n").replace("\n", wanted) for text in (base, ours, theirs)
    ]
    return texts[0], texts[1] or "", texts[2] or ""


def _lines(text: str) -> list[str]:
    # Not splitlines(): a form feed or a Unicode separator in a line is part of it.
    found = [line + "\n" for line in text.split("\n")]
    found[-1] = found[-1][:-1]
    return found if found[-1] else found[:-1]


def _ended(lines: Lines) -> list[str]:
    """With an end of line behind the last one too: something follows."""
    return [*lines[:-1], lines[-1] if lines[-1].endswith("\n") else lines[-1] + "\n"] if lines else []


def _joined(parts: Lines, *sides: str) -> str:
    text = "".join([*_every_ended(parts[:-1]), *parts[-1:]])
    return text + "\n" if text and not text.endswith("\n") and any(side.endswith("\n") for side in sides) else text


def _every_ended(lines: Lines) -> Iterator[str]:
    """The last line of one side may have got one of the other side behind it."""
    return (line if line.endswith("\n") else line + "\n" for line in lines)


def _chosen(it: _Region, based: bool) -> Lines | None:
    """The lines of a place, if only one has changed them, both in the same way, or both have only added some."""
    if it.ours == it.theirs or it.theirs == it.base:
        return it.ours
    if it.ours == it.base:
        return it.theirs
    if _ended(it.ours) == _ended(it.theirs):
        return _ended(it.ours)  # only the end of the last line is missing in one of them
    for big, small in ((it.ours, it.theirs), (it.theirs, it.ours)):
        # With marks it is both sides of a contradiction already: a second time it is none.
        if (not it.base or OURS in big) and _has(big, small):
            return big
    if it.base:
        return None
    return [*_ended(it.ours), *it.theirs] if based else None


def _has(big: Lines, small: Lines) -> bool:
    """Whether all lines of one are in the other, in their order."""
    rest = iter(big)
    return all(line in rest for line in small)


def _shared(ours: list[str], theirs: list[str]) -> list[str]:
    """The lines that both have, as far as they are in the same order."""
    return [line for start, _, size in _blocks(ours, theirs) for line in ours[start : start + size]]


def _blocks(left: list[str], right: list[str]) -> list[tuple[int, int, int]]:
    """Where the same lines stand in both. Equal ends are found first: most of a file has not been touched."""
    head = 0
    while head < min(len(left), len(right)) and left[head] == right[head]:
        head += 1
    tail = 0
    while tail < min(len(left), len(right)) - head and left[-1 - tail] == right[-1 - tail]:
        tail += 1
    here, there = left[head : len(left) - tail], right[head : len(right) - tail]
    inner: list[tuple[int, int, int]] = []
    if len(here) + len(there) <= LINES_MAX:
        inner = [tuple(it) for it in SequenceMatcher(None, here, there, autojunk=False).get_matching_blocks()]  # type: ignore[misc]
    found = [(0, 0, head), *((head + a, head + b, size) for a, b, size in inner)]
    return [it for it in (*found, (len(left) - tail, len(right) - tail, tail)) if it[2]]


def _regions(base: list[str], ours: list[str], theirs: list[str]) -> Iterator[_Region]:
    """The three texts, cut where all of them agree: pieces that agree, and pieces between them, in order."""
    at_base = at_ours = at_theirs = 0
    for start, size, mine, yours in _agreeing(base, ours, theirs):
        yield _Region(base[at_base:start], ours[at_ours:mine], theirs[at_theirs:yours])
        yield _Region(base[start : start + size], ours[mine : mine + size], theirs[yours : yours + size])
        at_base, at_ours, at_theirs = start + size, mine + size, yours + size
    yield _Region(base[at_base:], ours[at_ours:], theirs[at_theirs:])


def _agreeing(base: list[str], ours: list[str], theirs: list[str]) -> Iterator[tuple[int, int, int, int]]:
    """Pieces of the base that both sides still have: where in it, how long, and where in each side."""
    mine, yours = iter(_blocks(base, ours)), iter(_blocks(base, theirs))
    one, other = next(mine, None), next(yours, None)
    while one is not None and other is not None:
        start, end = max(one[0], other[0]), min(one[0] + one[2], other[0] + other[2])
        if start < end:
            yield start, end - start, one[1] + start - one[0], other[1] + start - other[0]
        if one[0] + one[2] < other[0] + other[2]:
            one = next(mine, None)
        else:
            other = next(yours, None)
