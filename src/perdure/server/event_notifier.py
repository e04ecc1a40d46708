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

POLL_SECONDS = 0.05
"""How often the file of an agent is looked at; noticing that nothing was committed is nearly free."""
POLL_SERVER_SECONDS = 0.2


class EventNotifier:
    """Notifies followers when an agent may have new events, and when the server stops."""

    def __init__(self, engine: Engine, stopping: asyncio.Event) -> None:
        self._engine = engine
        self._stopping = stopping
        self._newest: Row | None = None
        self.followers = 0
        self.next_change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """The next notification completes it. Get it before you read events, or you can miss one."""

    async def poll(self) -> None:
        """Poll the store until nobody follows any more. If the store fails, the followers find out by themselves."""
        store = self._engine.store
        has_changed = store.watch(0) if store.one_host else lambda: True
        while self.followers:
            await asyncio.sleep(POLL_SECONDS if store.one_host else POLL_SERVER_SECONDS)
            try:
                if self._stopping.is_set() or (has_changed() and await asyncio.to_thread(self._has_events)):
                    self._notify()
            except PerdureError:
                self._notify()

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

    def _notify(self) -> None:
        change, self.next_change = self.next_change, asyncio.get_running_loop().create_future()
        change.set_result(None)


class EventNotifiers:
    """The notifiers of all agents whose events somebody follows."""

    def __init__(self, stopping: asyncio.Event) -> None:
        self.stopping = stopping
        self._notifiers: dict[Engine, EventNotifier] = {}
        self._polls: set[asyncio.Task[None]] = set()

    @contextmanager
    def follow(self, engine: Engine) -> Iterator[EventNotifier]:
        """Follow an agent's events within this block."""
        notifier = self._notifiers.get(engine)
        if notifier is None:
            notifier = self._notifiers[engine] = EventNotifier(engine, self.stopping)
        notifier.followers += 1
        if notifier.followers == 1:
            poll = asyncio.create_task(notifier.poll())
            self._polls.add(poll)
            poll.add_done_callback(self._polls.discard)
        try:
            yield notifier
        finally:
            notifier.followers -= 1
            if not notifier.followers:
                del self._notifiers[engine]
