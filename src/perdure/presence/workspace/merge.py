"""Three-way merge of texts by lines, without I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

import msgspec

LINES_MAX = 4000
"""Longer differing parts are not compared line by line: both are kept."""

OURS, BETWEEN, THEIRS = "<<<<<<< the journal\n", "=======\n", ">>>>>>> the file\n"

TextLines = Sequence[str]


class MergedText(msgspec.Struct, frozen=True):
    """The result of a merge."""

    text: str
    conflict: bool = False
    """Whether both sides have changed the same place: both versions are there, marked."""


class _MergeRegion(msgspec.Struct, frozen=True):
    base: TextLines
    ours: TextLines
    theirs: TextLines


def merge(base: str | None, ours: str, theirs: str) -> MergedText:
    """Merge the changes of both sides since `base`. Conflicts are marked.

    Without a base, removals are unknown, so every line of either side is kept.
    """
    if ours == theirs or base == theirs:
        return MergedText(ours)
    if base == ours:
        return MergedText(theirs)
    base, ours, theirs = _unify_line_ends(base, ours, theirs)
    mine, yours = _lines(ours), _lines(theirs)
    regions = _regions(_lines(base) if base is not None else _find_common_lines(mine, yours), mine, yours)
    parts, conflict = list[str](), False
    for region in regions:
        chosen = _choose_lines(region, base is not None)
        if chosen is None:
            conflict = True
            chosen = [OURS, *_end_last_line(region.ours), BETWEEN, *_end_last_line(region.theirs), THEIRS]
        parts += chosen
    return MergedText(_join_parts(parts, ours, theirs), conflict)


def is_marked(text: str) -> bool:
    """Return whether a text has unresolved conflict marks."""
    return OURS.strip() in text and _has(_lines(text.replace("\r\n", "\n") + "\n"), (OURS, BETWEEN, THEIRS))


def merge_notes(base: str, ours: str, theirs: str, *, guessed: bool = False) -> str:
    """Return a newly generated text (`ours`) with the lines that people have added to the previous one.

    There are no conflicts: generated lines are restored, and added lines are kept. If the base is only `guessed`, no
    line is added that exists already.
    """
    if base in (ours, theirs):
        return theirs if base == ours else ours
    parts, there = list[str](), {line.strip() for line in _lines(ours)} if guessed else set[str]()
    for region in _regions(_lines(base), _lines(ours), _lines(theirs)):
        added = [line for line in _subtract_lines(region.theirs, region.base) if line.strip() not in there]
        parts += [*_end_last_line(region.ours), *_subtract_lines(added, region.ours, blank=False)]
    return _join_parts(parts, ours, theirs)


def notes_of(made: str, text: str) -> str:
    """Return what a person has written instead of a generated text, unchanged.

    Only passages of generated text that remain are left out. A single line, such as a heading, is not a passage.
    """
    mine = _lines(text)
    left = [(at, size) for _, at, size in _blocks(_lines(made), mine) if _count_text_lines(mine[at : at + size]) > 1]
    taken = {place for at, size in left for place in range(at, at + size)}
    found = "".join(line for place, line in enumerate(mine) if place not in taken).strip("\n")
    return f"{found}\n" if found else ""


def _count_text_lines(lines: TextLines) -> int:
    return sum(1 for line in lines if line.strip())


def _subtract_lines(lines: TextLines, others: TextLines, *, blank: bool = True) -> list[str]:
    """Return the lines that are not among others, in order. Empty lines count only with `blank`."""
    mine = list(lines)
    blocks = [
        (at, size) for _, at, size in _blocks(list(others), mine) if blank or "".join(mine[at : at + size]).strip()
    ]
    taken = {place for at, size in blocks for place in range(at, at + size)}
    return [line for place, line in enumerate(mine) if place not in taken]


def _unify_line_ends(base: str | None, ours: str, theirs: str) -> tuple[str | None, str, str]:
    """Convert all texts to the line endings of the side that changed them; otherwise no lines would match."""
    styles = [text is not None and "\r\n" in text for text in (base, ours, theirs)]
    if styles[1] == styles[2]:
        return base, ours, theirs
    wanted = "\n" if styles[0] else "\r\n"
    texts = [
        text if text is None else text.replace("\r\n", "\n").replace("\n", wanted) for text in (base, ours, theirs)
    ]
    return texts[0], texts[1] or "", texts[2] or ""


def _lines(text: str) -> list[str]:
    # Not splitlines(): a form feed or a Unicode separator does not end a line.
    found = [line + "\n" for line in text.split("\n")]
    found[-1] = found[-1][:-1]
    return found if found[-1] else found[:-1]


def _end_last_line(lines: TextLines) -> list[str]:
    """Return lines with a newline after the last one, because something follows."""
    return [*lines[:-1], lines[-1] if lines[-1].endswith("\n") else lines[-1] + "\n"] if lines else []


def _join_parts(parts: TextLines, *sides: str) -> str:
    text = "".join([*_end_lines(parts[:-1]), *parts[-1:]])
    return text + "\n" if text and not text.endswith("\n") and any(side.endswith("\n") for side in sides) else text


def _end_lines(lines: TextLines) -> Iterator[str]:
    """Yield lines, each with a newline: the last line of one side may now be followed by the other side's."""
    return (line if line.endswith("\n") else line + "\n" for line in lines)


