"""Aligns two sequences by the elements that occur once in each, in their longest common order.

Never slower than sorting, whatever the elements are. Inserts, removals and moves are found anywhere.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import TypeAlias

AlignedRegion: TypeAlias = tuple[int, int, int, int]
"""Start and end in the first sequence, start and end in the second."""


def regions(one: Sequence[Hashable], other: Sequence[Hashable]) -> Iterator[AlignedRegion]:
    """Yield the regions that differ, in order.

    >>> list(regions("xabc", "abyc"))
    [(0, 1, 0, 0), (3, 3, 2, 3)]
    """
    a = b = 0
    for next_a, next_b in [*_anchors(one, other), (len(one), len(other))]:
        region = _trim_region(one, other, (a, next_a, b, next_b))
        if region[0] < region[1] or region[2] < region[3]:
            yield region
        a, b = next_a + 1, next_b + 1


def _trim_region(one: Sequence[Hashable], other: Sequence[Hashable], region: AlignedRegion) -> AlignedRegion:
    """Trim equal elements at the beginning and the end of a region."""
    a, a_end, b, b_end = region
    while a < a_end and b < b_end and one[a] == other[b]:
        a, b = a + 1, b + 1
    while a < a_end and b < b_end and one[a_end - 1] == other[b_end - 1]:
        a_end, b_end = a_end - 1, b_end - 1
    return a, a_end, b, b_end


def _anchors(one: Sequence[Hashable], other: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return positions of elements that occur once in both, in the longest increasing order."""
    once, twice = Counter(one), Counter(other)
    places = {part: place for place, part in enumerate(other) if twice[part] == 1}
    pairs = [(place, places[part]) for place, part in enumerate(one) if once[part] == 1 and part in places]
    ends: list[int] = []  # the smallest end of an increasing sequence of each length
    lengths: list[int] = []
    for _, place in pairs:
        length = bisect_left(ends, place)
        ends[length : length + 1] = [place]
        lengths.append(length)
    chosen: list[tuple[int, int]] = []
    wanted = len(ends) - 1
    for pair, length in zip(reversed(pairs), reversed(lengths), strict=True):
        if length == wanted and (not chosen or pair[1] < chosen[-1][1]):
            chosen.append(pair)
            wanted -= 1
    return chosen[::-1]
