"""Values of which some parts have types that only another program knows: those parts are named, all others shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import codec
from ..codec.tags import STRUCTURES, Tag
from ..errors import ValueProblem
from ..limits import VALUE_DEPTH_MAX
from ..store.base import Store
from ..trees.nodes import ENCODE, head_of, items_of
from ..trees.read import content
from ..trees.split import INLINE, TREE
from ..trees.tolerant import Unreadable, tolerant

UNREADABLE = "$unreadable"
"""The key of what stands in JSON for such a part: an object, which nobody takes for the text that was stored."""

_MARKS = {ENCODE(mark): Tag(tag) for tag, mark in STRUCTURES.items()}
_PLURAL: dict[Tag | None, Callable[[list[Any]], Any]] = {
    None: list,
    Tag.TUPLE: tuple,
    Tag.SET: list,
    Tag.FROZENSET: list,
}
"""What is made of the parts; those that are only named might be no elements of a set."""


def reader(store: Store) -> Callable[[bytes], Any]:
    """As `tolerant`, part by part."""
    whole = tolerant(store)

    def read(packed: bytes) -> Any:
        value = whole(packed)
        if not isinstance(value, Unreadable) or packed[:1] not in (INLINE, TREE):
            return value
        try:
            return partly(packed[1:] if packed[:1] == INLINE else content(store, packed))
        except ValueProblem as error:  # not one of its parts, but the tree
            return Unreadable(f"<{error.message}>")

    return read


def partly(item: bytes, depth: int = 0) -> Any:
    """A value out of its bytes, as far as its types are known here."""
    try:
        return codec.decode(item)
    except ValueProblem as error:
        unknown = Unreadable(f"<{error.message}>")
    head = head_of(item)
    if not head.stride or depth >= VALUE_DEPTH_MAX:
        return unknown
    items = [bytes(it) for it in items_of(item[head.size :], head.items)]
    mark = _MARKS.get(items[0]) if head.stride == 1 and items else None
    parts = [partly(it, depth + 1) for it in (items if mark is None else items[1:])]
    if head.stride == 2 or mark == Tag.MAP:
        return dict(zip(parts[::2], parts[1::2], strict=True))
    return _PLURAL[mark](parts) if mark in _PLURAL else unknown


def marked(value: Any) -> Any:
    """The same for JSON, in which what is only named is an object of its own."""
    if isinstance(value, Unreadable):
        return {UNREADABLE: str(value).removeprefix("<").removesuffix(">")}
    if isinstance(value, dict):
        return {key: marked(it) for key, it in value.items()}
    if isinstance(value, list | tuple):
        return [marked(it) for it in value]
    return value
