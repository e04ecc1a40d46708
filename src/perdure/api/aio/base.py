"""The base of the public API classes: the agent's engine, and how protocols are driven."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from perdure.kernel.engine import Engine
from perdure.kernel.protocol import Protocol, drive_async, read_protocol
from perdure.values.attributes import KnownAttributes

R = TypeVar("R")


class AsyncFacade(KnownAttributes):
    """A part of the public API: arguments and documentation. The logic is in protocols."""

    __slots__ = ("__weakref__", "_engine")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def _do(self, protocol: Protocol[R]) -> R:
        return await drive_async(self._engine.store, protocol)

    async def _read(self, call: Callable[[], R]) -> R:
        return await drive_async(self._engine.store, read_protocol(call))
