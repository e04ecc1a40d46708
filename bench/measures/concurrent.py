"""Many runs at once in one process: they share syncs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

from perdure import Agent, AsyncAgent

from ..syncs import counter
from ..workload import Series, Texts, operation


class Rounds:
    """Rounds of one run alone and of all runs together, in turns, so that both meet the same machine."""

    def __init__(self, pairs: int, runs: int, steps: int, alone: Callable[[], float]) -> None:
        self.pairs, self.runs, self.steps = pairs, runs, steps
        self._alone = alone
        self._syncs = counter()
        self._together: list[float] = []
        self._ratios: list[float] = []
        self._counted: list[float] = []
        self._cpu: list[float] = []

    def begin(self) -> None:
        """One run alone has its turn, then all of them begin."""
        self._rate = self._alone()
        self._before = self._syncs() if self._syncs else 0
        self._cpu_begun, self._begun = process_time(), perf_counter()

    def end(self) -> None:
        """All have done their steps of this round."""
        seconds, steps = perf_counter() - self._begun, self.runs * self.steps
        self._cpu.append((process_time() - self._cpu_begun) / steps * 1000)
        self._together.append(steps / seconds)
        self._ratios.append(steps / seconds / self._rate)
        if self._syncs:
            self._counted.append((self._syncs() - self._before) / steps)

    def figures(self) -> dict[str, Any]:
        """The first round warms up, and does not count."""
        return {
            "per_second": median(self._together[1:]),
            "ratio": median(self._ratios[1:]),
            "ratio_spread": sorted(self._ratios[1:]),
            "syncs_per_step": sum(self._counted[1:]) / len(self._counted[1:]) if self._counted else None,
            "cpu_ms": median(self._cpu[1:]),
        }


def concurrent(folder: Path, kind: str, runs: int, steps: int, alone: int, pairs: int) -> dict[str, Any]:
    """`runs` runs in tasks or threads, beside one plain run alone that waits for nobody."""
    agent = Agent("alone", store=_url(folder))
    with agent.run("alone"):
        series = Series(operation(agent, "step"))
        series.run(alone, keep=False)
        rounds = Rounds(pairs + 1, runs, steps, lambda: alone / series.run(alone).seconds)
        if kind == "asyncio":
            # In a thread of its own: the context of the open run must not reach the loop.
            worker = threading.Thread(target=lambda: asyncio.run(_tasks(folder, rounds)))
        else:
            worker = threading.Thread(target=lambda: _threads(folder, rounds))
        rounds_alone = _in_main_thread(rounds, series, alone)
        worker.start()
        rounds_alone()
        worker.join()
    agent.close()
    return rounds.figures()


def _url(folder: Path) -> str:
    return f"sqlite:///{folder / 'perdure.db'}"
