"""Virtual time and a seeded scheduler: one task at a time, and the seed decides which.

A task is a generator. It yields a number of milliseconds to sleep, or a `Wait` for a signal. Between two yields
nothing else happens, so that every yield is a place where the world may change.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from heapq import heappop, heappush
from typing import Any

Steps = Generator[Any, Any, Any]


class Signal:
    """Something that happens once; tasks wait for it."""

    __slots__ = ("fired", "value", "waiting")

    def __init__(self) -> None:
        self.fired = False
        self.value: Any = None
        self.waiting: list[tuple[Task, int]] = []


class Wait:
    """Yielded by a task: until the signal has fired, or so many milliseconds have passed; answered with whether."""

    __slots__ = ("signal", "timeout")

    def __init__(self, signal: Signal, timeout: int | None = None) -> None:
        self.signal = signal
        self.timeout = timeout


class Owner:
    """Whoever tasks belong to: it can be stopped for a while, and it can die."""

    name = "?"
    dead = False
    asleep_until = 0


class Task:
    """A generator on its way."""

    __slots__ = ("epoch", "owner", "steps")

    def __init__(self, steps: Steps, owner: Owner | None) -> None:
        self.steps = steps
        self.owner = owner
        self.epoch = 0
        """Grows with every step: a timer of an earlier one means nothing any more."""


class World:
    """The clock that nobody in it can see, and what is going to happen."""

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        self.random = random.Random(seed)
        self.now = 0
        self.current: Owner | None = None
        """Whose code is running."""
        self.stopped = False
        """Nothing more is to be seen."""
        self.lines: list[str] | None = [] if trace else None
        self._agenda: list[tuple[int, int, int, Task, int, Any]] = []
        self._count = 0

    def note(self, who: str, what: str) -> None:
        """A line of the trace; call it only when `lines` is not None, for speed."""
        assert self.lines is not None
        self.lines.append(f"{self.now / 1000:9.3f}  {who:<10} {what}")

    def chance(self, probability: float) -> bool:
        """True that often."""
        return self.random.random() < probability

    def between(self, low: int, high: int) -> int:
        """A number of milliseconds."""
        return low + int(self.random.random() * (high - low + 1))

    def spawn(self, steps: Steps, owner: Owner | None = None, delay: int = 0) -> Task:
        """Start a task."""
        task = Task(steps, owner)
        self._push(task, self.now + delay, None)
        return task

    def fire(self, signal: Signal, value: Any = None) -> None:
        """Let it happen; who waits goes on at this moment, in an order that the seed chooses."""
        if signal.fired:
            return
        signal.fired, signal.value = True, value
        for task, epoch in signal.waiting:
            if task.epoch == epoch:  # else it was tired of waiting
                task.epoch += 1
                self._push(task, self.now, True)
        signal.waiting.clear()

    def run(self, until: int) -> bool:
        """Let things happen; False when there is still something to do at that time."""
        agenda = self._agenda
        while agenda and not self.stopped:
            at, _, _, task, epoch, value = heappop(agenda)
            if task.epoch != epoch:
                continue
            owner = task.owner
            if owner is not None:
                if owner.dead:
                    continue
                if owner.asleep_until > at:
                    self._push(task, owner.asleep_until, value)
                    continue
            if at > until:
                return False
            self.now, self.current = at, owner
            self._step(task, value)
        return True

    def _push(self, task: Task, at: int, value: Any) -> None:
        self._count += 1
        heappush(self._agenda, (at, self.random.getrandbits(24), self._count, task, task.epoch, value))

    def _step(self, task: Task, value: Any) -> None:
        task.epoch += 1
        try:
            wanted = task.steps.send(value)
        except StopIteration:
            return
        if type(wanted) is int:
            self._push(task, self.now + wanted, None)
            return
        signal = wanted.signal
        if signal.fired:
            self._push(task, self.now, True)
            return
        signal.waiting.append((task, task.epoch))
        if wanted.timeout is not None:
            self._push(task, self.now + wanted.timeout, False)
