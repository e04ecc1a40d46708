"""Group commit: many callers, one transaction.

Leader and follower: callers queue their units. The caller that gets the lock leads and commits the whole queue in one
transaction; the others sleep until it has settled their units. A lone caller commits in its own thread and wakes
nobody. Event loops leave the lead to one thread, and each gets all its results in one callback.

A user's signal handler may raise between any two lines here. So the lock alone decides who leads, a wake-up is only a
hint, and the next leader settles a batch that was interrupted.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from perdure.errors import PerdureError, StoreBusy
from perdure.store.base import UnitOfWork, wait_shielded
from perdure.values.limits import BATCH_COMMITS_MAX

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

NAP_SECONDS = 0.05
"""How often a sleeping follower checks whether there is a leader."""

REST_SECONDS = 1.0
"""How often the thread for event loops checks the queue."""


class CommitTicket(msgspec.Struct, eq=False):
    """A queued unit and its outcome."""

    unit: UnitOfWork[Any]
    future: asyncio.Future[Any] | None = None
    settled: bool = False
    given_up: bool = False
    """The caller was interrupted and no longer wants it."""
    wake: threading.Lock | None = None
    """Locked while the caller sleeps."""
    result: Any = None
    error: BaseException | None = None


class CommitBatch(list[CommitTicket]):
    """The tickets of one transaction."""

    ended = False
    """The transaction is over and every ticket has its outcome: later errors change nothing."""


class Committer:
    """Orders the commits of one process. `execute` ends a batch, or raises for all of it."""

    def __init__(self, execute: Callable[[CommitBatch], None]) -> None:
        self._execute = execute
        self._queue: deque[CommitTicket] = deque()
        self._lead = threading.Lock()
        self._batch = CommitBatch()
        """The current batch; the next leader settles it if this one is interrupted."""
        self._thread: threading.Thread | None = None
        self._wanted = threading.Semaphore(0)
        self._kicked = False
        self._closed = False

    def submit(self, unit: UnitOfWork[T]) -> T:
        """Commit in this thread together with the queue, or let another thread commit this unit."""
        ticket = CommitTicket(unit)
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

    async def submit_async(self, unit: UnitOfWork[T]) -> T:
        """Commit in the committer's thread; the unit is settled even if the caller is cancelled."""
        import asyncio

        loop = asyncio.get_running_loop()
        ticket = CommitTicket(unit, loop.create_future())
        self._queue.append(ticket)
        if not self._kicked:
            # Deferred, so that all tasks that are ready in this iteration of the loop join the batch.
            self._kicked = True
            loop.call_soon(self._kick)
        assert ticket.future is not None
        return await wait_shielded(ticket.future)

    @contextmanager
    def quiesce(self, seconds: float) -> Iterator[None]:
        """Keep batches from starting meanwhile, unless the caller is inside one or the wait times out."""
        still = self._lead.acquire(timeout=seconds)
        try:
            yield
        finally:
            if still:
                self._lead.release()

    def close(self) -> None:
        """Commit the queue and end the thread."""
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

    def _sleep(self, ticket: CommitTicket) -> None:
        """Wait until the leader settles the ticket or wakes this caller to lead."""
        if ticket.wake is None:
            wake = threading.Lock()
            wake.acquire()
            ticket.wake = wake
        # Check again: a leader that finished before it could see the lock wakes nobody.
        if self._lead.locked() and not ticket.settled:
            ticket.wake.acquire(timeout=NAP_SECONDS)

    def _commit_batch(self, mine: CommitTicket | None = None) -> None:
        """Lead for one batch, unless the ticket is settled by now; then wake the next leader."""
        try:
            with self._lead:
                if self._batch:
                    self._settle(_interrupted_error(None))
                if mine is not None and mine.settled:
                    return
                batch, queue = self._batch, self._queue
                while queue and len(batch) < BATCH_COMMITS_MAX:
                    first = queue[0]
                    # In this order, an interrupted ticket is in both lists, never in none.
                    if not first.settled and not first.given_up:
                        batch.append(first)
                    queue.popleft()
                if not batch:
                    return
                try:
                    self._execute(batch)
                except PerdureError as error:
                    # The whole transaction failed: every caller gets the error.
                    self._settle(error)
                except BaseException as error:
                    # An interrupt or a bug of one caller is not raised in the others.
                    self._settle(error if len(batch) == 1 else _interrupted_error(error))
                    if batch.ended or mine is not None:
                        raise
                else:
                    self._settle(None)
        finally:
            if self._queue:
                self._wake_next()

    def _settle(self, failure: BaseException | None) -> None:
        """Settle every ticket of the batch; a failure counts only if the transaction has not ended."""
        batch, loops = self._batch, False
        for ticket in batch:
            if not ticket.settled:
                if failure is not None and not batch.ended:
                    ticket.error = failure
                ticket.unit.settle(ticket.error is None)
                ticket.settled = True
            if ticket.future is not None:
                loops = True
            if ticket.wake is not None:
                _wake(ticket.wake)
        if loops:
            _tell_loops(batch)
        self._batch = CommitBatch()

    def _wake_next(self) -> None:
        """Wake the first of the queue to lead."""
        try:
            first = self._queue[0]
        except IndexError:
            return  # another leader was faster
        if first.future is not None:
            self._wanted.release()
        elif first.wake is not None:
            _wake(first.wake)


def _interrupted_error(cause: BaseException | None) -> StoreBusy:
    error = StoreBusy("the commit was interrupted; nothing was written")
    error.__cause__ = cause
    return error


def _wake(sleeper: threading.Lock) -> None:
    if sleeper.locked():
        with suppress(RuntimeError):  # another thread has woken it meanwhile
            sleeper.release()


def _tell_loops(batch: CommitBatch) -> None:
    """Resolve the futures of a batch with one callback per event loop."""
    waiting: dict[Any, list[CommitTicket]] = {}
    for ticket in batch:
        if ticket.future is not None:
            waiting.setdefault(ticket.future.get_loop(), []).append(ticket)
    for loop, tickets in waiting.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, tickets)


def _resolve(tickets: list[CommitTicket]) -> None:
    for ticket in tickets:
        assert ticket.future is not None
        if ticket.future.done():
            continue
        if ticket.error is not None:
            ticket.future.set_exception(ticket.error)
        else:
            ticket.future.set_result(ticket.result)
