"""Splits values into trees.

The tree depends only on the value, not on what was stored before. The sizes are a compromise between the cost of a
change (one leaf, and a node on each level above it) and the cost of many small rows. Other sizes would keep everything
readable but share nothing with what is stored already.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate, pairwise
from operator import add
from typing import Any, Final, TypeAlias
from zlib import crc32

import msgspec
from msgspec.msgpack import Ext

from perdure.journal import objects
from perdure.journal.trees.chunking import WINDOW, cuts, text_cuts
from perdure.journal.trees.nodes import ENCODE, LINK_WEIGHT, PieceKind, head_of, sizes_of
from perdure.store.base import Statement, Store
from perdure.values import codec

INLINE: Final = b"\x00"
TREE: Final = b"\x02"
"""The first byte of a packed value. The others are in objects.py."""

INLINE_BYTES_MAX: Final = 1024
"""Smaller values are not split. The limit is lower than for single values because versions follow each other."""

ALONE_BYTES_MIN: Final = 512
"""Elements from this size on become a leaf each: a message."""

SPLIT_BYTES_MIN: Final = 4096
"""Elements from this size on are split themselves."""

ROOT_BYTES_MAX: Final = 640
"""The maximum size of the root of a tree."""

INLINE_PIECE_MAX: Final = 256
"""Smaller bytes stay in their node."""

GROUP_BYTES_MIN: Final = 192
"""Smaller groups of pieces stay in their node."""

LEAF_REACH: Final = 384
NODE_REACH: Final = 256
"""The distance on either side of a cut without another cut. Pieces are two to three times as long. See cuts.py."""


class ObjectTree(msgspec.Struct, frozen=True):
    """A value, ready to be stored."""

    packed: bytes
    """The packed form for a journal entry."""
    objects: tuple[Statement, ...]
    """What must be written in the same commit."""
    ids: frozenset[bytes]
    """All objects that it refers to, new or not."""


def pack(
    store: Store, value: Any, path: str, known: Collection[bytes] = frozenset(), inline: int = INLINE_BYTES_MAX
) -> ObjectTree:
    """Split a value into objects. Objects in `known` are not written again.

    The whole value is examined each time, so no edit is missed.

    `known` saves writes, but it must be verified: a garbage collector may remove an object as soon as no entry refers
    to it. So pass the `ids` of one tree, that of the previous version. In the same transaction, check that the entry
    with that tree still exists: lock it or read it again. While an entry refers to a tree, no collector touches
    anything below it. If the entry is gone, pack again without `known`. Ids are not cached per process, because another
    process may collect them.
    """
    return tree_of(store, codec.encode(value, path), known, inline)


def tree_of(store: Store, data: bytes, known: Collection[bytes], inline: int = INLINE_BYTES_MAX) -> ObjectTree:
    """Split the encoded bytes of a value."""
    if len(data) <= inline:
        return ObjectTree(INLINE + data, (), frozenset())
    split = TreeBuilder(store, known)
    packed = TREE + split.build_single(data)
    return ObjectTree(packed, tuple(split.objects.values()), frozenset(split.ids))


SplitPiece: TypeAlias = tuple[int, bytes | Ext, int]
"""A piece during construction: number of items, bytes or reference, and a mark that decides on a cut after it.

