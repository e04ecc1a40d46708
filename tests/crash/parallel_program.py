"""Much at once: many runs in one process, many threads or tasks in one run, or many processes that share the runs.

Commits of many runs may share a transaction, and those of one run may be joined into one commit.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from perdure import Agent, AsyncAgent, Done, NotDone
from perdure.errors import RunBusy
from tests.crash.stores import store_of
from tests.crash.world import World

RUNS = 12
STEPS = 5


def main(folder: str, colour: str) -> None:
    """Threads or tasks, each with a run of its own: steps, a write, and an effect at the end."""
    store = store_of(folder)
    if colour == "async":
        asyncio.run(_tasks(AsyncAgent("crowd", store=store), World(folder)))
        return
    agent, world = Agent("crowd", store=store), World(folder)
    with ThreadPoolExecutor(RUNS) as pool:
        for done in [pool.submit(_thread, agent, world, f"r{number}") for number in range(RUNS)]:
            done.result()
    agent.close()


def team(folder: str, colour: str) -> None:
    """The same work as in `main`, all of it in one run."""
    store = store_of(folder)
    if colour == "async":
        asyncio.run(_team(AsyncAgent("crowd", store=store), World(folder)))
        return
    agent, world = Agent("crowd", store=store), World(folder)
    with agent.run("team") as run, run.executor(max_workers=RUNS) as pool:
        for done in [pool.submit(_work, run, world, f"r{number}") for number in range(RUNS)]:
            done.result()
    agent.close()


def worker(folder: str) -> None:
    """One of a fleet: takes whichever run is free, its own or one that a dead worker left, until all are finished."""
    agent, world, chance = Agent("crowd", store=store_of(folder)), World(folder), random.Random(os.getpid())
    left = {f"r{number}" for number in range(RUNS)}
    while left:
        name = chance.choice(sorted(left))
        try:
            _thread(agent, world, name)
            left.discard(name)
        except RunBusy:
            time.sleep(0.001)
    agent.close()


def _check(world: World) -> Any:
    def booked(name: str, *, key: str) -> Any:
        receipt = world.receipt(key)
        return NotDone if receipt is None else Done(receipt)

    return booked


def _thread(agent: Agent, world: World, name: str) -> None:
    with agent.run(name) as run:
        run.state["begun"] = True
        _work(run, world, name)


def _work(run: Any, world: World, name: str) -> None:
    for number in range(STEPS):
        run.step(world.note, "body", f"{name}-{number}")
        world.note("ack", f"{name}-{number}")
    # A name of its own: of two effects of one name that are in doubt in one run, nobody could tell which is which.
    run.effect(lambda which, *, key: world.act(which, key), name, name=f"book {name}", check=_check(world))
    world.note("ack", name)


async def _work_async(run: Any, world: World, name: str) -> None:
    async def body(*words: str) -> None:
        world.note(*words)

    async def book(which: str, *, key: str) -> str:
        return world.act(which, key)

    for number in range(STEPS):
        await run.step(body, "body", f"{name}-{number}")
        world.note("ack", f"{name}-{number}")
    await run.effect(book, name, name=f"book {name}", check=_check(world))
    world.note("ack", name)


async def _team(agent: AsyncAgent, world: World) -> None:
    async with agent.run("team") as run, asyncio.TaskGroup() as group:
        for number in range(RUNS):
            group.create_task(_work_async(run, world, f"r{number}"))
    await agent.close()


async def _tasks(agent: AsyncAgent, world: World) -> None:
    async def task(name: str) -> None:
        async with agent.run(name) as run:
            await run.state.set("begun", True)
            await _work_async(run, world, name)

    async with asyncio.TaskGroup() as group:
        for number in range(RUNS):
            group.create_task(task(f"r{number}"))
    await agent.close()
