"""Builds the tree of a list that has grown, from what is cached of the previous version.

The result equals a tree built from scratch: a cut depends only on what is near it (cuts.py), so everything up to some
cut before the first new element stays the same. All earlier elements are compared each time, because programs change
messages in place.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import Any, Final

import msgspec
from msgspec.msgpack import Ext

from perdure.journal import objects
from perdure.journal.trees.chunking import WINDOW, cuts, minima
from perdure.journal.trees.nodes import LINK_WEIGHT, PieceKind, head_of, items_of
from perdure.journal.trees.split import (
    ALONE_BYTES_MIN,
    GROUP_BYTES_MIN,
    INLINE,
    INLINE_BYTES_MAX,
    NODE_REACH,
    ROOT_BYTES_MAX,
    TREE,
    ObjectTree,
    SplitPiece,
    TreeBuilder,
    encode_node,
    tree_of,
)
from perdure.store.base import Store
from perdure.values import codec
from perdure.values.codec import fingerprints

_WEIGHT_MIN: Final = 5
_GROUP: Final = int(PieceKind.GROUP)


class TreeLevel(msgspec.Struct, frozen=True, gc=False):
    """The pieces of one level, and the cuts that later changes cannot move."""

    pieces: list[SplitPiece]
    """The groups of the level below; on the lowest level, elements."""
    sure: list[tuple[int, int]]
    """Cuts: after how many pieces of the level below, and how many groups that makes."""


class TreeMemo(msgspec.Struct, frozen=True):
    """The cache of a value and its tree."""

    parts: tuple[bytes, ...]
    """The value's bytes in parts; for a list, without its head."""
    packed: bytes
    size: int
    """The size of these bytes. With the fingerprints, the cache takes twice as much memory."""
    count: int = -1
    """The number of elements of a list; negative for other values."""
    keys: tuple[bytes, ...] = ()
    """Exact fingerprints of the elements; empty if the next version must be split from scratch."""
    settled: int = 0
    """The number of elements up to the last one that is a leaf of its own."""
    context: bytes = b""
    tail: bytes = b""
    """The bytes after those, and a few before."""
    levels: tuple[TreeLevel, ...] = ()

    @property
    def data(self) -> bytes:
        """The value's bytes."""
        return b"".join(self.parts if self.count < 0 else (_list_head(self.count), *self.parts))


def pack_again(
    store: Store, value: Any, path: str, known: Collection[bytes], memo: TreeMemo | None
) -> tuple[ObjectTree, TreeMemo]:
    """Pack the next version of a value, using the cache of the previous one. Returns the tree and a new cache."""
    if objects.has_suspects():
        memo = None  # it may refer to a suspect object: write everything again
    if (
        memo is not None
        and memo.keys
        and type(value) is list
        and fingerprints.begins_with(value, memo.keys, memo.count)
    ):
        if len(value) == memo.count:
            return ObjectTree(memo.packed, (), frozenset()), memo
        more = value[memo.count :]
        added = codec.encode(more, path)
        keys = fingerprints.fingerprint(value, memo.keys, memo.count) if fingerprints.is_exact(more) else ()
        return _grow_tree(store, added[head_of(added).size :], len(value), known, memo, keys)
    data = codec.encode(value, path)
    if memo is not None and memo.packed == INLINE + data:
        return ObjectTree(memo.packed, (), frozenset()), memo
    # Fingerprints do not distinguish bytes from other buffers, so they need a value without any.
    if type(value) is not list or len(data) <= INLINE_BYTES_MAX or not fingerprints.is_exact(value):
        tree = tree_of(store, data, known)
        return tree, TreeMemo((data,), tree.packed, len(data))
    return _grow_tree(
        store, data[head_of(data).size :], len(value), known, TreeMemo((), b"", 0), fingerprints.fingerprint(value)
    )