The mark is that of its last element, so that a change before it moves no cut above. Plain tuples, here and below,
because a conversation has thousands of them each time.
"""


class TreeBuilder:
    """Builds the tree of one value."""

    def __init__(self, store: Store, known: Collection[bytes]) -> None:
        self._fresh = objects.hasher(store).copy
        self._known = objects.select_trusted(known)
        self.objects: dict[bytes, Statement] = {}
        self.ids: list[bytes] = []

    def build_single(self, data: bytes | memoryview) -> bytes:
        """Return the node of one item, its head first."""
        head = head_of(data)
        begun: SplitPiece = (0, bytes(data[: head.size]), 0)
        view = memoryview(data)[head.size :]
        if head.stride == 0:
            pieces = [self._build_leaf(0, view[start:end]) for start, end in text_cuts(view)]
        else:
            pieces = self.elements(view, sizes_of(data, head), head.stride)
        return encode_node([begun, *self._reduce_levels(pieces, head.stride)])

    def elements(self, view: memoryview, sizes: list[int], stride: int, before: int = 0) -> list[SplitPiece]:
        """Split elements (for a map, pairs): large ones alone, and leaves of the small ones between them.

        `before` is the number of bytes before the first element: they influence the cut after it.
        """
        units = sizes if stride == 1 else list(map(add, sizes[::2], sizes[1::2]))
        edges = list(accumulate(units, initial=before))
        out: list[SplitPiece] = []
        begin, put = 0, self.put
        for number, size in enumerate(units):
            if size < ALONE_BYTES_MIN:
                continue
            if begin < number:
                out += self._leaves(view, edges[begin : number + 1], sizes[begin * stride : number * stride], stride)
            begin = number + 1
            element = view[edges[number] : edges[begin]]
            if size <= SPLIT_BYTES_MIN:
                identity = put(element)
                mark = crc32(identity if stride == 1 else element[: sizes[2 * number]])
                out.append((stride, Ext(_LEAF, identity), mark))
            else:
                out += self._parts(element, sizes[number * stride : begin * stride])
        out += self._leaves(view, edges[begin:], sizes[begin * stride :], stride)
        return out

    def _leaves(self, view: memoryview, edges: list[int], sizes: list[int], stride: int) -> Iterator[SplitPiece]:
        """Split small elements into leaves. Each lies between two consecutive edges."""
        if stride == 1:
            marks = [crc32(view[max(min(start, end - WINDOW), 0) : end]) for start, end in pairwise(edges)]
        else:
            # By the key: with another value, the cuts stay where they are.
            marks = [crc32(view[start : start + size]) for start, size in zip(edges, sizes[::2], strict=False)]
        begin = 0
        for cut in cuts(marks, edges, LEAF_REACH):
            yield self._build_leaf((cut - begin) * stride, view[edges[begin] : edges[cut]], marks[cut - 1])
            begin = cut

    def _parts(self, element: memoryview, sizes: list[int]) -> Iterator[SplitPiece]:
        """Split a large element, or a pair of which one is large."""
        at = 0
        mark = crc32(element[: sizes[0]]) if len(sizes) == 2 else None
        for size in sizes:
            item = element[at : at + size]
            at += size
            if size <= SPLIT_BYTES_MIN:
                yield self._build_leaf(1, item, mark)
            else:
                identity = self.put(self.build_single(item))
                yield 1, Ext(_WHOLE, identity), crc32(identity) if mark is None else mark

    def _build_leaf(self, items: int, data: memoryview, mark: int | None = None) -> SplitPiece:
        """Return a leaf, or the bytes themselves if a reference and a row would hardly be smaller."""
        if len(data) < INLINE_PIECE_MAX:
            return items, bytes(data), crc32(data) if mark is None else mark
        identity = self.put(data)
        return items, Ext(_LEAF, identity), crc32(identity) if mark is None else mark

    def _reduce_levels(self, pieces: list[SplitPiece], stride: int) -> list[SplitPiece]:
        """Add levels of groups until few pieces are left."""
        # This terminates: only the first and the last group may be too light to become a link. Together they are
        # lighter than the limit, and all between them are longer than the reach.
        while True:
            weights = [LINK_WEIGHT if type(body) is Ext else len(body) + 4 for _, body, _ in pieces]
            if sum(weights) <= ROOT_BYTES_MAX:
                return pieces
            pieces = self._group_pieces(pieces, weights, stride)

    def _group_pieces(self, pieces: list[SplitPiece], weights: list[int], stride: int) -> list[SplitPiece]:
        edges = list(accumulate(weights, initial=0))
        ends = list(accumulate([items for items, _, _ in pieces], initial=0))
        bounds: Sequence[int] = range(len(edges))
        if stride == 2 and any(end & 1 for end in ends):
            # Not between a key and its value, so that dicts can be compared group by group.
            bounds = [bound for bound, items in enumerate(ends) if not items & 1]
            edges, ends = [edges[bound] for bound in bounds], [ends[bound] for bound in bounds]
        marks = [pieces[bound - 1][2] for bound in bounds[1:]]
        out: list[SplitPiece] = []
        begin = 0
        for cut in cuts(marks, edges, NODE_REACH):
            group = pieces[bounds[begin] : bounds[cut]]
            # A light group at the end changes with the next version anyway, so it is left to the level above.
            if edges[cut] - edges[begin] > GROUP_BYTES_MIN:
                group = [(ends[cut] - ends[begin], Ext(_GROUP, self.put(encode_node(group))), marks[cut - 1])]
            out += group
            begin = cut
        return out

    def put(self, data: bytes | memoryview) -> bytes:
        """Add an object unless it is known. Returns its id."""
        hashed = self._fresh()
        hashed.update(data)
        identity = hashed.digest()
        self.ids.append(identity)
        if identity not in self._known and identity not in self.objects:
            content = bytes(data)
            stored = objects.compress(content)
            self.objects[identity] = Statement("put_object", (identity, len(content), stored))
        return identity


_LEAF, _GROUP, _WHOLE = map(int, (PieceKind.LEAF, PieceKind.GROUP, PieceKind.WHOLE))


def encode_node(pieces: list[SplitPiece]) -> bytes:
    """Encode a node."""
    return ENCODE([part for items, body, _ in pieces for part in (items, body)])
