"""Order and threads for commits that each have a connection of their own.

Units of one stream build on each other, so they are committed one after the other, and those that have waited are
committed together; units of different streams go side by side.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from ..errors import StoreBusy
from ..limits import BATCH_COMMITS_MAX, LOCK_SECONDS_MAX
from .base import Unit, to_its_end
from .gate import Gate

T = TypeVar("T")


class Ticket:
    """A unit that waits for its turn, and what became of it."""

    __slots__ = ("error", "result", "settled", "unit", "unwanted")

    def __init__(self, unit: Unit[Any]) -> None:
        self.unit = unit
        self.settled = False
        self.unwanted = False
        """Whoever has submitted it was cancelled: a server that is away is not waited for any more."""
        self.result: Any = None
        self.error: BaseException | None = None

    def give_up(self) -> None:
        """Its caller does not want it any more."""
        self.unwanted = True

    def settle(self, result: Any = None, error: BaseException | None = None) -> None:
        """It is over; the first word counts."""
        if not self.settled:
            self.result, self.error, self.settled = result, error, True

    def get(self) -> Any:
        """The result, or the error."""
        if self.error is not None:
            raise self.error
        return self.result


Commit = Callable[[Sequence[Ticket]], None]
"""Settles every ticket of a group, in order."""


class _Lane:
    """One at a time."""

    __slots__ = ("gate", "users", "waiting")

    def __init__(self) -> None:
        self.gate = Gate(1)
        self.users = 0
        self.waiting: deque[Ticket] = deque()


class Lanes:
    """The lanes that are in use."""

    def __init__(self) -> None:
        self._lanes: dict[int, _Lane] = {}
        self._lock = threading.Lock()

    def go(self, ticket: Ticket, commit: Commit) -> None:
        """Wait for the turn in this thread, and commit; or find that somebody has done so. Lane 0 is free for all."""
        if not ticket.unit.lane:
            commit([ticket])
            return
        lane = self._join(ticket)
        try:
            # Whoever is before us has deadlines of its own.
            while not lane.gate.enter(time.monotonic() + LOCK_SECONDS_MAX):
                pass
            self._take_turn(lane, ticket, commit)
        finally:
            self._part(lane, ticket)

    def when_free(self, ticket: Ticket, start: Callable[[], object]) -> None:
        """Call `start` at its turn; whoever was started must `finish`."""
        if not ticket.unit.lane or self._join(ticket).gate.ask(start):
            start()

    def finish(self, ticket: Ticket, commit: Commit) -> None:
        """The turn of a ticket that was started."""
        if not ticket.unit.lane:
            commit([ticket])
            return
        lane = self._lanes[ticket.unit.lane]
        try:
            self._take_turn(lane, ticket, commit)
        finally:
            self._part(lane, ticket)

    def _take_turn(self, lane: _Lane, ticket: Ticket, commit: Commit) -> None:
        group: list[Ticket] = []
        try:
            if not ticket.settled:
                with self._lock:
                    while lane.waiting and len(group) < BATCH_COMMITS_MAX:
                        group.append(lane.waiting.popleft())
                commit(group)
        finally:
            for one in group:
                # Only if this thread was interrupted. What it was at may have landed, so nobody tries it again.
                one.settle(error=StoreBusy("the thread that committed for this one was interrupted"))
            lane.gate.leave()

    def _join(self, ticket: Ticket) -> _Lane:
        with self._lock:
            lane = self._lanes.setdefault(ticket.unit.lane, _Lane())
            lane.users += 1
            lane.waiting.append(ticket)
        return lane

    def _part(self, lane: _Lane, ticket: Ticket) -> None:
        with self._lock:
            if ticket in lane.waiting:
                lane.waiting.remove(ticket)  # it was interrupted as it waited
            lane.users -= 1
            if not lane.users:
                del self._lanes[ticket.unit.lane]


class Workers:
    """Threads that commit for event loops; made when they are first needed."""

    def __init__(self, lanes: Lanes, threads: int) -> None:
        self._lanes = lanes
        self._threads = threads
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None

    async def result_of(self, unit: Unit[T], commit: Commit) -> T:
        """Commit at its turn. A caller that is cancelled still waits for the end."""
        import asyncio

        ours: Future[T] = Future()
        ticket = Ticket(unit)

        def task() -> None:
            try:
                self._lanes.finish(ticket, commit)
                ours.set_result(ticket.get())
            except BaseException as error:  # it belongs to the caller, not to this thread
                ours.set_exception(error)

        executor = self._running()
        self._lanes.when_free(ticket, lambda: executor.submit(task))
        return await to_its_end(asyncio.wrap_future(ours), ticket.give_up)

    def close(self) -> None:
        """End them, after what they are at."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()

    def _running(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="perdure-commit")
            return self._executor
