"""Turns: a client that was overtaken again and again goes first for a moment.

No transaction waits for a client. A turn only makes other clients' units of several batches wait, here and not in the
database, until the holder of the turn has ended its unit or has been silent for too long.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque

TURN_SECONDS = 0.5
"""How long a turn lasts without a request of its client."""


class ClientTurns:
    """The turns of one store, in the order of request."""

    def __init__(self) -> None:
        self._holder = ""
        self._until = 0.0
        self._waiting: deque[tuple[str, asyncio.Future[None]]] = deque()

    async def enter(self, token: str) -> None:
        """Wait for a turn and hold it; without a token, only wait until nobody else has one."""
        while not self._is_free(token):
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((token, future))
            try:
                await asyncio.wait_for(future, max(0.001, self._until - time.monotonic()))
            except TimeoutError:
                self._end()  # its holder is silent
        if token:
            self._holder, self._until = token, time.monotonic() + TURN_SECONDS

    def leave(self, token: str) -> None:
        """End a turn: the unit has committed or failed."""
        if token and token == self._holder:
            self._end()

    def _is_free(self, token: str) -> bool:
        return not self._holder or self._holder == token or time.monotonic() >= self._until

    def _end(self) -> None:
        """Pass the turn to the first that waits for one; wake all others that wait."""
        self._holder = next((token for token, future in self._waiting if token and not future.done()), "")
        self._until = time.monotonic() + TURN_SECONDS
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            if not future.done():
                future.set_result(None)
