"""Group commit: many callers, one transaction.

Leader and follower: a caller puts its unit into the queue and asks for the lock. Who gets it commits everything
that has queued up, in one transaction, and the others find their unit settled. A lone caller commits in its own
thread, with nothing to wake. An event loop hands the lead to one thread, and gets all results in one callback.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..limits import BATCH_COMMITS_MAX
from .base import Unit

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class Ticket:
    """A unit in the queue, and what became of it."""

    __slots__ = ("error", "future", "result", "settled", "unit")

    def __init__(self, unit: Unit[Any], future: asyncio.Future[Any] | None = None) -> None:
        self.unit = unit
        self.future = future
        self.settled = False
        self.result: Any = None
        self.error: BaseException | None = None


class Committer:
    """Orders the commits of one process. `execute` settles each ticket of a batch, or raises for all of them."""

    def __init__(self, execute: Callable[[Sequence[Ticket]], None]) -> None:
        self._execute = execute
        self._queue: deque[Ticket] = deque()
        self._lead = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wanted = threading.Semaphore(0)
        self._kicked = False
        self._closed = False

    def submit(self, unit: Unit[T]) -> T:
        """Commit in this thread, together with whatever else is waiting."""
        ticket = Ticket(unit)
        self._queue.append(ticket)
        with self._lead:
            while not ticket.settled:
                self._commit_queue()
        if ticket.error is not None:
            raise ticket.error
        result: T = ticket.result
        return result

    async def submit_async(self, unit: Unit[T]) -> T:
        """Commit in the committer's thread; the unit is settled even when the caller is cancelled."""
        import asyncio

        loop = asyncio.get_running_loop()
        ticket = Ticket(unit, loop.create_future())
        self._queue.append(ticket)
        if not self._kicked:
            # Not at once: every task that is ready in this turn of the loop gets its unit into the batch.
            self._kicked = True
            loop.call_soon(self._kick)
        cancelled: asyncio.CancelledError | None = None
        assert ticket.future is not None
        while not ticket.future.done():
            try:
                await asyncio.shield(ticket.future)
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
        result: T = ticket.future.result()
        return result

    def close(self) -> None:
        """End the thread, after what is queued."""
        self._closed = True
        if self._thread is not None:
            self._wanted.release()
            self._thread.join()
            self._thread = None

    def _kick(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="perdure-commit", daemon=True)
            self._thread.start()
        self._wanted.release()

    def _serve(self) -> None:
        while True:
            self._wanted.acquire()
            self._kicked = False
            with self._lead:
                while self._queue:
                    self._commit_queue()
            if self._closed:
                return

    def _commit_queue(self) -> None:
        batch: list[Ticket] = []
        while self._queue and len(batch) < BATCH_COMMITS_MAX:
            batch.append(self._queue.popleft())
        try:
            self._execute(batch)
        except BaseException as error:
            # The whole transaction is gone: every caller must hear it, above all the followers.
            for ticket in batch:
                ticket.error = error
        for ticket in batch:
            ticket.unit.settle(ticket.error is None)
            ticket.settled = True
        _tell_loops(batch)


def _tell_loops(batch: Sequence[Ticket]) -> None:
    """Resolve the futures of a batch with one callback per event loop."""
    waiting: dict[Any, list[Ticket]] = {}
    for ticket in batch:
        if ticket.future is not None:
            waiting.setdefault(ticket.future.get_loop(), []).append(ticket)
    for loop, tickets in waiting.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, tickets)


def _resolve(tickets: Sequence[Ticket]) -> None:
    for ticket in tickets:
        assert ticket.future is not None
        if ticket.future.done():
            continue
        if ticket.error is not None:
            ticket.future.set_exception(ticket.error)
        else:
            ticket.future.set_result(ticket.result)
