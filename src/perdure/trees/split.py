"""From values to trees.

The tree depends on the value alone, and not on what was stored before. The sizes are a compromise between what a
change costs (one leaf, and a node on each level above it) and what many small rows cost. With other sizes everything
stays readable, and nothing is shared with what was stored before.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import msgspec

from .. import codec, objects
from ..store.base import Statement, Store
from .cuts import WINDOW, cuts, text_cuts
from .nodes import LINK_WEIGHT, Link, Piece, Ref, head_of, sizes_of, write_node

if TYPE_CHECKING:
    from zstandard import ZstdCompressor

INLINE: Final = b"\x00"
TREE: Final = b"\x02"
"""The first byte of a packed value; objects.py has the others."""

INLINE_BYTES_MAX: Final = 1024
"""Smaller values are not split. Less than for single values: one version follows another."""

ALONE_BYTES_MIN: Final = 512
"""Elements from this size on are a leaf each: a message."""

SPLIT_BYTES_MIN: Final = 4096
"""And larger ones are split themselves."""

ROOT_BYTES_MAX: Final = 640
"""What may be left of a container on top of its tree."""

INLINE_PIECE_MAX: Final = 256
"""Below it, bytes stay in their node."""

GROUP_BYTES_MIN: Final = 192
"""And pieces too."""

LEAF_REACH: Final = 384
NODE_REACH: Final = 256
"""How far on either side of a cut there is no other; pieces are two to three times as long. See cuts.py."""


class Tree(msgspec.Struct, frozen=True):
    """A value, ready to be stored."""

    packed: bytes
    """What stands for it in an entry."""
    objects: tuple[Statement, ...]
    """What must be written in the same commit."""
    ids: frozenset[bytes]
    """All objects that it refers to, new or not."""


def pack(store: Store, value: Any, path: str, known: Container[bytes] = frozenset()) -> Tree:
    """Split a value into objects, those of `known` left out of what is to be written.

    The whole value is looked at each time, so no edit is missed, wherever it was made.

    `known` saves writes, and must not be more than a guess that is checked: a collector may take an object away as
    soon as no entry refers to it. So give the `ids` of one tree (of the version before), and see to it that the
    entry which holds that tree is still there in the transaction that stores this one, locked or read again there:
    while an entry refers to a tree, no collector touches anything below it. When the entry is gone, pack again
    without `known`. There is no cache of ids by process: nothing would tell it what another process collects.
    """
    data = codec.encode(value, path)
    if len(data) <= INLINE_BYTES_MAX:
        return Tree(INLINE + data, (), frozenset())
    split = _Split(store, known)
    packed = TREE + write_node(split.whole(data))
    return Tree(packed, tuple(split.objects), frozenset(split.ids))


class _Split:
    """The tree of one value."""

    def __init__(self, store: Store, known: Container[bytes]) -> None:
        self._store = store
        self._known = known
        self.objects: list[Statement] = []
        self.ids: set[bytes] = set()

    @cached_property
    def _zstd(self) -> ZstdCompressor:
        return objects.compressor()

    def whole(self, data: bytes | memoryview) -> list[Piece]:
        """The pieces of one item, its head first."""
        head = head_of(data)
        begun: Piece = (0, bytes(data[: head.size]))
        view = memoryview(data)[head.size :]
        if head.stride == 0:
            texts = [self._some(0, view[start:end]) for start, end in text_cuts(view)]
            return [begun, *self._reduced(texts, 1)]
        return [begun, *self._reduced(list(self._elements(view, sizes_of(data, head), head.stride)), head.stride)]

    def _elements(self, view: memoryview, sizes: list[int], stride: int) -> Iterator[Piece]:
        """Elements (of a map: pairs): large ones alone, and leaves of the small ones between them."""
        units = sizes if stride == 1 else list(map(sum, zip(sizes[::2], sizes[1::2], strict=True)))
        edges = list(accumulate(units, initial=0))
        begin = 0
        for number in [number for number, size in enumerate(units) if size >= ALONE_BYTES_MIN]:
            if begin < number:
                yield from self._leaves(view, edges[begin : number + 1], stride)
            begin = number + 1
            element = view[edges[number] : edges[begin]]
            if len(element) <= SPLIT_BYTES_MIN:
                yield stride, self._put(Ref.LEAF, element)
            else:
                yield from self._parts(element, sizes[number * stride : begin * stride])
        yield from self._leaves(view, edges[begin:], stride)

    def _leaves(self, view: memoryview, edges: list[int], stride: int) -> Iterator[Piece]:
        """Small elements, which lie between one edge and the next."""
        marks = [crc32(view[max(min(start, end - WINDOW), 0) : end]) for start, end in pairwise(edges)]
        begin = 0
        for cut in cuts(marks, edges, LEAF_REACH):
            yield self._some((cut - begin) * stride, view[edges[begin] : edges[cut]])
            begin = cut

    def _parts(self, element: memoryview, sizes: list[int]) -> Iterator[Piece]:
        """A large element, or a pair of which one is large."""
        at = 0
        for size in sizes:
            item = element[at : at + size]
            at += size
            if size <= SPLIT_BYTES_MIN:
                yield self._some(1, item)
            else:
                yield 1, self._put(Ref.WHOLE, write_node(self.whole(item)))

    def _some(self, items: int, data: memoryview) -> Piece:
        """A leaf, or the bytes themselves when they are hardly more than a reference and a row."""
        return (items, bytes(data)) if len(data) < INLINE_PIECE_MAX else (items, self._put(Ref.LEAF, data))

    def _reduced(self, pieces: list[Piece], stride: int) -> list[Piece]:
        """As many levels of groups as it takes for few pieces to be left."""
        # It ends: only the first and the last group may be too light to become one link, and together they are
        # lighter than this; all between them are longer than the reach.
        while sum(map(_weight, pieces)) > ROOT_BYTES_MAX:
            pieces = self._grouped(pieces, stride)
        return pieces

    def _grouped(self, pieces: list[Piece], stride: int) -> list[Piece]:
        weights = list(accumulate(map(_weight, pieces), initial=0))
        bounds = range(len(pieces) + 1) if stride == 1 else _pairs(pieces)
        marks = [_mark(pieces[bound - 1][1]) for bound in bounds[1:]]
        out: list[Piece] = []
        begin = 0
        for cut in cuts(marks, [weights[bound] for bound in bounds], NODE_REACH):
            group = pieces[bounds[begin] : bounds[cut]]
            # A few at the end are written again with the next version in any case: they wait for the level above.
            if weights[bounds[cut]] - weights[bounds[begin]] > GROUP_BYTES_MIN:
                group = [(sum(items for items, _ in group), self._put(Ref.GROUP, write_node(group)))]
            out += group
            begin = cut
        return out

    def _put(self, kind: Ref, data: bytes | memoryview) -> Link:
        identity = objects.identify(self._store, data)
        if identity not in self.ids:
            self.ids.add(identity)
            if identity not in self._known:
                content = bytes(data)
                stored = objects.compress(content, self._zstd)
                self.objects.append(Statement("put_object", (identity, len(content), stored)))
        return Link(kind, identity)


def _weight(piece: Piece) -> int:
    body = piece[1]
    return len(body) + 4 if isinstance(body, bytes) else LINK_WEIGHT


def _mark(body: bytes | Link) -> bytes:
    return body.identity if isinstance(body, Link) else crc32(body).to_bytes(4, "big")


def _pairs(pieces: list[Piece]) -> list[int]:
    """After how many pieces there is no key without its value, so that dicts can be compared group by group."""
    ends = accumulate((items for items, _ in pieces), initial=0)
    return [bound for bound, items in enumerate(ends) if items % 2 == 0]
