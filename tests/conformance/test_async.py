"""The same semantics under asyncio: what only an event loop can do."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import Any

import pytest

from perdure import Agent, AsyncAgent, Done, InDoubt, NotDone, RunWaiting
from perdure.errors import Abandoned, LeaseLost, NotDurable, RunFinished, StepTimeout
from perdure.platform.failpoints import CommitMoment, Site

from .kit import World, kill_at, run_in_child


def agent_at(store_url: str) -> AsyncAgent:
    return AsyncAgent("tester", store=store_url)


async def test_steps_and_effects_are_remembered(store_url: str, world: World) -> None:
    agent, calls = agent_at(store_url), []

    @agent.step
    async def search(n: int) -> int:
        calls.append(n)
        await asyncio.sleep(0)
        return n

    @agent.effect
    async def pay(*, key: str) -> str:
        world.do(key)
        return "paid"

    for _ in range(2):
        async with agent.run("r", input=1) as run:
            assert run.input == 1
            assert await asyncio.gather(*[search(n) for n in (1, 2, 2, 3)]) == [1, 2, 2, 3]
            assert await pay() == "paid"
            run.result = "done"
    assert sorted(calls) == [1, 2, 2, 3]
    assert len(world.read_all()) == 1
    assert await agent.runs.result("r") == "done"
    assert [one.id for one in await agent.runs.list()] == ["r"]


async def test_writes_and_items(store_url: str) -> None:
    agent, seen = agent_at(store_url), []

    async def program(stop: bool) -> None:
        async with agent.run("r") as run:
            await run.event("STARTED")
            await run.messages.extend(["a", "b"])
            await run.state.set("x", 1)
            run.state["y"] = 2
            await run.state.delete("x")
            async for item in run.each([1, 2, 3]):
                seen.append(item)
                await run.state.incr("n")
                if stop and item == 2:
                    raise KeyboardInterrupt
            with pytest.raises(KeyError):
                del run.state["x"]

    with pytest.raises(KeyboardInterrupt):
        await program(stop=True)
    assert (await agent.runs.get("r")).state == {"y": 2, "n": 1}
    await program(stop=False)
    info = await agent.runs.get("r")
    assert (info.state, info.messages) == ({"y": 2, "n": 3}, ["a", "b"])
    assert seen == [1, 2, 2, 3]


async def test_a_plain_function_is_awaited_in_a_thread(store_url: str) -> None:
    agent = agent_at(store_url)

    @agent.step
    def where() -> bool:
        return threading.current_thread() is threading.main_thread()

    async with agent.run("r") as run:
        assert await where() is False  # type: ignore[misc]
        assert await run.step(lambda n: n + 1, 1, name="add") == 2


async def test_a_step_timeout_cancels_the_body(store_url: str) -> None:
    agent, ended = agent_at(store_url), []

    @agent.step(timeout=0.02)
    async def slow() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            ended.append(1)

    with pytest.raises(StepTimeout):
        async with agent.run("r"):
            await slow()
    assert ended == [1]


async def test_a_plain_body_that_times_out_in_its_thread_cannot_write(store_url: str) -> None:
    agent, over, caught = agent_at(store_url), threading.Event(), []

    async with agent.run("r") as run:
        go = threading.Event()

        def slow() -> None:
            go.wait()
            try:
                run.state["late"] = 1
            except Abandoned as error:
                caught.append(error)
            over.set()

        with pytest.raises(StepTimeout):
            await run.step(slow, timeout=0.02)
        go.set()
        await asyncio.to_thread(over.wait)
    assert len(caught) == 1
    assert (await agent.runs.get("r")).state == {}


async def test_a_cancelled_effect_is_in_doubt(store_url: str, world: World) -> None:
    agent = agent_at(store_url)
    started = asyncio.Event()

    @agent.effect(check=lambda *, key: Done("found") if world.count(key) else NotDone)
    async def pay(*, key: str) -> str:
        world.do(key)
        started.set()
        await asyncio.sleep(30)
        return "paid"

    async def program() -> Any:
        async with agent.run("r"):
            return await pay()

    task = asyncio.create_task(program())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    info = await agent.runs.get("r")
    assert info.status == "interrupted"
    assert [effect.name for effect in info.in_doubt] == ["pay"]
    assert await program() == "found"
    assert len(world.read_all()) == 1


async def test_a_commit_is_shielded_from_cancellation(store_url: str) -> None:
    agent = agent_at(store_url)
    tasks: list[asyncio.Task[Any]] = []

    @agent.step
    async def work() -> str:
        asyncio.get_running_loop().call_soon(tasks[0].cancel)
        return "worked"

    async def program() -> None:
        async with agent.run("r"):
            await work()

    tasks.append(asyncio.create_task(program()))
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    names = [event.kind for event in (await agent.runs.get("r")).events]
    assert names == ["RunStarted", "StepDone", "RunInterrupted"]


async def test_an_effect_that_raises_is_in_doubt_and_answered(store_url: str, world: World) -> None:
    agent = agent_at(store_url)

    @agent.effect
    async def pay(*, key: str) -> str:
        world.do(key)
        raise TimeoutError("who knows")

    with pytest.raises(InDoubt):
        async with agent.run("r"):
            await pay()
    with pytest.raises(RunWaiting):
        async with agent.run("r", wait=0):
            await pay()
    await agent.runs.answer("r", done="ok")
    async with agent.run("r"):
        assert await pay() == "ok"
    assert len(world.read_all()) == 1


async def test_outside_and_finished_runs(store_url: str) -> None:
    agent = agent_at(store_url)

    @agent.step
    async def work() -> int:
        return 1

    @agent.effect
    async def pay() -> int:
        return 1

    with pytest.warns(UserWarning, match="outside of a run"):
        assert await work() == 1
    with pytest.raises(NotDurable):
        await pay()
    async with agent.run("r"):
        pass
    async with agent.run("r") as run:
        assert run.finished
        with pytest.raises(RunFinished):
            await work()


async def test_many_runs_at_once_keep_apart(store_url: str) -> None:
    agent = agent_at(store_url)

    @agent.step
    async def work(run_id: str, n: int) -> str:
        await asyncio.sleep(0)
        return f"{run_id}:{n}"

    async def program(run_id: str) -> None:
        async with agent.run(run_id) as run:
            for n in range(5):
                run.state["last"] = await work(run_id, n)
            run.result = run.state["last"]

    await asyncio.gather(*[program(f"r{n}") for n in range(30)])
    assert [await agent.runs.result(f"r{n}") for n in range(30)] == [f"r{n}:4" for n in range(30)]


@pytest.mark.parametrize("nth", [1, 5])
def test_killed_and_resumed(store_url: str, world: World, nth: int) -> None:
    async def program() -> None:
        agent = agent_at(store_url)

        @agent.step
        async def work(n: int) -> int:
            world.do(str(n))
            return n

        async with agent.run("r") as run:
            run.result = await asyncio.gather(*[work(n) for n in range(8)])

    kill_at(lambda: asyncio.run(program()), Site.STEP_DONE, CommitMoment.AFTER, nth)
    asyncio.run(program())
    assert asyncio.run(agent_at(store_url).runs.result("r")) == list(range(8))
    # What had been recorded was not done again; what was under way may have been.
    assert len(world.read_all()) <= 16 - nth


def test_sigterm_interrupts(store_url: str) -> None:
    async def program() -> None:
        async with agent_at(store_url).run("r"):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(30)

    status = run_in_child(lambda: asyncio.run(program()))
    assert os.WIFEXITED(status)
    assert asyncio.run(agent_at(store_url).runs.get("r")).status == "interrupted"


def test_a_programs_own_handler_of_sigterm_stays(store_url: str) -> None:
    async def program() -> None:
        told = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
        async with agent_at(store_url).run("r"):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        await told.wait()

    status = run_in_child(lambda: asyncio.run(program()))
    assert (os.WIFEXITED(status), os.WEXITSTATUS(status)) == (True, 0)


async def test_the_old_holder_commits_nothing(store_url: str) -> None:
    agent = agent_at(store_url)

    async def take_over() -> None:
        agent._engine.lease_keeper.open_streams.clear()
        async with agent_at(store_url).run("r") as second:
            await second.state.set("theirs", 1)

    with pytest.raises(LeaseLost):
        async with agent.run("r") as run:
            await asyncio.to_thread(lambda: threading.Thread(target=lambda: asyncio.run(take_over())).run())
            await run.state.set("mine", 1)
    assert (await agent.runs.get("r")).state == {"theirs": 1}


def test_an_agent_is_closed_by_the_block_that_it_is_opened_in(store_url: str) -> None:
    async def program() -> AsyncAgent:
        async with AsyncAgent("tester", store=store_url) as agent:
            await agent.state.set("a", "b", 1)
            assert agent._engine._place is not None
        return agent

    assert asyncio.run(program())._engine._place is None
    with Agent("tester", store=store_url) as agent:
        assert agent.state.get("a", "b") == 1
    assert agent._engine._place is None
