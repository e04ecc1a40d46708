"""Group commit: many callers, one transaction.

Leader and follower: a caller puts its unit into the queue. Who gets the lock leads, and commits everything that
has queued up, in one transaction; the others sleep until they are woken with their units settled. A lone caller
commits in its own thread, with nothing to wake. An event loop hands the lead to one thread, and gets all results
in one callback.

A signal handler of the user's may raise between any two lines here, in whichever thread leads. So the lock alone
says who leads, waking somebody is only a hint, and a batch that was left half done is settled by the next leader.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import PerdureError, StoreBusy
from ..limits import BATCH_COMMITS_MAX
from .base import Unit, to_its_end

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

NAP_SECONDS = 0.05
"""After so long a follower looks for itself whether anybody leads."""

REST_SECONDS = 1.0
"""The same for the thread that serves event loops."""


class Ticket:
    """A unit in the queue, and what became of it."""

    __slots__ = ("error", "future", "given_up", "result", "settled", "unit", "wake")

    def __init__(self, unit: Unit[Any], future: asyncio.Future[Any] | None = None) -> None:
        self.unit = unit
        self.future = future
        self.settled = False
        self.given_up = False
        """Its caller was interrupted, and does not want it any more."""
        self.wake: threading.Lock | None = None
        """Locked while its caller sleeps."""
        self.result: Any = None
        self.error: BaseException | None = None


class Batch(list[Ticket]):
    """The tickets of one transaction."""

    __slots__ = ("ended",)

    def __init__(self) -> None:
        self.ended = False
        """The transaction is over, and every ticket knows how it went: what is raised now comes too late to undo it."""


class Committer:
    """Orders the commits of one process. `execute` ends a batch, or raises for all of it."""

    def __init__(self, execute: Callable[[Batch], None]) -> None:
        self._execute = execute
        self._queue: deque[Ticket] = deque()
        self._lead = threading.Lock()
        self._batch = Batch()
        """What is being committed: kept here, so that nobody in it is forgotten when its leader is interrupted."""
        self._thread: threading.Thread | None = None
        self._wanted = threading.Semaphore(0)
        self._kicked = False
        self._closed = False

    def submit(self, unit: Unit[T]) -> T:
        """Commit in this thread, together with whatever else is waiting, or be committed by another one."""
        ticket = Ticket(unit)
        self._queue.append(ticket)
        try:
            while not ticket.settled:
                if self._lead.locked():
                    self._sleep(ticket)
                else:
                    self._commit_batch(ticket)
        except BaseException:
            ticket.given_up = True
            raise
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
        assert ticket.future is not None
        return await to_its_end(ticket.future)

    @contextmanager
    def at_rest(self, seconds: float) -> Iterator[None]:
        """No batch is under way meanwhile; unless the one who asks is in the middle of it, or it takes too long."""
        still = self._lead.acquire(timeout=seconds)
        try:
            yield
        finally:
            if still:
                self._lead.release()

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
            self._wanted.acquire(timeout=REST_SECONDS)
            self._kicked = False
            while self._queue or self._batch:
                self._commit_batch()
            if self._closed:
                return

    def _sleep(self, ticket: Ticket) -> None:
        """Wait for the one who leads: it settles the ticket, or wakes its caller to lead."""
        if ticket.wake is None:
            wake = threading.Lock()
            wake.acquire()
            ticket.wake = wake
        # Looked at again: who left the lead before it could see the lock wakes nobody.
        if self._lead.locked() and not ticket.settled:
            ticket.wake.acquire(timeout=NAP_SECONDS)

    def _commit_batch(self, mine: Ticket | None = None) -> None:
        """Lead for one batch, unless it has become unnecessary; then wake the next leader."""
        try:
            with self._lead:
                if self._batch:
                    self._settle(_interrupted(None))
                if mine is None or not mine.settled:
                    self._commit_queue(mine)
        finally:
            if self._queue:
                self._wake_next()

    def _commit_queue(self, mine: Ticket | None) -> None:
        batch, queue = self._batch, self._queue
        while queue and len(batch) < BATCH_COMMITS_MAX:
            first = queue[0]
            # In this order: between two lines it is in both, never in none.
            if not first.settled and not first.given_up:
                batch.append(first)
            queue.popleft()
        if not batch:
            return
        try:
            self._execute(batch)
        except PerdureError as error:
            # The whole transaction is gone: every caller must hear it, above all the followers.
            self._settle(error)
        except BaseException as error:
            # What interrupts one caller, or is its own mistake, is not for the others to hear.
            self._settle(error if len(batch) == 1 else _interrupted(error))
            if batch.ended or mine is not None:
                raise
        else:
            self._settle(None)

    def _settle(self, failure: BaseException | None) -> None:
        """Tell everybody in the batch what became of it; a failure counts only if the transaction has not ended."""
        batch = self._batch
        loops = False
        for ticket in batch:
            if not ticket.settled:
                if failure is not None and not batch.ended:
                    ticket.error = failure
                ticket.unit.settle(ticket.error is None)
                ticket.settled = True
            loops = loops or ticket.future is not None
            if ticket.wake is not None:
                _wake(ticket.wake)
        if loops:
            _tell_loops(batch)
        self._batch = Batch()

    def _wake_next(self) -> None:
        """Somebody has queued up meanwhile: the first of them leads."""
        try:
            first = self._queue[0]
        except IndexError:
            return  # another leader was quicker
        if first.future is not None:
            self._wanted.release()
        elif first.wake is not None:
            _wake(first.wake)


def _interrupted(cause: BaseException | None) -> StoreBusy:
    error = StoreBusy("the commit was interrupted; nothing was written")
    error.__cause__ = cause
    return error


def _wake(sleeper: threading.Lock) -> None:
    if sleeper.locked():
        with suppress(RuntimeError):  # somebody else has woken it meanwhile
            sleeper.release()


def _tell_loops(batch: Batch) -> None:
    """Resolve the futures of a batch with one callback per event loop."""
    waiting: dict[Any, list[Ticket]] = {}
    for ticket in batch:
        if ticket.future is not None:
            waiting.setdefault(ticket.future.get_loop(), []).append(ticket)
    for loop, tickets in waiting.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, tickets)


def _resolve(tickets: list[Ticket]) -> None:
    for ticket in tickets:
        assert ticket.future is not None
        if ticket.future.done():
            continue
        if ticket.error is not None:
            ticket.future.set_exception(ticket.error)
        else:
            ticket.future.set_result(ticket.result)
