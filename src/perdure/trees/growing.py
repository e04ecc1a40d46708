"""The tree of a list that has grown since the last time, made from what is remembered of that.

It is the same tree as if the list had been split from its beginning: a cut depends only on what is near it (cuts.py),
so that everything up to some cut before the first new element stays as it was. Whether the elements before are
unchanged is not believed but compared, all of them, each time: people change messages in place.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import Any, Final

import msgspec
from msgspec.msgpack import Ext

from .. import codec, objects
from ..codec import prints
from ..store.base import Store
from .cuts import WINDOW, cuts, minima
from .nodes import LINK_WEIGHT, Ref, head_of, items_of
from .split import (
    ALONE_BYTES_MIN,
    GROUP_BYTES_MIN,
    INLINE,
    INLINE_BYTES_MAX,
    NODE_REACH,
    ROOT_BYTES_MAX,
    TREE,
    Split,
    SplitPiece,
    Tree,
    tree_of,
    written,
)

_WEIGHT_MIN: Final = 5
_GROUP: Final = int(Ref.GROUP)


class Level(msgspec.Struct, frozen=True, gc=False):
    """Pieces, and where among them a change further on changes nothing."""

    pieces: list[SplitPiece]
    """What the level below was grouped into; of the lowest, elements."""
    sure: list[tuple[int, int]]
    """Cuts: after how many pieces below, and how many of these that are."""


class Memo(msgspec.Struct, frozen=True):
    """What is remembered of a value and its tree."""

    parts: tuple[bytes, ...]
    """The value's bytes, one after the other; of a list, without its head."""
    packed: bytes
    size: int
    """Of those bytes; with what is compared, it takes twice as much memory."""
    count: int = -1
    """Of the elements of a list; below 0 it is none."""
    keys: tuple[bytes, ...] = ()
    """Stand for the elements, exactly; none when the next version is split from its beginning."""
    settled: int = 0
    """Elements up to the last one that is a leaf of its own."""
    context: bytes = b""
    tail: bytes = b""
    """The bytes behind those, and a few before."""
    levels: tuple[Level, ...] = ()

    @property
    def data(self) -> bytes:
        """The value's bytes."""
        return b"".join(self.parts if self.count < 0 else (_list_head(self.count), *self.parts))


def pack_again(store: Store, value: Any, path: str, known: Collection[bytes], memo: Memo | None) -> tuple[Tree, Memo]:
    """As `pack`, for the next version of a value; and what to remember for the one after it."""
    if objects.some_are_suspect():
        memo = None  # it may stand for one of them: then all of it is written again
    if memo is not None and memo.keys and type(value) is list and prints.begins_with(value, memo.keys, memo.count):
        if len(value) == memo.count:
            return Tree(memo.packed, (), frozenset()), memo
        more = value[memo.count :]
        added = codec.encode(more, path)
        keys = prints.fingerprint(value, memo.keys, memo.count) if prints.is_exact(more) else ()
        return _grown(store, added[head_of(added).size :], len(value), known, memo, keys)
    data = codec.encode(value, path)
    if memo is not None and memo.packed == INLINE + data:
        return Tree(memo.packed, (), frozenset()), memo
    # The keys do not tell bytes from other buffers: only of what has none in it.
    if type(value) is not list or len(data) <= INLINE_BYTES_MAX or not prints.is_exact(value):
        tree = tree_of(store, data, known)
        return tree, Memo((data,), tree.packed, len(data))
    return _grown(store, data[head_of(data).size :], len(value), known, Memo((), b"", 0), prints.fingerprint(value))


def _grown(
    store: Store, added: bytes, count: int, known: Collection[bytes], memo: Memo, keys: tuple[bytes, ...]
) -> tuple[Tree, Memo]:
    """The tree of a list to which elements were added."""
    split, rest = Split(store, known), memo.tail + added
    sizes = [len(memoryview(item)) for item in items_of(rest, count - memo.settled)]
    fixed = _settled_pieces(memo)
    near = split.elements(memoryview(memo.context + rest), sizes, 1, len(memo.context))
    pieces = memo.levels[0].pieces[:fixed] + near if memo.levels else near
    large = _last_large(sizes)
    levels = [Level(pieces, [(0, _count_settled(pieces, sizes, large) if large else fixed)])]
    same = fixed
    while not _is_root(pieces):
        before = memo.levels[len(levels)] if len(levels) < len(memo.levels) else Level([], [])
        level, same = _regrouped(split, pieces, same, before)
        levels.append(level)
        pieces = level.pieces
    packed = TREE + written([(0, _list_head(count), 0), *pieces])
    tree = Tree(packed, tuple(split.objects.values()), frozenset(split.ids))
    at = sum(sizes[:large])
    context = (memo.context + rest[:at])[-WINDOW:]
    about = (count, keys, memo.settled + large, context, rest[at:], tuple(levels))
    return tree, Memo((*memo.parts, added), packed, memo.size + len(added), *about)


def ids_of(memo: Memo) -> frozenset[bytes]:
    """The objects that the tree of a list refers to, but for those within its large elements."""
    return frozenset(bytes(body.data) for level in memo.levels for _, body, _ in level.pieces if type(body) is Ext)


def _settled_pieces(memo: Memo) -> int:
    return memo.levels[0].sure[0][1] if memo.levels else 0


def _last_large(sizes: Sequence[int]) -> int:
    """How many elements there are up to the last large one: what follows it may still be cut otherwise."""
    for number in range(len(sizes), 0, -1):
        if sizes[number - 1] >= ALONE_BYTES_MIN:
            return number
    return 0


def _count_settled(pieces: list[SplitPiece], sizes: Sequence[int], large: int) -> int:
    """How many pieces those elements are: all but the leaves of the small elements behind the last large one."""
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


def _regrouped(split: Split, pieces: list[SplitPiece], same: int, before: Level) -> tuple[Level, int]:
    """The groups of pieces, of which so many are the same as before; and how many groups are."""
    sure = _unmoved(pieces, same, before.sure)
    begin, kept = sure[-1] if sure else (0, 0)
    start = max(begin - 1, 0)  # with the piece before the cut, which says that there is none near behind it
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
            group = [(items, Ext(_GROUP, split.put(written(group))), marks[cut - 1])]
        out += group
        at = end
        if cut in least:
            sure.append((end, len(out)))
    return Level(out, sure), kept


def _unmoved(pieces: list[SplitPiece], same: int, sure: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The cuts that no change behind the first pieces can move: nothing new is within their reach."""
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
