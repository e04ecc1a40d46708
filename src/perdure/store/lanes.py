"""Orders commits that each use a connection of their own.

Units of one stream build on each other, so they commit in order, and those that wait commit together. Units of
different streams commit concurrently.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from perdure.errors import PerdureError, StoreBusy, StoreProblem
from perdure.platform import interrupts
from perdure.platform.failpoints import is_armed
from perdure.store.base import UnitOfWork, wait_shielded
from perdure.store.semaphore import Gate
from perdure.values.limits import BATCH_COMMITS_MAX, LOCK_SECONDS_MAX

T = TypeVar("T")


class LaneTicket:
    """A unit that waits for its turn, and its outcome."""

    __slots__ = ("error", "result", "settled", "unit", "unwanted")

    def __init__(self, unit: UnitOfWork[Any]) -> None:
        self.unit = unit
        self.settled = False
        self.unwanted = False
        """The caller was cancelled: do not wait for an unavailable server."""
        self.result: Any = None
        self.error: BaseException | None = None

    def give_up(self) -> None:
        """Mark the ticket as unwanted by its caller."""
        self.unwanted = True

    def settle(self, result: Any = None, error: BaseException | None = None) -> None:
        """Set the outcome; the first call wins."""
        if not self.settled:
            self.result, self.error, self.settled = result, error, True

    def get(self) -> Any:
        """Return the result or raise the error."""
        if self.error is not None:
            raise self.error
        return self.result


def _nothing() -> None:
    """Stands for a callback that is not needed."""


CommitTickets = Callable[[Sequence[LaneTicket]], None]
"""Settles every ticket of a group, in order."""


def is_unwanted(group: Sequence[LaneTicket]) -> bool:
    """Whether nobody waits any more for the outcome of these units."""
    return interrupts.is_pending() or all(ticket.unwanted for ticket in group)


def commit_group(
    group: Sequence[LaneTicket],
    commit_joint: Callable[[UnitOfWork[Any]], Sequence[Any]],
    commit_one: Callable[[LaneTicket], Any],
) -> None:
    """Commit the units of one lane: as one if possible, else one after the other."""
    first, *rest = group
    joint = first.unit.join([ticket.unit for ticket in rest]) if rest and not is_armed() else None
    if joint is not None:
        joint.lane = first.unit.lane
        _commit_joint(group, joint, commit_joint)
    for ticket in group:
        if not ticket.settled:
            try:
                ticket.settle(commit_one(ticket))
            except PerdureError as error:
                ticket.settle(error=error)


def _commit_joint(
    group: Sequence[LaneTicket], joint: UnitOfWork[Any], commit: Callable[[UnitOfWork[Any]], Sequence[Any]]
) -> None:
    try:
        for ticket, result in zip(group, commit(joint), strict=False):
            ticket.settle(result)
    except StoreProblem as error:
        for ticket in group:
            ticket.settle(error=error)
    except PerdureError:
        pass  # one unit failed: the caller commits each by itself


class _Lane:
    """The queue of one lane."""

    __slots__ = ("gate", "users", "waiting")

    def __init__(self) -> None:
        self.gate = Gate(1)
        self.users = 0
        self.waiting: deque[LaneTicket] = deque()


class CommitLanes:
    """The lanes that are in use."""

    def __init__(self) -> None:
        self._lanes: dict[int, _Lane] = {}
        self._lock = threading.Lock()

    def take(self, ticket: LaneTicket) -> bool:
        """Take the turn without waiting, if nobody uses the lane; it must lead to `give_back`."""
        number = ticket.unit.lane
        with self._lock:
            if number in self._lanes:
                return False
            self._lanes[number] = lane = _Lane()
            lane.users = 1
            return lane.gate.ask(_nothing)

    def give_back(self, ticket: LaneTicket) -> None:
        """End the turn of `take`, in any thread."""
        lane = self._lanes[ticket.unit.lane]
        lane.gate.leave()
        self._part(lane, ticket)

    def go(self, ticket: LaneTicket, commit: CommitTickets, before_waiting: Callable[[], object] = _nothing) -> None:
        """Wait for the turn in this thread and commit, unless another thread has. Lane 0 has no order."""
        if not ticket.unit.lane:
            commit([ticket])
            return
        if self.take(ticket):
            try:
                commit([ticket])
            finally:
                self.give_back(ticket)
            return
        lane = self._join(ticket)
        try:
            before_waiting()
            # Those ahead have deadlines of their own.
            while not lane.gate.enter(time.monotonic() + LOCK_SECONDS_MAX):
                pass
            self._take_turn(lane, ticket, commit)
        finally:
            self._part(lane, ticket)

    def call_at_turn(self, ticket: LaneTicket, start: Callable[[], object]) -> None:
        """Call `start` at the ticket's turn; it must lead to `finish`."""
        if not ticket.unit.lane or self._join(ticket).gate.ask(start):
            start()

    def finish(self, ticket: LaneTicket, commit: CommitTickets) -> None:
        """Take the turn of a ticket that was started."""
        if not ticket.unit.lane:
            commit([ticket])
            return
        lane = self._lanes[ticket.unit.lane]
        try:
            self._take_turn(lane, ticket, commit)
        finally:
            self._part(lane, ticket)

    def _take_turn(self, lane: _Lane, ticket: LaneTicket, commit: CommitTickets) -> None:
        group: list[LaneTicket] = []
        try:
            if not ticket.settled:
                with self._lock:
                    while lane.waiting and len(group) < BATCH_COMMITS_MAX:
                        group.append(lane.waiting.popleft())
                commit(group)
        finally:
            for one in group:
                # Only if this thread was interrupted. Its commit may have landed, so do not retry.
                one.settle(error=StoreBusy("the thread that committed on behalf of this one was interrupted"))
            lane.gate.leave()

    def _join(self, ticket: LaneTicket) -> _Lane:
        with self._lock:
            lane = self._lanes.setdefault(ticket.unit.lane, _Lane())
            lane.users += 1
            lane.waiting.append(ticket)
        return lane

    def _part(self, lane: _Lane, ticket: LaneTicket) -> None:
        with self._lock:
            if ticket in lane.waiting:
                lane.waiting.remove(ticket)  # interrupted while waiting
            lane.users -= 1
            if not lane.users:
                del self._lanes[ticket.unit.lane]


class CommitThreads:
    """Threads that commit for event loops; started on first use."""

    def __init__(self, lanes: CommitLanes, threads: int) -> None:
        self._lanes = lanes
        self._threads = threads
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None

    def start(self, task: Callable[[], object]) -> None:
        """Run a task, which handles its own errors, in one of the threads."""
        self._ensure_executor().submit(task)

    async def result_of(self, unit: UnitOfWork[T], commit: CommitTickets) -> T:
        """Commit at the unit's turn. A cancelled caller still waits for the end."""
        import asyncio

        ours: Future[T] = Future()
        ticket = LaneTicket(unit)

        def task() -> None:
            try:
                self._lanes.finish(ticket, commit)
                ours.set_result(ticket.get())
            except BaseException as error:  # raised in the caller, not in this thread
                ours.set_exception(error)

        self._lanes.call_at_turn(ticket, lambda: self.start(task))
        return await wait_shielded(asyncio.wrap_future(ours), ticket.give_up)

    def close(self) -> None:
        """Finish running commits and end the threads."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()

    def _ensure_executor(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="perdure-commit")
            return self._executor
