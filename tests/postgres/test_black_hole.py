"""The connection stays, and no answer comes: every call ends by its deadline, in recovery or with a clear error."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perdure import Agent, AsyncAgent
from perdure.errors import StoreUnavailable
from tests.crash.world import World
from tests.postgres.cluster import Cluster
from tests.postgres.proxy import Fault, Proxy


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[Proxy]:
    with Proxy(cluster) as proxy:
        yield proxy


def url(proxy: Proxy, schema: str, reconnect_seconds: str = "2") -> str:
    return proxy.url(schema, connect_timeout="2", statement_seconds="0.5", reconnect_seconds=reconnect_seconds)


def test_one_lost_answer_is_looked_up(cluster: Cluster, schema: str, tmp_path: Path) -> None:
    """The connection is given up after the deadline; on another one the commit is found, or made."""
    world = World(tmp_path)

    def travel(number: int) -> list[str]:
        with Proxy(cluster) as proxy:
            agent = Agent("traveller", store=url(proxy, schema, reconnect_seconds="10"))
            with agent.run(f"trip-{number}") as run:
                proxy.strike(number, Fault.BLACK_HOLE)
                run.step(world.note, "body", f"look-{number}")
                run.effect(lambda *, key: world.act(f"booked-{number}", key), name="book")
            assert proxy.struck.is_set()
            kinds = [event.kind for event in agent.runs.get(f"trip-{number}").events]
            agent.close()
            return kinds

    with ThreadPoolExecutor(5) as pool:
        kinds = list(pool.map(travel, range(1, 6)))
    assert kinds == [["RunStarted", "StepDone", "EffectIntended", "EffectDone", "RunFinished"]] * 5
    assert set(world.effects().values()) == set(world.bodies().values()) == {1}


def test_when_nobody_answers_any_more_the_caller_is_told(proxy: Proxy, schema: str) -> None:
    agent = Agent("traveller", store=url(proxy, schema))
    with pytest.raises(StoreUnavailable), agent.run("trip") as run:
        run.state["before"] = 1
        proxy.black_hole()
        run.state["after"] = 2
    proxy.heal()
    # What was sent may have been executed or not; what was acknowledged was.
    assert agent.runs.get("trip").state["before"] == 1
    with agent.run("trip") as run:
        run.result = "well"
    agent.close()


async def test_an_event_loop_goes_on_meanwhile(proxy: Proxy, schema: str) -> None:
    """The same for coroutines, which share one loop: one that waits for an answer does not stop the others."""
    agent = AsyncAgent("traveller", store=url(proxy, schema))
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    with pytest.raises(StoreUnavailable):
        async with agent.run("trip") as run:
            await run.state.set("before", 1)
            proxy.black_hole()
            ticks = 0
            await run.state.set("after", 2)
    assert ticks > 10
    ticking.cancel()
    proxy.heal()
    assert (await agent.runs.get("trip")).state["before"] == 1
    async with agent.run("trip") as run:
        run.result = "well"
    await agent.close()
