"""The stored form of trees, and how to read it without trusting it.

A tree is a rope over the bytes that `codec.encode` makes of a value: its pieces, joined, give these bytes. A *node* is
a list of pieces, each with the number of msgpack items that it holds. These are elements of a container; parts of a
text and the head of a container hold none. A piece is

- bytes: the items themselves;
- a LEAF: an object whose content is such bytes;
- a GROUP: an object that is a node, with more items of the same container;
- a WHOLE: an object that is a node, and one item: a container or a long text, beginning with its head.

So following references needs no knowledge of the types in a value, and never opens a leaf.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw
from msgspec.msgpack import Decoder, Encoder, Ext

from perdure.errors import CorruptValue, ValueTooLarge
from perdure.journal.objects import ID_BYTES
from perdure.values import limits


class PieceKind(IntEnum):
    """The kind of a piece in an object of its own. The numbers are permanent."""

    LEAF = 1
    GROUP = 2
    WHOLE = 3


class PieceLink(NamedTuple):
    """A reference to a piece in an object of its own."""

    kind: int
    identity: bytes


TreePiece: TypeAlias = tuple[int, bytes | PieceLink]
"""The number of items, and the bytes or a reference to them."""

LINK_WEIGHT: Final = ID_BYTES + 5
"""The size of a reference in a node, with its count."""

OBJECT_BYTES_MAX: Final = 16_384
"""The maximum size of a leaf or node. A forged larger one must not be decompressed a thousand times."""

PIECES_MAX: Final = limits.VALUE_BYTES_MAX // 128
"""The maximum number of pieces in one value. Each reference that we write stands for 256 bytes or more."""

LEVELS_MAX: Final = 16 * limits.VALUE_DEPTH_MAX
"""The maximum depth of a tree. A container of a billion elements needs nine or ten levels, and containers nest."""

ENCODE: Final = Encoder().encode
_NODE: Final = Decoder(list[int | bytes | Ext])
_ITEMS: Final = Decoder(list[Raw])


def parse_node(data: bytes) -> list[TreePiece]:
    """Parse the pieces of a node."""
    try:
        flat = _NODE.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptValue(f"a stored node is invalid: {error}") from None
    counts, bodies = flat[::2], flat[1::2]
    if not flat or len(counts) != len(bodies):
        raise CorruptValue("a stored node has no pieces, or a piece without a count")
    return [_check_piece(count, body) for count, body in zip(counts, bodies, strict=True)]


def _check_piece(count: object, body: object) -> TreePiece:
    if isinstance(count, int) and 0 <= count <= limits.ARTIFACT_BYTES_MAX:
        if isinstance(body, bytes) and body:
            return count, body
        if isinstance(body, Ext) and body.code in _REFS:
            identity = bytes(body.data)
            if len(identity) == ID_BYTES:
                return count, PieceLink(body.code, identity)
    raise CorruptValue("a stored node has an invalid piece")


_REFS: Final = frozenset(map(int, PieceKind))


# -- msgpack ----------------------------------------------------------------------------------------------------------


class ItemHead(msgspec.Struct, frozen=True, gc=False):
    """The beginning of a msgpack item: its size, and the number of elements of a container."""

    size: int
    items: int = 0
    """For a map, twice the number of keys."""
    stride: int = 0
    """1 for an array, 2 for a map, 0 for anything else."""


_SIZED: Final = {
    **{first: ItemHead(1, first - 0x90, 1) for first in range(0x90, 0xA0)},
    **{first: ItemHead(1, 2 * (first - 0x80), 2) for first in range(0x80, 0x90)},
    **{first: ItemHead(1) for first in range(0xA0, 0xC0)},
}
_LONG: Final = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
_LONG_TEXT: Final = {0xD9: 2, 0xDA: 3, 0xDB: 5, 0xC7: 3, 0xC8: 4, 0xC9: 6}


def head_of(data: bytes | memoryview) -> ItemHead:
    """Parse the head of an item of any size. A number is all head."""
    if not data:
        raise CorruptValue("a stored value has no bytes")
    first = data[0]
    if first in _SIZED:
        return _SIZED[first]
    if first in _LONG:
        width, stride = _LONG[first]
        return ItemHead(1 + width, stride * int.from_bytes(data[1 : 1 + width], "big"), stride)
    return ItemHead(_LONG_TEXT.get(first, len(data)))


def sizes_of(data: bytes | memoryview, head: ItemHead) -> list[int]:
    """Return the sizes of the items of a container that our own encoder has just written."""
    items = _ITEMS.decode(data) if head.stride == 1 else items_of(memoryview(data)[head.size :], head.items)
    return [len(memoryview(item)) for item in items]


def items_of(data: bytes | memoryview, count: int) -> list[Raw]:
    """Split bytes into consecutive items, which share their memory."""
    # Check the count before msgspec allocates memory for it.
    if count > len(data):
        raise CorruptValue("a stored piece has fewer items than declared")
    try:
        return _ITEMS.decode(b"".join((b"\xdd", count.to_bytes(4, "big"), data)))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptValue(f"a stored piece has other items than declared: {error}") from None
    except RecursionError:
        raise ValueTooLarge(f"the stored value is nested more than {limits.VALUE_DEPTH_MAX} deep") from None
