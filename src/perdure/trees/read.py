"""From trees to values, and to the objects that they need.

Level by level, so that a store on a server can be asked once for each level and not once for each object. Nothing
that is read is trusted; what a forged tree can cost is bounded by the number of its pieces, its levels and its bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import Any, Final

from .. import codec, limits, objects
from ..errors import ValueTooLarge
from ..store.base import Script, Statement, Store, read_through
from .nodes import LEVELS_MAX, OBJECT_BYTES_MAX, PIECES_MAX, Link, Piece, Ref, read_node
from .split import TREE

_ASKED_MAX: Final = 512
"""Objects of one batch, so that a batch has a size."""


def unpack(store: Store, packed: bytes) -> Any:
    """The value again, as a copy that nobody else has."""
    if packed[:1] != TREE:
        return objects.unpack(store, packed)
    return codec.decode(content(store, packed))


def content(store: Store, packed: bytes) -> bytes:
    """The bytes of a value that is a tree."""
    return join(store, read_node(packed[1:]))


def references(store: Store, packed: bytes, seen: Container[bytes] = frozenset()) -> Iterator[bytes]:
    """The ids of all objects that a packed value needs, each once; those of `seen` and what is below them left out."""
    yield from read_through(store, reachable(store, [packed], seen))


def reachable(
    store: Store, packed: Iterable[bytes], seen: Container[bytes] = frozenset(), opened: set[bytes] | None = None
) -> Script[set[bytes]]:
    """The same for many values, as a part of a script: what a collector must keep.

    Leaves are not opened, and types are not looked at. A node that is missing or damaged is an error, and not
    taken for one without references: who collects would remove what is below it. Nodes of `opened` were looked into
    before, and are not again; those that are now join them.
    """
    found: set[bytes] = set()
    nodes: set[bytes] = set()
    for one in packed:
        if one[:1] == TREE:
            _note(read_node(one[1:]), found, nodes, seen)
        elif identity := objects.reference(one):
            found.add(identity)
    opened = set() if opened is None else opened
    while wanted := sorted(nodes - opened):
        for start in range(0, len(wanted), _ASKED_MAX):
            batch = wanted[start : start + _ASKED_MAX]
            answers = yield [Statement("get_object", (identity,)) for identity in batch]
            for identity, rows in zip(batch, answers, strict=True):
                node = objects.content(store, identity, rows, OBJECT_BYTES_MAX)
                _note(read_node(node), found, nodes, seen)
        opened.update(wanted)
    return found


def _note(pieces: list[Piece], found: set[bytes], nodes: set[bytes], seen: Container[bytes]) -> None:
    for _, body in pieces:
        if isinstance(body, Link) and body.identity not in seen:
            found.add(body.identity)
            if body.kind != Ref.LEAF:
                nodes.add(body.identity)


def fetch(store: Store, links: Collection[Link]) -> Mapping[Link, bytes]:
    """The contents of objects."""
    found = objects.fetch_many(store, {link.identity for link in links}, OBJECT_BYTES_MAX)
    return {link: found[link.identity] for link in links}


def join(store: Store, pieces: list[Piece]) -> bytes:
    """The bytes that pieces stand for."""
    for _ in range(LEVELS_MAX):
        wanted = {body for _, body in pieces if isinstance(body, Link)}
        if not wanted:
            return b"".join(body for _, body in pieces if isinstance(body, bytes))
        pieces = opened(pieces, fetch(store, wanted))
    raise too_many_levels()


def opened(pieces: list[Piece], contents: Mapping[Link, bytes]) -> list[Piece]:
    """The pieces with those that have been fetched in place of their links.

    There are never more than a value can have: a small node, named again and again, stands for any length.
    """
    nodes = {link: read_node(data) for link, data in contents.items() if link.kind != Ref.LEAF}
    out: list[Piece] = []
    for items, body in pieces:
        if isinstance(body, bytes) or body not in contents:
            out.append((items, body))
        elif body.kind == Ref.LEAF:
            out.append((items, contents[body]))
        else:
            out += nodes[body]
        if len(out) > PIECES_MAX:
            raise _too_large()
    if sum(len(body) for _, body in out if isinstance(body, bytes)) > limits.VALUE_BYTES_MAX:
        raise _too_large()
    return out


def _too_large() -> ValueTooLarge:
    return ValueTooLarge(f"the stored value is larger than {limits.VALUE_BYTES_MAX} bytes")


def too_many_levels() -> ValueTooLarge:
    """What is said of a forged tree that goes down and down."""
    return ValueTooLarge(f"a stored tree has more than {LEVELS_MAX} levels")
