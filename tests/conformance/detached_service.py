"""An outside world that goes on whatever becomes of its caller, for tests of bodies that outlive their block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from perdure import Done, NotDone

from .kit import PATIENCE, World


class Broken(Exception):
    """A failure of the program."""


def make_world_check(world: World) -> Callable[..., object]:
    """A check that asks the world itself."""
    return lambda *_, key: Done("paid") if world.count(key) else NotDone


class Outside:
    """A slow call to the outside, which goes on whatever becomes of its caller."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.arrives = True

    def hold(self) -> None:
        """Occupy a thread until the outside goes on."""
        self.begun.set()
        assert self.go_on.wait(PATIENCE)

    def post(self, key: str) -> None:
        self.hold()
        if self.arrives:
            self._world.do(key)

    async def post_async(self, key: str) -> None:
        self.begun.set()
        while not self.go_on.is_set():
            await asyncio.sleep(0.01)
        if self.arrives:
            self._world.do(key)
