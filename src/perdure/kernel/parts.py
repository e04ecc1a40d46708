"""Objects that higher floors keep with an agent, a store or an open run.

The kernel does not know their classes: each noun asks for its own part, and the first request makes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from perdure.values.locks import rlock

P = TypeVar("P")


class Parts:
    """One object per class."""

    __slots__ = ("_lock", "_made")

    def __init__(self) -> None:
        self._made: dict[Callable[..., Any], Any] = {}
        self._lock = rlock()

    def get(self, kind: Callable[[], P]) -> P:
        """Return the object of a class, creating it on the first request."""
        made: P | None = self._made.get(kind)
        if made is None:
            made = self.get_or_make(kind, kind)
        return made

    def get_or_make(self, kind: Callable[..., P], make: Callable[[], P]) -> P:
        """Return the object of a class whose constructor needs arguments; `make` supplies them."""
        with self._lock:
            if kind not in self._made:
                self._made[kind] = make()
            found: P = self._made[kind]
        return found

    def clear(self) -> None:
        """Drop every object."""
        with self._lock:
            self._made.clear()
