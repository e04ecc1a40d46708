"""Eight conversations at once on one saver, in threads or in tasks of one loop, beside one alone."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

from .entries import Saver
from .talk import Talk

SALT = 1_000_000


class Crowd:
    """Conversations that go on by so many steps each time they are asked."""

    def __init__(self, saver: Saver, count: int) -> None:
        self._saver = saver
        self._talks = [Talk(saver, f"crowd-{number}", "dicts", SALT * (number + 1)) for number in range(count)]
        self._said = [0] * count

    def run_alone(self, steps: int) -> float:
        """Steps per second of the first one."""
        return self._time_steps([0], steps)

    def run_together(self, steps: int) -> float:
        """Steps per second of all of them."""
        return self._time_steps(list(range(len(self._talks))), steps)

    def _time_steps(self, who: list[int], steps: int) -> float:
        for number in who:
            self._talks[number].messages(self._said[number], steps)
        begun = perf_counter()
        if self._saver.is_async:
            self._saver.run(self._tasks(who, steps))
        else:
            self._threads(who, steps)
        took = perf_counter() - begun
        for number in who:
            self._said[number] += steps
        return len(who) * steps / took

    async def _tasks(self, who: list[int], steps: int) -> None:
        await asyncio.gather(*(self._talks[number].steps(self._said[number], steps) for number in who))

    def _threads(self, who: list[int], steps: int) -> None:
        with ThreadPoolExecutor(len(who)) as pool:
            list(pool.map(lambda number: self._saver.run(self._talks[number].steps(self._said[number], steps)), who))