def _grow_tree(
    store: Store, added: bytes, count: int, known: Collection[bytes], memo: TreeMemo, keys: tuple[bytes, ...]
) -> tuple[ObjectTree, TreeMemo]:
    """Build the tree of a list to which elements were added."""
    split, rest = TreeBuilder(store, known), memo.tail + added
    sizes = [len(memoryview(item)) for item in items_of(rest, count - memo.settled)]
    fixed = _count_settled_pieces(memo)
    near = split.elements(memoryview(memo.context + rest), sizes, 1, len(memo.context))
    pieces = memo.levels[0].pieces[:fixed] + near if memo.levels else near
    large = _find_last_large(sizes)
    levels = [TreeLevel(pieces, [(0, _count_settled(pieces, sizes, large) if large else fixed)])]
    same = fixed
    while not _is_root(pieces):
        before = memo.levels[len(levels)] if len(levels) < len(memo.levels) else TreeLevel([], [])
        level, same = _regroup(split, pieces, same, before)
        levels.append(level)
        pieces = level.pieces
    packed = TREE + encode_node([(0, _list_head(count), 0), *pieces])
    tree = ObjectTree(packed, tuple(split.objects.values()), frozenset(split.ids))
    at = sum(sizes[:large])
    context = (memo.context + rest[:at])[-WINDOW:]
    about = (count, keys, memo.settled + large, context, rest[at:], tuple(levels))
    return tree, TreeMemo((*memo.parts, added), packed, memo.size + len(added), *about)


def ids_of(memo: TreeMemo) -> frozenset[bytes]:
    """Return the objects that the tree of a list refers to, except those inside its large elements."""
    return frozenset(bytes(body.data) for level in memo.levels for _, body, _ in level.pieces if type(body) is Ext)


def _count_settled_pieces(memo: TreeMemo) -> int:
    return memo.levels[0].sure[0][1] if memo.levels else 0


def _find_last_large(sizes: Sequence[int]) -> int:
    """Return the number of elements up to the last large one. What follows may still be cut differently."""
    for number in range(len(sizes), 0, -1):
        if sizes[number - 1] >= ALONE_BYTES_MIN:
            return number
    return 0


def _count_settled(pieces: list[SplitPiece], sizes: Sequence[int], large: int) -> int:
    """Return how many pieces these elements are: all but the leaves of small elements after the last large one."""
    small, place = len(sizes) - large, len(pieces)
    while small > 0:
        place -= 1
        small -= pieces[place][0]
    return place


def _is_root(pieces: list[SplitPiece]) -> bool:
    if len(pieces) * _WEIGHT_MIN > ROOT_BYTES_MAX:
        return False
    return sum(map(_weight, pieces)) <= ROOT_BYTES_MAX


def _weight(piece: SplitPiece) -> int:
    body = piece[1]
    return LINK_WEIGHT if type(body) is Ext else len(body) + 4


def _regroup(split: TreeBuilder, pieces: list[SplitPiece], same: int, before: TreeLevel) -> tuple[TreeLevel, int]:
    """Group pieces, of which the first `same` are unchanged. Returns the level and how many groups are unchanged."""
    sure = _find_fixed_cuts(pieces, same, before.sure)
    begin, kept = sure[-1] if sure else (0, 0)
    start = max(begin - 1, 0)  # include the piece before the cut, which shows that no other cut is near
    some = pieces[start:]
    edges = list(accumulate(map(_weight, some), initial=0))
    marks = [mark for _, _, mark in some]
    least = set(minima(marks, edges, NODE_REACH))
    out, at = before.pieces[:kept], begin
    for cut in cuts(marks, edges, NODE_REACH):
        end = start + cut
        if end <= begin:
            continue
        group = pieces[at:end]
        if edges[cut] - edges[at - start] > GROUP_BYTES_MIN:
            items = sum(items for items, _, _ in group)
            group = [(items, Ext(_GROUP, split.put(encode_node(group))), marks[cut - 1])]
        out += group
        at = end
        if cut in least:
            sure.append((end, len(out)))
    return TreeLevel(out, sure), kept


def _find_fixed_cuts(pieces: list[SplitPiece], same: int, sure: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the cuts that no change after the first pieces can move: nothing new is within their reach."""
    weight, place = 0, same
    while weight < NODE_REACH:
        if not place:
            return []
        place -= 1
        weight += _weight(pieces[place])
    return [(cut, count) for cut, count in sure if cut <= place]


def _list_head(count: int) -> bytes:
    if count < 16:
        return bytes([0x90 + count])
    return b"\xdc" + count.to_bytes(2, "big") if count < 1 << 16 else b"\xdd" + count.to_bytes(4, "big")
