"""Time as columns of a screen. Stretches in which nobody was at work are cut out where they are long, and labelled."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

BREAKS_MAX = 8
BREAK_SHARE = 0.2
"""Of what is left of the time: idleness that takes more than that, and longer than all the work, is cut out."""
BREAK_MS_MIN = 50
NARROW, NARROWEST = 3, 1
"""Columns of a cut that has no room for its label."""

Span = tuple[int, int]


class Break(msgspec.Struct, frozen=True):
    """Idle time, and the columns that stand for it."""

    begun: int
    ended: int
    first: int = 0
    last: int = 0

    @property
    def label(self) -> str:
        """How long it was."""
        return brief(self.ended - self.begun)


class _Stretch(msgspec.Struct, frozen=True):
    begun: int
    ended: int
    first: float
    columns: float


class Axis:
    """From milliseconds to columns."""

    def __init__(self, busy: Iterable[Span], begun: int, ended: int, width: int) -> None:
        self.begun, self.ended, self.width = begun, max(ended, begun), max(width, 1)
        found = _idle(merged(busy), self.begun, self.ended, min(BREAKS_MAX, self.width // 2))
        self.breaks, self._stretches = _laid_out(found, self.begun, self.ended, self.width)
        self._begins = [it.begun for it in self._stretches]

    def column(self, at: int) -> int:
        """Where a time stands; times before and after are at the edges."""
        it = self._stretches[max(0, bisect_right(self._begins, at) - 1)]
        share = 0.0 if it.ended <= it.begun else (min(max(at, it.begun), it.ended) - it.begun) / (it.ended - it.begun)
        return min(self.width - 1, int(it.first + share * max(it.columns - 1, 0)))


def brief(milliseconds: int) -> str:
    """A time in as few characters as will do.

    >>> brief(40), brief(1_250), brief(75_000), brief(7_200_000), brief(200_000_000)
    ('40 ms', '1.2 s', '75 s', '2 h', '2 d')
    """
    seconds = milliseconds / 1000
    if seconds < 1:
        return f"{milliseconds} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{round(seconds / size)} {unit}"
    return f"{round(seconds)} s"


def merged(busy: Iterable[Span]) -> list[Span]:
    """The same times, without overlaps."""
    found: list[Span] = []
    for begun, ended in sorted(busy):
        if found and begun <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], ended)
        else:
            found.append((begun, ended))
    return found


def _idle(busy: Sequence[Span], begun: int, ended: int, count: int) -> list[Span]:
    """What is cut out: the longest stretches between, so many at most, as long as each is much of what is left."""
    edges = [(begun, begun), *busy, (ended, ended)]
    gaps = [(before[1], after[0]) for before, after in pairwise(edges) if after[0] > before[1]]
    left, worked, found = ended - begun, sum(b - a for a, b in busy), list[Span]()
    for gap in sorted(gaps, key=lambda it: it[0] - it[1])[:count]:
        if not worked or gap[1] - gap[0] <= max(BREAK_SHARE * left, worked, BREAK_MS_MIN):
            break  # without any work there is nothing to make room for
        found.append(gap)
        left -= gap[1] - gap[0]
    return sorted(found)


def _widths(idle: Sequence[Span], width: int) -> list[int]:
    """The columns of each cut: half of all at most, the other half is for the work."""
    with_label = [len(brief(b - a)) + 2 for a, b in idle]
    choices = (with_label, [NARROW] * len(idle), [NARROWEST] * len(idle))
    return next((wide for wide in choices if 2 * sum(wide) <= width), choices[-1])


def _laid_out(idle: Sequence[Span], begun: int, ended: int, width: int) -> tuple[list[Break], list[_Stretch]]:
    wide = _widths(idle, width)
    worked = ended - begun - sum(b - a for a, b in idle)
    per_ms = (width - sum(wide)) / max(worked, 1)
    breaks, stretches, at, column = list[Break](), list[_Stretch](), begun, 0.0
    for (start, end), columns in zip(idle, wide, strict=True):
        stretches.append(_Stretch(at, start, column, (start - at) * per_ms))
        column += (start - at) * per_ms
        breaks.append(Break(start, end, round(column), round(column) + columns - 1))
        stretches.append(_Stretch(start, end, column, columns))
        at, column = end, column + columns
    stretches.append(_Stretch(at, ended, column, (ended - at) * per_ms))
    return breaks, stretches
