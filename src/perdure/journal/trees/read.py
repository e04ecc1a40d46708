"""Reads trees: their values, and the objects that they need.

Trees are read level by level, so a server gets one query per level, not one per object. Nothing that is read is
trusted. The cost of a forged tree is bounded by limits on its pieces, levels and bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import Any, Final

from perdure.errors import ValueTooLarge
from perdure.journal import objects
from perdure.journal.trees.nodes import (
    LEVELS_MAX,
    OBJECT_BYTES_MAX,
    PIECES_MAX,
    PieceKind,
    PieceLink,
    TreePiece,
    parse_node,
)
from perdure.journal.trees.split import TREE
from perdure.store.base import Script, Statement, Store, read_through
from perdure.values import codec, limits

_ASKED_MAX: Final = 512
"""Objects per batch."""


def unpack(store: Store, packed: bytes) -> Any:
    """Return a copy of the value."""
    if packed[:1] != TREE:
        return objects.unpack(store, packed)
    return codec.decode(content(store, packed))


def content(store: Store, packed: bytes) -> bytes:
    """Return the bytes of a value that is stored as a tree."""
    return join(store, parse_node(packed[1:]))


def references(store: Store, packed: bytes, seen: Container[bytes] = frozenset()) -> Iterator[bytes]:
    """Yield the ids of all objects that a packed value needs, each once, without `seen` and what is below them."""
    yield from read_through(store, reachable(store, [packed], seen))


def reachable(
    store: Store, packed: Iterable[bytes], seen: Container[bytes] = frozenset(), opened: set[bytes] | None = None
) -> Script[set[bytes]]:
    """Return the objects that some values need, as part of a script: what a garbage collector must keep.

    Leaves are not opened, and types are not examined. A missing or damaged node is an error, because the collector
    would otherwise remove what is below it. Nodes in `opened` are not read again; the ones read now are added to it.
    """
    found: set[bytes] = set()
    nodes: set[bytes] = set()
    for one in packed:
        if one[:1] == TREE:
            _note(parse_node(one[1:]), found, nodes, seen)
        elif identity := objects.reference(one):
            found.add(identity)
    opened = set() if opened is None else opened
    while wanted := sorted(nodes - opened):
        for start in range(0, len(wanted), _ASKED_MAX):
            batch = wanted[start : start + _ASKED_MAX]
            answers = yield [Statement("get_object", (identity,)) for identity in batch]
            for identity, rows in zip(batch, answers, strict=True):
                node = objects.content(store, identity, rows, OBJECT_BYTES_MAX)
                _note(parse_node(node), found, nodes, seen)
        opened.update(wanted)
    return found


def _note(pieces: list[TreePiece], found: set[bytes], nodes: set[bytes], seen: Container[bytes]) -> None:
    for _, body in pieces:
        if isinstance(body, PieceLink) and body.identity not in seen:
            found.add(body.identity)
            if body.kind != PieceKind.LEAF:
                nodes.add(body.identity)


def fetch(store: Store, links: Collection[PieceLink]) -> Mapping[PieceLink, bytes]:
    """The contents of objects."""
    found = objects.fetch_many(store, {link.identity for link in links}, OBJECT_BYTES_MAX)
    return {link: found[link.identity] for link in links}


def join(store: Store, pieces: list[TreePiece]) -> bytes:
    """Return the joined bytes of pieces."""
    for _ in range(LEVELS_MAX):
        wanted = {body for _, body in pieces if isinstance(body, PieceLink)}
        if not wanted:
            return b"".join(body for _, body in pieces if isinstance(body, bytes))
        pieces = expand_links(pieces, fetch(store, wanted))
    raise too_many_levels_error()


def expand_links(pieces: list[TreePiece], contents: Mapping[PieceLink, bytes]) -> list[TreePiece]:
    """Replace links by the pieces that were fetched.

    The number of pieces is limited: a small node that is referenced repeatedly could stand for any length.
    """
    nodes = {link: parse_node(data) for link, data in contents.items() if link.kind != PieceKind.LEAF}
    out: list[TreePiece] = []
    for items, body in pieces:
        if isinstance(body, bytes) or body not in contents:
            out.append((items, body))
        elif body.kind == PieceKind.LEAF:
            out.append((items, contents[body]))
        else:
            out += nodes[body]
        if len(out) > PIECES_MAX:
            raise _too_large_error()
    if sum(len(body) for _, body in out if isinstance(body, bytes)) > limits.VALUE_BYTES_MAX:
        raise _too_large_error()
    return out


def _too_large_error() -> ValueTooLarge:
    return ValueTooLarge(f"the stored value is larger than {limits.VALUE_BYTES_MAX} bytes")


def too_many_levels_error() -> ValueTooLarge:
    """Return the error for a forged tree with too many levels."""
    return ValueTooLarge(f"a stored tree has more than {LEVELS_MAX} levels")
