"""What an adapter is given: an agent, or where its store is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...engine import Engine

if TYPE_CHECKING:
    from ...aio import AsyncAgent
    from ...sync import Agent


def opened(given: Agent | AsyncAgent | str | os.PathLike[str] | None, name: str) -> tuple[Engine, bool]:
    """The engine below it, and whether it is ours to close."""
    if given is None or isinstance(given, str | os.PathLike):
        return Engine(name, store=given), True
    engine = getattr(given, "_engine", None)
    if not isinstance(engine, Engine):
        raise TypeError(f"an agent, or the URL or path of a store, is wanted, not {given!r}")
    return engine, False
