"""The program that lives through everything that happens to its server: many runs at once, each with many commits.

It is never killed itself, so that nothing excuses it: each body runs once, each effect happens once, no run fails,
and what was acknowledged is in the journal, as it was acknowledged.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import perdure
from perdure import Done, NotDone
from tests.crash.colours import Palette, enter, run_at_once, settle
from tests.crash.outcome import find_damage
from tests.crash.world import World

RunBody = Callable[[], Coroutine[Any, Any, None]]

AGENT = "workload"
EFFECT_EVERY, WRITE_EVERY = 4, 3
"""Steps between two effects, and between two writes in the open."""


class WorkloadAgent(Palette):
    """The agent of one colour in any store."""

    def __init__(self, colour: str, url: str) -> None:
        self.is_async = colour == "async"
        self.agent: Any = (perdure.AsyncAgent if self.is_async else perdure.Agent)(AGENT, store=url)


def main(folder: str, colour: str, url: str, runs: int, steps: int) -> None:
    """All runs side by side, in threads or tasks."""
    worker, world = WorkloadAgent(colour, url), World(folder)
    bodies = [partial(work_through, worker, world, f"r{number}", steps) for number in range(runs)]
    if worker.is_async:
        asyncio.run(_tasks(worker, bodies))
        return
    with ThreadPoolExecutor(runs) as pool:
        for done in [pool.submit(_perform, one) for one in bodies]:
            done.result()
    worker.agent.close()


def _perform(one: RunBody) -> None:
    run_at_once(one())


async def _tasks(worker: WorkloadAgent, bodies: Sequence[RunBody]) -> None:
    async with asyncio.TaskGroup() as group:
        for one in bodies:
            group.create_task(one())
    await worker.agent.close()


async def work_through(worker: WorkloadAgent, world: World, name: str, steps: int) -> None:
    """One run; every token is random, so that a lost or doubled entry shows."""

    async def look(number: int) -> str:
        world.note("body", f"{name}-{number}")
        token = os.urandom(4).hex()
        run.state[str(number)] = token
        return token

    async def book(what: str, *, key: str) -> str:
        return world.act(what, key)

    async def booked(what: str, *, key: str) -> Any:
        receipt = world.receipt(key)
        return NotDone if receipt is None else Done(receipt)

    async with enter(worker.agent.run(name)) as run:
        for number in range(steps):
            token = await settle(run.step(worker.paint(look), number))
            world.note("ack", f"{name}-{number}", token)
            if number % WRITE_EVERY == 0:
                await settle(run.state.set(f"open-{number}", token))
                world.note("ack", f"{name}-open-{number}", token)
            if number % EFFECT_EVERY == 0:
                await settle(run.effect(worker.paint(book), f"{name}-e{number}", check=worker.paint(booked)))
                world.note("ack", f"{name}-e{number}")
        run.result = steps


def judge(url: str, world: World, runs: int, steps: int) -> list[str]:
    """All that is wrong with what is left, in the store and in the world."""
    found = world.broken_promises()
    names = [f"r{number}" for number in range(runs)]
    found += _find_not_once("body", world.bodies(), {f"{name}-{n}" for name in names for n in range(steps)})
    booked = {f"{name}-e{n}" for name in names for n in range(0, steps, EFFECT_EVERY)}
    found += _find_not_once("effect", world.effects(), booked)
    agent = perdure.Agent(AGENT, store=url)
    try:
        for name in names:
            found += _judge_run(agent.runs.get(name), world, name, steps)
        found += find_damage(agent._engine.store)
    finally:
        agent.close()
    return found


def _find_not_once(what: str, seen: Counter[str], wanted: set[str]) -> list[str]:
    return [f"{what} {name} happened {seen[name]} times" for name in sorted(seen.keys() | wanted) if seen[name] != 1]


def _judge_run(info: Any, world: World, name: str, steps: int) -> list[str]:
    """The journal of one run holds each acknowledged value, and each entry once."""
    found = [] if (info.status, info.result) == ("finished", steps) else [f"{name} is {info.status}"]
    for word, what, *rest in world.lines():
        if word == "ack" and rest and what.startswith(f"{name}-"):
            key = what.removeprefix(f"{name}-")
            if info.state.get(key) != rest[0]:
                found.append(f"{what} was acknowledged as {rest[0]}, the store has {info.state.get(key)}")
    kinds = Counter(event.kind for event in info.events)
    wanted = count_expected_kinds(steps)
    return found if kinds == wanted else [*found, f"{name} has the entries {dict(kinds)}, not {dict(wanted)}"]


def count_expected_kinds(steps: int) -> Counter[str]:
    """The entries of a run that nothing has happened to."""
    effects, writes = len(range(0, steps, EFFECT_EVERY)), len(range(0, steps, WRITE_EVERY))
    return Counter(
        RunStarted=1, StepDone=steps, Wrote=writes, EffectIntended=effects, EffectDone=effects, RunFinished=1
    )
