"""Reads values whose types may be registered in another program and not here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import ValueProblem
from ..store.base import Store
from .read import unpack


class Unreadable(str):
    """Replaces a stored value that this process cannot decode, and says why."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def tolerant(store: Store) -> Callable[[bytes], Any]:
    """Return a decoder that replaces values it cannot decode by a reason."""

    def read(packed: bytes) -> Any:
        try:
            return unpack(store, packed)  # it also handles values that are not trees
        except ValueProblem as error:
            return Unreadable(f"<{error.message}>")

    return read
