"""Fast, exact fingerprints of list elements, to compare two versions of a list.

`marshal` writes values of builtin types in C. It distinguishes all of them except bytes from other buffers, and refuses
the rest. Nothing is ever read from its output.
"""

from __future__ import annotations

import marshal  # noqa: TID251 - written to be compared, and never read
from operator import attrgetter
from typing import Any, Final

from perdure.values.codec.encoder import is_plain
from perdure.values.codec.models import PlainModel
from perdure.values.codec.registry import entry_of

_VERSION: Final = 2
"""The last marshal version without references, which would distinguish equal objects."""

_SOME: Final = 32
"""Elements per key."""

_PARTS: Final = attrgetter("__dict__", "__pydantic_extra__", "__pydantic_private__")
_names: Final[dict[type, str | None]] = {}


def fingerprint(value: list[Any], known: tuple[bytes, ...] = (), count: int = 0) -> tuple[bytes, ...]:
    """Return keys that are equal when the elements are, one per group. The keys of the first `count` are known."""
    whole = count // _SOME
    more = [_key(value[start : start + _SOME]) for start in range(whole * _SOME, len(value), _SOME)]
    return (*known[:whole], *more) if all(more) else ()


def begins_with(value: list[Any], keys: tuple[bytes, ...], count: int) -> bool:
    """Return whether the list begins with the elements that the keys stand for."""
    if len(value) < count:
        return False
    # In groups that fit into the processor cache: a conversation is longer than that.
    starts = range(0, count, _SOME)
    return all(_key(value[start : min(start + _SOME, count)]) == key for start, key in zip(starts, keys, strict=True))


def may_begin_with(value: list[Any], keys: tuple[bytes, ...], count: int) -> bool:
    """Return False if the list certainly does not begin with these elements. Looks at the first and last of them."""
    if len(value) < count or not keys:
        return False
    last = (len(keys) - 1) * _SOME
    return _key(value[last:count]) == keys[-1] and _key(value[: min(_SOME, count)]) == keys[0]


def _key(some: list[Any]) -> bytes:
    try:
        return marshal.dumps(some, _VERSION)
    except ValueError:
        pass  # contains other than builtin types
    names = list(map(_name, some))
    if None in names:
        return b""
    try:
        return marshal.dumps(list(zip(names, map(_PARTS, some), strict=True)), _VERSION)
    except ValueError:
        return b""


def is_exact(value: list[Any]) -> bool:
    """Return whether fingerprints of this list are exact: it contains no bytes."""
    if is_plain(value):
        return True
    return all(_name(item) for item in value) and is_plain([vars(item) for item in value])


def _name(item: Any) -> str | None:
    kind = type(item)
    if kind not in _names:
        entry = entry_of(kind)
        if entry is None:
            return None  # the class may be registered later
        _names[kind] = entry.name if isinstance(entry.shape, PlainModel) else None
    return _names[kind]