def _choose_lines(region: _MergeRegion, based: bool) -> TextLines | None:
    """Return the merged lines if only one side changed, both made the same change, or both only added."""
    if region.ours == region.theirs or region.theirs == region.base:
        return region.ours
    if region.ours == region.base:
        return region.theirs
    if _end_last_line(region.ours) == _end_last_line(region.theirs):
        return _end_last_line(region.ours)  # they differ only in the final newline
    for big, small in ((region.ours, region.theirs), (region.theirs, region.ours)):
        # With marks it is already a marked conflict: do not mark it again.
        if (not region.base or OURS in big) and _has(big, small):
            return big
    if region.base:
        return None
    return [*_end_last_line(region.ours), *region.theirs] if based else None


def _has(big: TextLines, small: TextLines) -> bool:
    """Return whether one contains all lines of the other, in order."""
    rest = iter(big)
    return all(line in rest for line in small)


def _find_common_lines(ours: list[str], theirs: list[str]) -> list[str]:
    """Return the longest common subsequence of lines."""
    return [line for start, _, size in _blocks(ours, theirs) for line in ours[start : start + size]]


def _blocks(left: list[str], right: list[str]) -> list[tuple[int, int, int]]:
    """Return the matching blocks. Common ends are stripped first: most of a file is unchanged."""
    head = 0
    while head < min(len(left), len(right)) and left[head] == right[head]:
        head += 1
    tail = 0
    while tail < min(len(left), len(right)) - head and left[-1 - tail] == right[-1 - tail]:
        tail += 1
    here, there = left[head : len(left) - tail], right[head : len(right) - tail]
    inner: list[tuple[int, int, int]] = []
    if len(here) + len(there) <= LINES_MAX:
        inner = [tuple(block) for block in SequenceMatcher(None, here, there, autojunk=False).get_matching_blocks()]  # type: ignore[misc]
    found = [(0, 0, head), *((head + a, head + b, size) for a, b, size in inner)]
    return [block for block in (*found, (len(left) - tail, len(right) - tail, tail)) if block[2]]


def _regions(base: list[str], ours: list[str], theirs: list[str]) -> Iterator[_MergeRegion]:
    """Yield the three texts as regions in order: those where all agree, and those between them."""
    at_base = at_ours = at_theirs = 0
    for start, size, mine, yours in _find_agreeing_blocks(base, ours, theirs):
        yield _MergeRegion(base[at_base:start], ours[at_ours:mine], theirs[at_theirs:yours])
        yield _MergeRegion(base[start : start + size], ours[mine : mine + size], theirs[yours : yours + size])
        at_base, at_ours, at_theirs = start + size, mine + size, yours + size
    yield _MergeRegion(base[at_base:], ours[at_ours:], theirs[at_theirs:])


def _find_agreeing_blocks(base: list[str], ours: list[str], theirs: list[str]) -> Iterator[tuple[int, int, int, int]]:
    """Yield blocks of the base that both sides still have: position, length, and positions in both sides."""
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
