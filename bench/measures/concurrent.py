"""Many runs at once in one process: they share syncs."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import msgspec

from perdure import Agent, AsyncAgent

from ..syncs import counter
from ..workload import Series, Texts, operation


class Plan(msgspec.Struct, frozen=True):
    """Rounds of one run alone and of all runs together, in turns, so that both meet the same machine."""

    store: str
    runs: int
    steps: int
    alone: int
    rounds: int


class Rounds:
    """What the rounds come to."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._syncs = counter()
        self._noted: list[dict[str, float]] = []

    def begin(self, alone: Series) -> None:
        """One run alone has its turn, then all of them begin."""
        self._rate = self._plan.alone / alone.run(self._plan.alone).seconds
        self._before = self._syncs() if self._syncs else 0
        self._cpu, self._begun = process_time(), perf_counter()

    def end(self) -> None:
        """All have done their steps of this round."""
        seconds, steps = perf_counter() - self._begun, self._plan.runs * self._plan.steps
        self._noted.append(
            {
                "per_second": steps / seconds,
                "alone_per_second": self._rate,
                "ratio": steps / seconds / self._rate,
                "cpu_ms": (process_time() - self._cpu) / steps * 1000,
                "syncs_per_step": (self._syncs() - self._before) / steps if self._syncs else -1,
            }
        )

    def figures(self) -> dict[str, float]:
        """Medians; the first round warms up, and does not count."""
        kept = self._noted[1:]
        figures = {name: median(one[name] for one in kept) for name in kept[0]}
        # Of syncs the mean: those of the checkpoints are to be seen.
        return figures | {"syncs_per_step": sum(one["syncs_per_step"] for one in kept) / len(kept)}


def concurrent(folder: Path, kind: str, runs: int, steps: int, alone: int, pairs: int) -> dict[str, Any]:
    """`runs` runs in tasks or threads, beside one plain run alone that waits for nobody."""
    plan = Plan(f"sqlite:///{folder / 'perdure.db'}", runs, steps, alone, pairs + 1)
    rounds = Rounds(plan)
    if kind == "asyncio":
        asyncio.run(_tasks(plan, rounds))
    else:
        _threads(plan, rounds)
    return rounds.figures()


def _threads(plan: Plan, rounds: Rounds) -> None:
    agent, gate = Agent("bench", store=plan.store), threading.Barrier(plan.runs + 1)
    step = operation(agent, "step")

    def work(number: int) -> None:
        with agent.run(f"run-{number}"):
            for turn in range(plan.rounds):
                gate.wait()
                for index in range(turn * plan.steps, (turn + 1) * plan.steps):
                    step(index)
                gate.wait()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(plan.runs)]
    for thread in threads:
        thread.start()
    with agent.run("alone"):
        alone = Series(step)
        for _ in range(plan.rounds):
            rounds.begin(alone)
            gate.wait()
            gate.wait()
            rounds.end()
    for thread in threads:
        thread.join()
    agent.close()


async def _tasks(plan: Plan, rounds: Rounds) -> None:
    agent, gate, texts = AsyncAgent("bench", store=plan.store), asyncio.Barrier(plan.runs + 1), Texts()

    @agent.step
    async def think(number: int) -> str:
        return texts(number)

    async def work(number: int) -> None:
        async with agent.run(f"run-{number}"):
            for turn in range(plan.rounds):
                await gate.wait()
                for index in range(turn * plan.steps, (turn + 1) * plan.steps):
                    await think(index)
                await gate.wait()

    # Made before the plain run is opened: a task would take its context along.
    tasks = [asyncio.create_task(work(number)) for number in range(plan.runs)]
    plain = Agent("alone", store=plan.store)
    with plain.run("alone"):
        alone = Series(operation(plain, "step"))
        for _ in range(plan.rounds):
            # A blocking call in the loop: nobody else has anything to do in this turn.
            rounds.begin(alone)
            await gate.wait()
            await gate.wait()
            rounds.end()
    await asyncio.gather(*tasks)
    plain.close()
    await agent.close()
