"""What an adapter is given: an agent, or where its store is."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from ...engine import Engine

if TYPE_CHECKING:
    from ...aio import AsyncAgent
    from ...sync import Agent

Given: TypeAlias = "Agent | AsyncAgent | str | os.PathLike[str] | None"


class Home:
    """The engine below it. One that was opened here is closed when nobody has it any more; an agent is its owner's."""

    def __init__(self, given: Given, name: str) -> None:
        self._close: Callable[[], object] | None = None
        if given is None or isinstance(given, str | os.PathLike):
            self.engine = Engine(name, store=given)
            self._close = weakref.finalize(self, self.engine.close)
            return
        engine = getattr(given, "_engine", None)
        if not isinstance(engine, Engine):
            raise TypeError(f"an agent, or the URL or path of a store, is wanted, not {given!r}")
        self.engine = engine

    def close(self) -> None:
        """Give the store back, if it was opened here."""
        if self._close is not None:
            self._close()
