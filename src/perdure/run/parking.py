"""How a worker leaves a run that waits, or that it has no time for any more: at a moment when nothing is under way.

What leaves is a `BaseException`: it unwinds the program, which goes on from its journal when the run is taken again.
Code that catches it changes nothing: whatever it asks of the run raises it once more, and the run ends the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from .. import locks
from .. import records as r
from ..task_records import NEVER
from .requests import Pause, Protocol, T

if TYPE_CHECKING:
    from .core import RunCore

LOOK_SECONDS = 0.01
"""How often somebody who wants to leave looks whether everybody else has come to an end."""

GRACE_MS = 30
"""Tasks of an event loop have so long to go on, after the last of them has done something, before a run is parked."""

SHORT_MS = 250
"""A wait that ends so soon is not worth leaving for."""


class Left(BaseException):
    """The worker leaves the run here; it is not an error, and not for programs to handle."""


class Parked(Left):
    """It waits, for these things or until a time."""

    def __init__(self, until: int, waiters: Sequence[Waiter]) -> None:
        super().__init__("the run waits, and its worker has left it")
        self.until = until
        self.wants = tuple(it.want for it in waiters if it.want is not None)
        self.streams = frozenset(it.run.head.stream for it in waiters)
        """Of the runs that wait: the one that was taken, or some inside it."""


class Drained(Left):
    """The worker ends, and others take the run."""


class Waiter(msgspec.Struct, frozen=True, eq=False):
    """Somebody in the run who waits."""

    run: RunCore
    want: r.Want | None
    until: int
    inside: bool


class Parking:
    """Who in a run, and in the runs inside it, is at work and who waits."""

    def __init__(self, now: Callable[[], int], drains: Callable[[], bool], *, loop: bool) -> None:
        self.left: Left | None = None
        """Set once and for all when the run is left."""
        self.shared = loop
        """Whether several threads or tasks may be at work in it."""
        self._now = now
        self._drains = drains
        self._lock = locks.lock()
        self._at_work = 0
        self._last = now()
        self._waiters: dict[int, Waiter] = {}

    def must_stay(self) -> None:
        """Nothing happens any more in a run that was left."""
        if self.left is not None:
            raise self.left

    def counted(self, protocol: Protocol[T]) -> Protocol[T]:
        """A step or an effect, from its beginning to its recorded end: nobody leaves meanwhile."""
        while not self._enter():
            yield Pause(LOOK_SECONDS)
        try:
            return (yield from protocol)
        finally:
            self._leave()

    def _enter(self) -> bool:
        with self._lock:
            if self._drains() and self.left is None:
                if self._at_work:
                    return False  # what is under way ends first, so that nothing comes into doubt
                self.left = Drained("its worker ends")
            self.must_stay()
            self._at_work += 1
            self._last = self._now()
            return True

    def _leave(self) -> None:
        with self._lock:
            self._at_work -= 1
            self._last = self._now()

    def wait(self, run: RunCore, want: r.Want | None, until: int, *, inside: bool = False) -> Waiter:
        """Somebody waits from now on; `inside` a step or an effect that is counted as at work."""
        waiter = Waiter(run, want, until, inside)
        with self._lock:
            self._waiters[id(waiter)] = waiter
            self._at_work -= inside
        return waiter

    def go_on(self, waiter: Waiter) -> None:
        """It does not wait any more."""
        with self._lock:
            del self._waiters[id(waiter)]
            self._at_work += waiter.inside

    def leave_if_idle(self) -> None:
        """Raise when all that is left to do in the run is to wait."""
        with self._lock:
            if self.left is None and not self._at_work and self._is_quiet():
                waiters = list(self._waiters.values())
                until = min((it.until for it in waiters if it.until), default=NEVER)
                if until - self._now() > SHORT_MS:
                    self.left = Parked(until, waiters)
        self.must_stay()

    def _is_quiet(self) -> bool:
        return not self.shared or self._now() - self._last >= GRACE_MS
