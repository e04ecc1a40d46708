"""Lets a worker leave a run that waits, or that it must hand over, at a moment when no call is in progress.

It leaves by a `BaseException`, which unwinds the program. The program continues from its journal when the run is taken
again. If code catches it, the next call to the run raises it again, and the run ends the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from perdure import records as r
from perdure.kernel.protocol import Pause, Protocol, T
from perdure.records.tasks import NEVER
from perdure.values import locks

if TYPE_CHECKING:
    from perdure.run.core import RunCore

LOOK_SECONDS = 0.01
"""How often a waiter tests whether all other work has ended."""

GRACE_MS = 30
"""Event loop tasks may continue this long after the last activity before a run is parked."""

SHORT_MS = 250
"""A shorter wait is not worth leaving for."""


class WorkerExit(BaseException):
    """Raised to leave the run. It is not an error, and programs must not handle it."""


class Parked(WorkerExit):
    """Raised when the run waits, for conditions or until a time."""

    def __init__(self, until: int, waiters: Sequence[Waiter]) -> None:
        super().__init__("the run waits, and its worker has left it")
        self.until = until
        self.wants = tuple(waiter.want for waiter in waiters if waiter.want is not None)
        self.streams = frozenset(waiter.run.head.stream for waiter in waiters)
        """The streams of the waiting runs: the one that was taken, or some inside it."""


class Drained(WorkerExit):
    """Raised when the worker shuts down and others take the run."""


class Waiter(msgspec.Struct, frozen=True, eq=False):
    """Code in the run that waits."""

    run: RunCore
    want: r.WakeCondition | None
    until: int
    inside: bool


class RunParking:
    """Tracks which code in a run and the runs inside it works, and which waits."""

    def __init__(self, now: Callable[[], int], drains: Callable[[], bool], *, loop: bool) -> None:
        self.left: WorkerExit | None = None
        """Set permanently when the run is left."""
        self.shared = loop
        """Whether several threads or tasks may work in it."""
        self._now = now
        self._drains = drains
        self._lock = locks.lock()
        self._at_work = 0
        self._last = now()
        self._waiters: dict[int, Waiter] = {}

    def check_not_left(self) -> None:
        """Raise if the run was left."""
        if self.left is not None:
            raise self.left

    def execute_counted(self, begin: Callable[[], Protocol[T]]) -> Protocol[T]:
        """Execute a step or an effect up to its recorded end. The worker does not leave meanwhile."""
        while not self._enter():
            yield Pause(LOOK_SECONDS)
        try:
            return (yield from begin())
        finally:
            self._leave()

    def _enter(self) -> bool:
        with self._lock:
            if self._drains() and self.left is None:
                if self._at_work:
                    return False  # calls in progress end first, so that nothing ends in doubt
                self.left = Drained("its worker ends")
            self.check_not_left()
            self._at_work += 1
            self._last = self._now()
            return True

    def _leave(self) -> None:
        with self._lock:
            self._at_work -= 1
            self._last = self._now()

    def wait(self, run: RunCore, want: r.WakeCondition | None, until: int, *, inside: bool = False) -> Waiter:
        """Register a waiter. `inside` means inside a step or an effect, which no longer counts as working."""
        waiter = Waiter(run, want, until, inside)
        with self._lock:
            self._waiters[id(waiter)] = waiter
            self._at_work -= inside
        return waiter

    def stop_waiting(self, waiter: Waiter) -> None:
        """Unregister a waiter."""
        with self._lock:
            del self._waiters[id(waiter)]
            self._at_work += waiter.inside

    def leave_if_idle(self) -> None:
        """Leave the run if nothing is left to do in it but wait."""
        with self._lock:
            if self.left is None and not self._at_work and self._is_quiet():
                waiters = list(self._waiters.values())
                until = min((waiter.until for waiter in waiters if waiter.until), default=NEVER)
                if until - self._now() > SHORT_MS:
                    self.left = Parked(until, waiters)
        self.check_not_left()

    def _is_quiet(self) -> bool:
        return not self.shared or self._now() - self._last >= GRACE_MS
