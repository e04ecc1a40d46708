"""What can be kept of a value that cannot be stored: its repr, and its data as far as it goes. Both are capped."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final

from perdure.values.codec.exceptions import limited_repr
from perdure.values.codec.refusals import has_fields, type_name
from perdure.values.codec.shapes import shape_of
from perdure.values.codec.standard_collections import NAMES

_ELEMENTS_MAX: Final = 10_000
_CHARACTERS_MAX: Final = 200_000
_TEXT_CHARACTERS_MAX: Final = 20_000
_DEPTH_MAX: Final = 20
_CUT: Final = "…"
_NUMBER_MAX: Final = 2**63


def salvage(value: Any) -> dict[str, Any]:
    """Return plain data that tells what a value was: `{"repr": ..., "data": ...}`."""
    return {"repr": limited_repr(value), "data": _Salvage().reduce(value, 0)}


class _Salvage:
    """One walk. It stops when it has visited or kept enough."""

    def __init__(self) -> None:
        self._elements = _ELEMENTS_MAX
        self._characters = _CHARACTERS_MAX

    def reduce(self, value: Any, depth: int) -> Any:
        self._elements -= 1
        if self._elements < 0 or self._characters < 0 or depth > _DEPTH_MAX:
            return _CUT
        kind = type(value)
        if value is None or kind in (bool, float) or (kind is int and -_NUMBER_MAX <= value < _NUMBER_MAX):
            return value
        if kind is str:
            return self._text(value)
        if kind in (list, tuple, set, frozenset, deque):
            return self._list(value, depth)
        if kind is dict or (kind in NAMES and isinstance(value, dict)):
            return self._dict(value, depth)
        fields = _fields(value)
        if fields is None:
            return self._text(limited_repr(value))
        return {"class": type_name(kind), **self._dict(fields, depth)}

    def _text(self, text: str) -> str:
        kept = text if len(text) <= _TEXT_CHARACTERS_MAX else text[:_TEXT_CHARACTERS_MAX] + _CUT
        self._characters -= len(kept)
        return kept

    def _list(self, items: Iterable[Any], depth: int) -> list[Any]:
        return [self.reduce(item, depth + 1) for item in islice(items, max(self._elements, 0) + 1)]

    def _dict(self, items: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        some = islice(items.items(), max(self._elements, 0) + 1)
        return {
            self._text(key if type(key) is str else limited_repr(key)): self.reduce(item, depth + 1)
            for key, item in some
        }


def _fields(value: Any) -> dict[str, Any] | None:
    """Return the fields of a data class that has some."""
    if not has_fields(type(value)):
        return None
    try:
        shape = shape_of(type(value))
        return None if shape is None else shape.take(value)
    # Code of the user, about a value that was refused already: its repr is kept.
    except Exception:
        return None
