"""Compares two trees path by path.

Pieces with the same id are equal and are not opened. Types are not needed to find the paths, only to show the values
before and after.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from perdure.errors import CorruptValue, ValueTooLarge
from perdure.journal.trees.align import regions
from perdure.journal.trees.nodes import (
    ENCODE,
    LEVELS_MAX,
    PieceKind,
    PieceLink,
    TreePiece,
    head_of,
    items_of,
    parse_node,
)
from perdure.journal.trees.read import expand_links, fetch, join, too_many_levels_error
from perdure.journal.trees.split import INLINE, TREE
from perdure.store.base import Store
from perdure.values import codec, limits
from perdure.values.codec.refusals import key_step
from perdure.values.codec.tags import STRUCTURES, ExtensionTag

ChangeKind: TypeAlias = Literal["added", "removed", "changed"]
ChangePath: TypeAlias = tuple[Any, ...]

_TERSE: Final = reprlib.Repr()
"""Shortens values to one line."""
_TERSE.maxstring = _TERSE.maxother = 60


class Change(msgspec.Struct, frozen=True):
    """One difference of a key, a field or an element."""

    steps: ChangePath
    """The keys, field names and element numbers on the path to it; for a set, the element itself.

    Numbers refer to the newer value. Only the last number of a removed element refers to the older one.
    """
    kind: ChangeKind
    before: Any = None
    after: Any = None

    @property
    def path(self) -> str:
        """The path as text: `.messages[3].content`; empty for the value itself."""
        return "".join(map(key_step, self.steps))

    def __str__(self) -> str:
        """Return a line for a terminal: `~ .progress: 0.3 -> 0.6`, `+ .findings[2]: 'c'`, `- .old: 1`."""
        before, after = _TERSE.repr(self.before), _TERSE.repr(self.after)
        path = self.path or "all of it"
        if self.kind == "changed":
            return f"~ {path}: {before} -> {after}"
        return f"+ {path}: {after}" if self.kind == "added" else f"- {path}: {before}"


def diff(store: Store, before: bytes, after: bytes, decode: Callable[[bytes], Any] = codec.decode) -> Iterator[Change]:
    """Yield the changes from one packed value to another, in reading order.

    Dicts are compared by key, regardless of order, and sets by element. Inserted and removed list elements are reported
    as such; between them, elements are compared one by one. `decode` decodes stored values: pass one that does not
    raise where types may be unknown.
    """
    return _TreeComparison(store, decode).items((), _item(before), _item(after))


class _PieceNode(NamedTuple):
    """A piece in an object of its own, and how many items it holds."""

    link: PieceLink
    items: int


_Item: TypeAlias = bytes | _PieceNode | tuple[TreePiece, ...]
"""A msgpack item: its bytes, or the object or pieces of a large one."""

_Atom: TypeAlias = bytes | _PieceNode
"""One element, or many elements in a piece that is not opened yet."""


class _Container(NamedTuple):
    item: _Item
    kind: int
    """The tag of a structure, or _LIST, _DICT or _SINGLE."""
    pieces: list[TreePiece]


_SINGLE, _LIST, _DICT = 0, 1, 2
_MARKS: Final = {ENCODE(mark): tag for tag, mark in STRUCTURES.items()}
_MARK_BYTES: Final = 3


def _item(packed: bytes) -> _Item:
    if packed[:1] == INLINE:
        return packed[1:]
    if packed[:1] != TREE:
        raise CorruptValue
    return tuple(parse_node(packed[1:]))


class _TreeComparison:
    """Compares two trees of one store."""

    def __init__(self, store: Store, decode: Callable[[bytes], Any]) -> None:
        self._store = store
        self._decode = decode

    def items(self, steps: ChangePath, a: _Item, b: _Item) -> Iterator[Change]:
        """Yield the differences of two items at the same path."""
        if a == b:
            return
        if len(steps) > limits.VALUE_DEPTH_MAX:
            raise ValueTooLarge(f"the stored value is nested more than {limits.VALUE_DEPTH_MAX} deep")
        one, other = self._container(a), self._container(b)
        compare: _Compare = _TreeComparison._singles
        if one.kind == other.kind:
            compare = _COMPARED.get(one.kind, compare)
        elif {one.kind, other.kind} == {
            _DICT,
            ExtensionTag.MAP,
        }:  # a dict that gained or lost its only key that is not a str
            compare = _TreeComparison._maps
        yield from compare(self, steps, one, other)

    def _singles(self, steps: ChangePath, a: _Container, b: _Container) -> Iterator[Change]:
        yield Change(steps, "changed", self._value(a.item), self._value(b.item))

    def _lists(self, steps: ChangePath, a: _Container, b: _Container) -> Iterator[Change]:
        # The mark of a tuple is the first item but not an element.
        first = 0 if a.kind == _LIST else -1
        yield from self._sequences(steps, *self._atoms(a.pieces, b.pieces, share=1), first, first)

    def _sequences(self, steps: ChangePath, a: list[_Atom], b: list[_Atom], at_a: int, at_b: int) -> Iterator[Change]:
        """Compare elements of a list, given the numbers of the first ones."""
        places_a, places_b = _places(a, at_a), _places(b, at_b)
        for a_from, a_to, b_from, b_to in regions(a, b):
            gone, come = a[a_from:a_to], b[b_from:b_to]
            at_a, at_b = places_a[a_from], places_b[b_from]
            if any(map(_is_closed, gone)) or any(map(_is_closed, come)):
                opened = self._atoms(_pieces(gone), _pieces(come), share=0)
                yield from self._sequences(steps, *opened, at_a, at_b)
            else:
                yield from self._compare_replaced(steps, gone, come, at_a, at_b)

    def _compare_replaced(
        self, steps: ChangePath, a: list[_Atom], b: list[_Atom], at_a: int, at_b: int
    ) -> Iterator[Change]:
        both = min(len(a), len(b))
        for number in range(both):
            yield from self.items((*steps, at_b + number), a[number], b[number])
        for number in range(both, len(a)):
            yield Change((*steps, at_a + number), "removed", before=self._value(a[number]))
        for number in range(both, len(b)):
            yield Change((*steps, at_b + number), "added", after=self._value(b[number]))

    def _dicts(self, steps: ChangePath, a: _Container, b: _Container) -> Iterator[Change]:
        # Groups of whole pairs that both sides have are skipped, wherever they are.
        atoms = self._atoms(a.pieces, b.pieces, share=2)
        yield from self._pairs(steps, *([atom for atom in side if not _is_closed(atom)] for side in atoms))

    def _maps(self, steps: ChangePath, a: _Container, b: _Container) -> Iterator[Change]:
        """Compare dicts of which one has keys other than str: a list of a mark, a key, a value, a key, and so on."""
        one, other = self._atoms(a.pieces, b.pieces, share=0)
        yield from self._pairs(steps, one[a.kind == ExtensionTag.MAP :], other[b.kind == ExtensionTag.MAP :])

    def _pairs(self, steps: ChangePath, a: list[_Atom], b: list[_Atom]) -> Iterator[Change]:
        old, new = _pair_atoms(a), _pair_atoms(b)
        for key, item in old.items():
            if key not in new:
                yield Change((*steps, self._value(key)), "removed", before=self._value(item))
            elif item != new[key]:
                yield from self.items((*steps, self._value(key)), item, new[key])
        for key, item in new.items():
            if key not in old:
                yield Change((*steps, self._value(key)), "added", after=self._value(item))

    def _sets(self, steps: ChangePath, a: _Container, b: _Container) -> Iterator[Change]:
        old, new = map(dict.fromkeys, self._atoms(a.pieces, b.pieces, share=0))
        for value in (self._value(atom) for atom in old if atom not in new):
            yield Change((*steps, value), "removed", before=value)
        for value in (self._value(atom) for atom in new if atom not in old):
            yield Change((*steps, value), "added", after=value)

    def _objects(self, steps: ChangePath, a: _Container, b: _Container) -> Iterator[Change]:
        """Compare objects of one class and version: name, version, fields and sometimes additional data."""
        (_, *named, fields), aside = _object_parts(self._atoms(a.pieces, [], share=0)[0])
        (_, *other_named, other_fields), other_aside = _object_parts(self._atoms(b.pieces, [], share=0)[0])
        if named != other_named:
            yield from self._singles(steps, a, b)
            return
        yield from self._fields(steps, fields, other_fields)
        yield from self._fields(steps, aside, other_aside)

    def _collections(self, steps: ChangePath, a: _Container, b: _Container) -> Iterator[Change]:
        """Compare deques, Counters and the like: a mark, name, argument and content."""
        *named, content = self._atoms(a.pieces, [], share=0)[0]
        *other_named, other_content = self._atoms(b.pieces, [], share=0)[0]
        one, other = self._container(content), self._container(other_content)
        # Only elements add a step to the path, which bounds the recursion.
        if named != other_named or ExtensionTag.COLLECTION in (one.kind, other.kind):
            yield from self._singles(steps, a, b)
        else:
            yield from self.items(steps, content, other_content)

    def _fields(self, steps: ChangePath, a: _Atom, b: _Atom) -> Iterator[Change]:
        one, other = self._container(a), self._container(b)
        # Only a dict adds a step to the path, which bounds the recursion.
        if one.kind != _DICT or other.kind != _DICT:
            raise CorruptValue("a stored object has no fields")
        if a != b:
            yield from self._dicts(steps, one, other)

    def _container(self, item: _Item) -> _Container:
        """Open an item, but not its elements."""
        pieces: list[TreePiece]
        if isinstance(item, bytes):
            head = head_of(item)
            pieces = [(head.items, item[head.size :])] if head.items else []
        else:
            (_, begun), *pieces = self._node(item) if isinstance(item, _PieceNode) else item
            if not isinstance(begun, bytes):
                raise CorruptValue("a stored container has no head")
            head = head_of(begun)
        if head.stride != 1:
            return _Container(item, _DICT if head.stride else _SINGLE, pieces)
        return _Container(item, _MARKS.get(self._read_beginning(pieces), _LIST), pieces)

    def _read_beginning(self, pieces: list[TreePiece]) -> bytes:
        """Return the first bytes of pieces: a mark, if there is one."""
        for _ in range(LEVELS_MAX):
            body = pieces[0][1] if pieces else b""
            if isinstance(body, bytes):
                return body[:_MARK_BYTES]
            content = fetch(self._store, [body])[body]
            pieces = [(0, content)] if body.kind == PieceKind.LEAF else parse_node(content)
        raise too_many_levels_error()

    def _node(self, node: _PieceNode) -> list[TreePiece]:
        return parse_node(fetch(self._store, [node.link])[node.link])

    def _value(self, item: _Item) -> Any:
        if isinstance(item, bytes):
            return self._decode(item)
        return self._decode(join(self._store, self._node(item) if isinstance(item, _PieceNode) else list(item)))

    def _atoms(self, a: list[TreePiece], b: list[TreePiece], *, share: int) -> tuple[list[_Atom], list[_Atom]]:
        """Return the elements of two containers. Pieces that both have stay closed.

        Exceptions are pieces whose number of items is not a multiple of `share`, such as a key without its value. With
        0, all pieces are opened.
        """
        for _ in range(LEVELS_MAX):
            shared = _close_over(a, share) & _close_over(b, share) if share else frozenset()
            wanted = (_close_over(a, 1) | _close_over(b, 1)) - shared
            if not wanted:
                return _elements(a), _elements(b)
            contents = fetch(self._store, wanted)
            a, b = expand_links(a, contents), expand_links(b, contents)
        raise too_many_levels_error()


_Compare: TypeAlias = Callable[[_TreeComparison, ChangePath, _Container, _Container], Iterator[Change]]
_COMPARED: Final[dict[int, _Compare]] = {
    _LIST: _TreeComparison._lists,
    _DICT: _TreeComparison._dicts,
    ExtensionTag.TUPLE: _TreeComparison._lists,
    ExtensionTag.SET: _TreeComparison._sets,
    ExtensionTag.FROZENSET: _TreeComparison._sets,
    ExtensionTag.MAP: _TreeComparison._maps,
    ExtensionTag.OBJECT: _TreeComparison._objects,
    ExtensionTag.COLLECTION: _TreeComparison._collections,
}


def _close_over(pieces: list[TreePiece], multiple: int) -> frozenset[PieceLink]:
    return frozenset(
        body
        for items, body in pieces
        if isinstance(body, PieceLink) and body.kind != PieceKind.WHOLE and items % multiple == 0
    )


def _elements(pieces: list[TreePiece]) -> list[_Atom]:
    atoms: list[_Atom] = []
    for items, body in pieces:
        if isinstance(body, bytes):
            atoms += map(bytes, items_of(body, items))
        else:
            atoms.append(_PieceNode(body, items))
    return atoms


def _pieces(atoms: list[_Atom]) -> list[TreePiece]:
    return [(1, atom) if isinstance(atom, bytes) else (atom.items, atom.link) for atom in atoms]


def _is_closed(atom: _Atom) -> bool:
    return isinstance(atom, _PieceNode) and atom.link.kind != PieceKind.WHOLE


def _places(atoms: list[_Atom], first: int) -> list[int]:
    """Return the number of the first element of each atom, and of the end."""
    return list(accumulate((1 if isinstance(atom, bytes) else atom.items for atom in atoms), initial=first))


def _pair_atoms(atoms: list[_Atom]) -> dict[_Atom, _Atom]:
    if len(atoms) % 2:
        raise CorruptValue("a stored dict has a key without a value")
    return dict(zip(atoms[::2], atoms[1::2], strict=True))


def _object_parts(atoms: list[_Atom]) -> tuple[list[_Atom], _Atom]:
    if not 4 <= len(atoms) <= 5:
        raise CorruptValue("a stored object has the wrong number of parts")
    return atoms[:4], atoms[4] if len(atoms) == 5 else _EMPTY


_EMPTY: Final = ENCODE({})
