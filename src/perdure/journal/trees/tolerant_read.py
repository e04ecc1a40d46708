"""Reads values whose types may be registered in another program and not here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.errors import ValueProblem
from perdure.journal.trees.read import unpack
from perdure.store.base import Store
from perdure.values.codec.decoder import decode_as_dicts


class Unreadable(str):
    """Replaces a stored value that this process cannot decode, and says why."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def tolerant(store: Store) -> Callable[[bytes], Any]:
    """Return a decoder that shows objects of unknown classes as dicts, and a reason for other unknown values."""

    def read(packed: bytes) -> Any:
        try:
            with decode_as_dicts():
                return unpack(store, packed)  # it also handles values that are not trees
        except ValueProblem as error:
            return Unreadable(f"<{error.message}>")

    return read
