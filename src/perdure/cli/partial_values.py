"""Decoding of values with parts of unknown types: those parts are named, all others shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.errors import ValueProblem
from perdure.journal.trees.nodes import ENCODE, head_of, items_of
from perdure.journal.trees.read import content
from perdure.journal.trees.split import INLINE, TREE
from perdure.journal.trees.tolerant_read import Unreadable, tolerant
from perdure.store.base import Store
from perdure.values import codec
from perdure.values.codec.decoder import decode_as_dicts
from perdure.values.codec.tags import STRUCTURES, ExtensionTag
from perdure.values.limits import VALUE_DEPTH_MAX

UNREADABLE = "$unreadable"
"""In JSON, the key of the object that stands for an unreadable part, so that it cannot be mistaken for stored text."""

_MARKS = {ENCODE(mark): ExtensionTag(tag) for tag, mark in STRUCTURES.items()}
_PLURAL: dict[ExtensionTag | None, Callable[[list[Any]], Any]] = {
    None: list,
    ExtensionTag.TUPLE: tuple,
    ExtensionTag.SET: list,
    ExtensionTag.FROZENSET: list,
}
"""Builds containers from their parts. A set becomes a list, because an unreadable part may not be hashable."""


def reader(store: Store) -> Callable[[bytes], Any]:
    """Return a decoder that replaces each part of an unknown type, instead of the whole value."""
    whole = tolerant(store)

    def read(packed: bytes) -> Any:
        value = whole(packed)
        if not isinstance(value, Unreadable) or packed[:1] not in (INLINE, TREE):
            return value
        try:
            return partly(packed[1:] if packed[:1] == INLINE else content(store, packed))
        except ValueProblem as error:  # the tree itself is unreadable, not a part of it
            return Unreadable(f"<{error.message}>")

    return read


def partly(item: bytes, depth: int = 0) -> Any:
    """Decode a value as far as its types are known here."""
    try:
        with decode_as_dicts():
            return codec.decode(item)
    except ValueProblem as error:
        unknown = Unreadable(f"<{error.message}>")
    head = head_of(item)
    if not head.stride or depth >= VALUE_DEPTH_MAX:
        return unknown
    items = [bytes(raw) for raw in items_of(item[head.size :], head.items)]
    mark = _MARKS.get(items[0]) if head.stride == 1 and items else None
    parts = [partly(data, depth + 1) for data in (items if mark is None else items[1:])]
    if head.stride == 2 or mark == ExtensionTag.MAP:
        return dict(zip(parts[::2], parts[1::2], strict=True))
    if mark == ExtensionTag.COLLECTION:
        return parts[-1]
    return _PLURAL[mark](parts) if mark in _PLURAL else unknown


def mark_unreadable(value: Any) -> Any:
    """Convert a partly decoded value for JSON, with an object for each unreadable part."""
    if isinstance(value, Unreadable):
        return {UNREADABLE: str(value).removeprefix("<").removesuffix(">")}
    if isinstance(value, dict):
        return {key: mark_unreadable(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [mark_unreadable(part) for part in value]
    return value
