"""Content-defined chunking: an insert or an edit moves only the cuts near it.

A cut comes after an element whose hash is smaller than all others within reach on either side. So nothing further away
matters, chunks are never shorter than the reach, and rarely longer than three times the reach. (Cutting at every small
hash would need a minimum and a maximum size, which carry a change from chunk to chunk.)
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, TypeVar
from zlib import crc32

AnyMark = TypeVar("AnyMark", int, bytes)

WINDOW: Final = 32
"""How many bytes before a cut decide on it, at least: an element may be one of two numbers."""

_REACHES_MAX: Final = 5
"""Maximum length of a chunk in reaches, for runs of equal elements without a smallest hash."""


def cuts(marks: list[AnyMark], edges: list[int], reach: int) -> Iterator[int]:
    """Yield after how many elements to cut. The last cut is after all elements.

    `marks` are the hashes of the elements; each element lies between two consecutive `edges`.
    """
    begin = 0
    for cut in [*minima(marks, edges, reach), len(marks)]:
        # Too long: cut anywhere. The cut is inside a chunk and affects no other.
        while edges[cut] - edges[begin] > _REACHES_MAX * reach:
            begin = max(bisect_right(edges, edges[begin] + _REACHES_MAX * reach) - 1, begin + 1)
            yield begin
        if begin < cut:
            yield cut
        begin = cut


def minima(marks: list[AnyMark], edges: list[int], reach: int) -> Iterator[int]:
    """Yield after how many elements the content asks for a cut."""
    at, count = 0, len(marks)
    while at < count:
        end = edges[at + 1]
        after = bisect_right(edges, end + reach) - 1
        ahead = marks[at:after]
        smallest = at + ahead.index(min(ahead))
        if smallest != at:
            at = smallest  # all elements before it have it within reach and are larger
            continue
        before = max(bisect_left(edges, end - reach) - 1, 0)
        if before == at or marks[at] < min(marks[before:at]):
            yield at + 1
        at = after  # all elements before that have this one within reach and are not smaller


TEXT_LEAST: Final = 512
TEXT_MOST: Final = 4096
"""Size limits for a part of a text, in bytes. Usually a thousand."""

_DENSITY: Final = 16
_CANDIDATE: Final = re.compile(b"[%b]" % b"".join(b"\\x%02x" % byte for byte in range(3, 256, _DENSITY)))
"""Every sixteenth byte value, so that Python examines few positions."""

_TEXT_CHANCE: Final = (_DENSITY << 32) // TEXT_LEAST


def text_cuts(data: memoryview) -> Iterator[tuple[int, int]]:
    """Yield start and end of the parts of a long text or other bytes.

    A cut is where a hash is small: looking for minima would need a hash of every position.
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
