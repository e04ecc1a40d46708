"""What the public faces have in common: an agent's engine, and how its protocols are driven."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..engine import Engine
from ..run.requests import Protocol, drive_async, reading

R = TypeVar("R")


class AsyncFace:
    """Arguments and documentation; everything that decides anything is a protocol."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def _do(self, protocol: Protocol[R]) -> R:
        return await drive_async(self._engine.store, protocol)

    async def _read(self, call: Callable[[], R]) -> R:
        return await drive_async(self._engine.store, reading(call))
