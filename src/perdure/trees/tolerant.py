"""Reading values whose types may be another program's: they are registered there, and not here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import ValueProblem
from ..store.base import Store
from .read import unpack


class Unreadable(str):
    """Stands for a stored value that this process cannot decode, and says why."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def tolerant(store: Store) -> Callable[[bytes], Any]:
    """Decodes values, and says of the others why not."""

    def read(packed: bytes) -> Any:
        try:
            return unpack(store, packed)  # which knows values that are no trees, too
        except ValueProblem as error:
            return Unreadable(f"<{error.message}>")

    return read
