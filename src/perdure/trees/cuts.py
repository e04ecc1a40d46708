"""Where to cut, by content: an insert or an edit moves the cuts near it, and no others.

A cut is after an element whose hash is smaller than all within reach on either side. So nothing further away than
that has a say, pieces are never shorter than the reach, and seldom longer than three times. (Cutting wherever a hash
is small needs a least and a most size besides, and these carry a change on from piece to piece.)
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, TypeVar
from zlib import crc32

AnyMark = TypeVar("AnyMark", int, bytes)

WINDOW: Final = 32
"""Bytes before a cut that decide on it, at least: an element may be one of two numbers."""

_REACHES_MAX: Final = 5
"""Of a piece, when equal elements follow each other and no hash is smaller than the next."""


def cuts(marks: list[AnyMark], edges: list[int], reach: int) -> Iterator[int]:
    """After how many elements to cut, the last time after all.

    `marks` are their hashes; each lies between one of `edges` and the next.
    """
    begin = 0
    for cut in [*minima(marks, edges, reach), len(marks)]:
        # Too long: anywhere, then. It is within a piece, and concerns no other.
        while edges[cut] - edges[begin] > _REACHES_MAX * reach:
            begin = max(bisect_right(edges, edges[begin] + _REACHES_MAX * reach) - 1, begin + 1)
            yield begin
        if begin < cut:
            yield cut
        begin = cut


def minima(marks: list[AnyMark], edges: list[int], reach: int) -> Iterator[int]:
    """After how many elements a cut is by content."""
    at, count = 0, len(marks)
    while at < count:
        end = edges[at + 1]
        after = bisect_right(edges, end + reach) - 1
        ahead = marks[at:after]
        smallest = at + ahead.index(min(ahead))
        if smallest != at:
            at = smallest  # all before it have it within reach, and are larger
            continue
        before = max(bisect_left(edges, end - reach) - 1, 0)
        if before == at or marks[at] < min(marks[before:at]):
            yield at + 1
        at = after  # all before that have this one within reach, and are not smaller


TEXT_LEAST: Final = 512
TEXT_MOST: Final = 4096
"""Bytes of a part of a text; usually a thousand."""

_DENSITY: Final = 16
_CANDIDATE: Final = re.compile(b"[%b]" % b"".join(b"\\x%02x" % byte for byte in range(3, 256, _DENSITY)))
"""Every sixteenth byte value, so that Python looks at few places: some letters, digits and halves of other scripts."""

_TEXT_CHANCE: Final = (_DENSITY << 32) // TEXT_LEAST


def text_cuts(data: memoryview) -> Iterator[tuple[int, int]]:
    """Begin and end of the parts of a long text, or of other bytes.

    Here a cut is where a hash is small: looking for minima would take a hash of every place.
    """
    begin, whole = 0, len(data)
    while begin < whole:
        end = min(begin + TEXT_MOST, whole)
        for found in _CANDIDATE.finditer(data, begin + TEXT_LEAST, end):
            at = found.end()
            if crc32(data[at - WINDOW : at]) < _TEXT_CHANCE:
                end = at
                break
        yield begin, end
        begin = end
