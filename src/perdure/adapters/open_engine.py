"""Opens the engine for an adapter, from an agent or the location of a store."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from perdure.errors import StoreClosed, WrongType
from perdure.kernel.engine import Engine

if TYPE_CHECKING:
    from perdure.api.aio import AsyncAgent
    from perdure.api.sync import Agent

AgentOrStore: TypeAlias = "Agent | AsyncAgent | str | os.PathLike[str] | None"


class EngineHolder:
    """Holds an engine. An engine opened here is closed with this object; an agent stays with its owner."""

    def __init__(self, given: AgentOrStore, name: str) -> None:
        self._close: Callable[[], object] | None = None
        self._closed = False
        if given is None or isinstance(given, str | os.PathLike):
            self.engine = Engine(name, store=given)
            self._close = weakref.finalize(self, self.engine.close)
            return
        engine = getattr(given, "_engine", None)
        if not isinstance(engine, Engine):
            raise WrongType(f"pass an agent, or the URL or path of a store, not {given!r}")
        self.engine = engine

    def close(self) -> None:
        """Close the store if it was opened here."""
        self._closed = True
        if self._close is not None:
            self._close()

    def check_open(self) -> None:
        """Raise `StoreClosed` after `close`, also if the store is an agent's and still open."""
        if self._closed:
            raise StoreClosed("the session is closed", hint="create a new one; everything that was stored is kept")
