"""What stands for the elements of a list, exactly and quickly, so that two versions of it can be compared.

`marshal` writes what is of exactly the builtin types, tells all of them apart but bytes from other buffers, and refuses
the rest; all of it in C. Nothing is ever read from it.
"""

from __future__ import annotations

import marshal  # noqa: TID251 - written to be compared, and never read
from operator import attrgetter
from typing import Any, Final

from .models import PlainModel
from .registry import entry_of
from .walk import is_plain

_VERSION: Final = 2
"""The last one without references, which tell one object from an equal one."""

_SOME: Final = 32
"""Elements of one key."""

_PARTS: Final = attrgetter("__dict__", "__pydantic_extra__", "__pydantic_private__")
_names: Final[dict[type, str | None]] = {}


def fingerprint(value: list[Any], known: tuple[bytes, ...] = (), count: int = 0) -> tuple[bytes, ...]:
    """Keys that are equal when the elements are, for so many of them each; of the first `count` they are known."""
    whole = count // _SOME
    more = [_key(value[start : start + _SOME]) for start in range(whole * _SOME, len(value), _SOME)]
    return (*known[:whole], *more) if all(more) else ()


def begins_with(value: list[Any], keys: tuple[bytes, ...], count: int) -> bool:
    """Whether the first elements are those that the keys stand for."""
    if len(value) < count:
        return False
    # In pieces that fit into the cache of a processor: a conversation is longer than that.
    starts = range(0, count, _SOME)
    return all(_key(value[start : min(start + _SOME, count)]) == key for start, key in zip(starts, keys, strict=True))


def _key(some: list[Any]) -> bytes:
    try:
        return marshal.dumps(some, _VERSION)
    except ValueError:
        pass  # not of builtin types alone
    names = list(map(_name, some))
    if None in names:
        return b""
    try:
        return marshal.dumps(list(zip(names, map(_PARTS, some), strict=True)), _VERSION)
    except ValueError:
        return b""


def is_exact(value: list[Any]) -> bool:
    """Whether that is exact: there are no bytes in it."""
    if is_plain(value):
        return True
    return all(_name(item) for item in value) and is_plain([vars(item) for item in value])


def _name(item: Any) -> str | None:
    kind = type(item)
    if kind not in _names:
        entry = entry_of(kind)
        if entry is None:
            return None  # it may be registered yet
        _names[kind] = entry.name if isinstance(entry.shape, PlainModel) else None
    return _names[kind]
