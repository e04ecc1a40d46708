"""Wakes the followers of an agent's events: one look at the store for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from perdure.data.events.positions import read_settled_end
from perdure.data.events.read import book_of
from perdure.errors import PerdureError
from perdure.kernel.engine import Engine
from perdure.store.base import Row

LOOK_SECONDS = 0.05
"""How often the file of an agent is looked at; noticing that nothing was committed is nearly free."""
LOOK_AT_SERVER_SECONDS = 0.2


class EventBell:
    """Rings when an agent may have new events, and when the server stops."""

    def __init__(self, engine: Engine, stopping: asyncio.Event) -> None:
        self._engine = engine
        self._stopping = stopping
        self._newest: Row | None = None
        self.followers = 0
        self.ring: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """The next ring completes it. Get it before you read events, or you can miss a ring."""

    async def look(self) -> None:
        """Ring until nobody follows any more. If the store fails, the followers find out by themselves."""
        store = self._engine.store
        has_changed = store.watch(0) if store.one_host else lambda: True
        while self.followers:
            await asyncio.sleep(LOOK_SECONDS if store.one_host else LOOK_AT_SERVER_SECONDS)
            try:
                if self._stopping.is_set() or (has_changed() and await asyncio.to_thread(self._has_events)):
                    self._wake()
            except PerdureError:
                self._wake()

    def _has_events(self) -> bool:
        before, self._newest = self._newest, self._read_newest()
        return before != self._newest

    def _read_newest(self) -> Row | None:
        book = book_of(self._engine)
        if book is None:
            return None
        settled = read_settled_end(self._engine.store)
        rows = self._engine.store.read("last_event_before", (book.owner, settled.arrival))
        return rows[0] if rows else None

    def _wake(self) -> None:
        ring, self.ring = self.ring, asyncio.get_running_loop().create_future()
        ring.set_result(None)


class EventBells:
    """The bells of all agents whose events somebody follows."""

    def __init__(self, stopping: asyncio.Event) -> None:
        self.stopping = stopping
        self._bells: dict[Engine, EventBell] = {}
        self._looks: set[asyncio.Task[None]] = set()

    @contextmanager
    def join(self, engine: Engine) -> Iterator[EventBell]:
        """Be woken by the bell of an agent."""
        bell = self._bells.get(engine)
        if bell is None:
            bell = self._bells[engine] = EventBell(engine, self.stopping)
        bell.followers += 1
        if bell.followers == 1:
            look = asyncio.create_task(bell.look())
            self._looks.add(look)
            look.add_done_callback(self._looks.discard)
        try:
            yield bell
        finally:
            bell.followers -= 1
            if not bell.followers:
                del self._bells[engine]
