"""Group commit: many callers, one transaction.

Leader and follower: a caller puts its unit into the queue and tries to lead. Who leads commits everything that has
queued up, in one transaction, wakes exactly those whose units are settled, and passes the lead to one who still
waits. A lone caller commits in its own thread, with nothing to wake. An event loop hands the lead to one thread,
and gets all results in one callback.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ..limits import BATCH_COMMITS_MAX
from .base import Unit

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class Ticket:
    """A unit in the queue, and what became of it."""

    __slots__ = ("_fate", "error", "future", "leads", "result", "settled", "unit", "wake")

    def __init__(self, unit: Unit[Any], future: asyncio.Future[Any] | None = None) -> None:
        self.unit = unit
        self.future = future
        self.settled = False
        self.leads = False
        """The lead has been passed to the thread that waits for this ticket."""
        self._fate = [True]
        self.wake: threading.Lock | None = None
        self.result: Any = None
        self.error: BaseException | None = None

    def wait(self) -> None:
        """Until the ticket is settled or has been given the lead; only its own thread is woken, and only once."""
        wake = threading.Lock()
        wake.acquire()
        self.wake = wake
        # Whoever settles or promotes looks for `wake` after setting the flag: one of the two sees the other.
        if not self.settled and not self.leads:
            wake.acquire()

    def decide(self) -> bool:
        """True for the first who asks: he who passes the lead to this ticket, or its own thread as it gives up."""
        try:
            return self._fate.pop()
        except IndexError:
            return False

    def notify(self) -> None:
        """Wake the thread that waits, if it does already."""
        if self.wake is not None and self.wake.locked():
            self.wake.release()


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
        if self._lead.acquire(blocking=False):
            ticket.leads = True
        else:
            self._follow(ticket)
        if ticket.leads:
            try:
                while not ticket.settled:
                    self._commit_queue()
            finally:
                self._pass_on()
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
            if self._queue and self._lead.acquire(blocking=False):
                self._pass_on()
            if self._closed:
                return

    def _follow(self, ticket: Ticket) -> None:
        try:
            ticket.wait()
        except BaseException:
            # A signal handler of the user's has raised here: the unit is not wanted any more, nor may the lead be lost.
            with suppress(ValueError):
                self._queue.remove(ticket)
            if not ticket.decide():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Give the lead to the first thread that waits. An event loop's tickets have the committer's own thread."""
        while True:
            heir = self._heir()
            if heir is not None:
                if not heir.decide():
                    continue  # its thread has just given up
                heir.leads = True
                heir.notify()
                return
            self._lead.release()
            # Somebody may have queued up after the look and before the release, and found the lead taken.
            if self._heir() is None or not self._lead.acquire(blocking=False):
                return

    def _heir(self) -> Ticket | None:
        return next((ticket for ticket in tuple(self._queue) if ticket.future is None), None)

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
            ticket.notify()
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
