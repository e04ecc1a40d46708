"""A body that is at work in this process is not over: until it is, no check is believed that it did nothing."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import anyio.to_thread
import pytest

from perdure import Agent, AsyncAgent, InDoubt, NotDone, RunWaiting
from perdure.errors import Abandoned

from .detached_service import Broken, Outside, make_world_check
from .kit import PATIENCE, World, agent_at


def _by_to_thread(run: Any, outside: Outside, key: str) -> Any:
    return asyncio.to_thread(outside.post, key)


def _by_default_executor(run: Any, outside: Outside, key: str) -> Any:
    return asyncio.get_running_loop().run_in_executor(None, outside.post, key)


def _by_executor_of_mine(run: Any, outside: Outside, key: str) -> Any:
    return asyncio.get_running_loop().run_in_executor(ThreadPoolExecutor(1), outside.post, key)


def _by_run_executor(run: Any, outside: Outside, key: str) -> Any:
    return asyncio.wrap_future(run.executor(1).submit(outside.post, key))


def _by_bound_thread(run: Any, outside: Outside, key: str) -> Any:
    threading.Thread(target=run.bind(outside.post), args=(key,), daemon=True).start()
    return asyncio.sleep(PATIENCE)


def _by_anyio(run: Any, outside: Outside, key: str) -> Any:
    return anyio.to_thread.run_sync(outside.post, key)


def _by_copied_context(run: Any, outside: Outside, key: str) -> Any:
    threading.Thread(target=contextvars.copy_context().run, args=(outside.post, key), daemon=True).start()
    return asyncio.sleep(PATIENCE)


def _by_task(run: Any, outside: Outside, key: str) -> Any:
    return asyncio.shield(asyncio.create_task(outside.post_async(key)))


WAYS = [
    _by_to_thread, _by_default_executor, _by_executor_of_mine, _by_run_executor, _by_bound_thread, _by_task,
    _by_anyio, _by_copied_context
]  # fmt: skip


def posting(
    store_url: str, outside: Outside, world: World, way: Callable[..., Any], **options: Any
) -> tuple[AsyncAgent, Callable[..., Any]]:
    agent = AsyncAgent("tester", store=store_url)
    tries: list[str] = []

    async def program(**how: Any) -> Any:
        async with agent.run("r", **how) as run:

            @agent.effect(name="pay", check=make_world_check(world), **options)
            async def pay(*, key: str) -> str:
                tries.append(key)
                if len(tries) > 1:
                    world.do(key)
                else:
                    await way(run, outside, key)
                return "paid"

            run.result = await pay()
        return run.result

    program.__dict__["tries"] = tries
    return agent, program


async def _resumed(agent: AsyncAgent, program: Callable[..., Any], outside: Outside) -> Any:
    """Resume the run, and let the outside go on once it waits."""
    resumed = asyncio.create_task(program())
    while (await agent.runs.get("r")).status != "waiting":
        assert not resumed.done(), resumed
        await asyncio.sleep(0.01)
    outside.go_on.set()
    return await asyncio.wait_for(resumed, PATIENCE)


@pytest.mark.parametrize("way", WAYS)
async def test_after_a_timeout_what_the_body_started_is_waited_for(
    store_url: str, world: World, way: Callable[..., Any]
) -> None:
    outside = Outside(world)
    agent, program = posting(store_url, outside, world, way, timeout=0.5, retries=2)
    with pytest.raises(InDoubt):
        await program()
    with pytest.raises(RunWaiting, match="still running in this process"):
        await program(wait=0)
    assert await _resumed(agent, program, outside) == "paid"
    assert len(world.read_all()) == 1 and len(program.__dict__["tries"]) == 1


@pytest.mark.parametrize("way", WAYS)
async def test_once_it_has_ended_without_effect_it_is_begun_again_without_a_person(
    store_url: str, world: World, way: Callable[..., Any]
) -> None:
    outside = Outside(world)
    outside.arrives = False
    agent, program = posting(store_url, outside, world, way, timeout=0.5, retries=2)
    with pytest.raises(InDoubt):
        await program()
    assert await _resumed(agent, program, outside) == "paid"
    [first, second] = program.__dict__["tries"]
    assert first == second and world.read_all() == [second]


async def test_its_own_exception_does_not_end_what_the_body_started(store_url: str, world: World) -> None:
    outside = Outside(world)

    async def way(run: Any, outside: Outside, key: str) -> None:
        asyncio.get_running_loop().run_in_executor(None, outside.post, key)
        raise NotDone("nothing happened, it believes")

    agent, program = posting(store_url, outside, world, way, retries=2, backoff=0)
    with pytest.raises(InDoubt):
        await program()
    assert await _resumed(agent, program, outside) == "paid"
    assert len(world.read_all()) == 1 and len(program.__dict__["tries"]) == 1


async def test_a_body_that_has_ended_is_seen_to_have_ended(store_url: str, world: World) -> None:
    """Tasks, timers and exceptions of it may be kept for long."""
    kept: list[Any] = []

    async def way(run: Any, outside: Outside, key: str) -> None:
        kept.append(asyncio.create_task(asyncio.sleep(0)))
        kept.append(run.bind(print))
        await asyncio.to_thread(kept.append, 1)
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(3600)
        except TimeoutError as error:
            kept.append(error)
            raise

    _, program = posting(store_url, Outside(world), world, way)
    with pytest.raises(TimeoutError):
        await program()  # the check was believed, so that the exception is what came of it
    assert await program(wait=0) == "paid"
    assert len(world.read_all()) == 1


async def test_a_bound_function_does_not_begin_after_its_attempt_was_given_up(store_url: str, world: World) -> None:
    bound: list[Callable[..., Any]] = []

    async def way(run: Any, outside: Outside, key: str) -> None:
        bound.append(run.bind(lambda: world.do(key)))
        raise Broken

    _, program = posting(store_url, Outside(world), world, way, retries=1, backoff=0)
    assert await program() == "paid"
    with pytest.raises(Abandoned):
        bound[0]()
    assert len(world.read_all()) == 1


def _in_bound_thread(run: Any, outside: Outside, key: str) -> None:
    threading.Thread(target=run.bind(outside.post), args=(key,), daemon=True).start()


def _in_run_executor(run: Any, outside: Outside, key: str) -> None:
    run.executor(1).submit(outside.post, key)


def _in_queue_of_run_executor(run: Any, outside: Outside, key: str) -> None:
    pool = run.executor(1)
    contextvars.Context().run(pool.submit, outside.hold)  # not a part of the body, but in its way
    pool.submit(outside.post, key)


def _in_another_loop(run: Any, outside: Outside, key: str) -> None:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    asyncio.run_coroutine_threadsafe(outside.post_async(key), loop)


@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("way", [_in_bound_thread, _in_run_executor, _in_queue_of_run_executor, _in_another_loop])
def test_what_a_body_of_a_synchronous_run_started_is_waited_for(
    store_url: str, world: World, way: Callable[..., None], arrives: bool
) -> None:
    agent, outside, tries = agent_at(store_url), Outside(world), []
    outside.arrives = arrives

    def program(**how: Any) -> Any:
        with agent.run("r", **how) as run:

            @agent.effect(name="pay", check=make_world_check(world), retries=2, backoff=0)
            def pay(*, key: str) -> str:
                tries.append(key)
                if len(tries) > 1:
                    world.do(key)
                    return "paid"
                way(run, outside, key)
                assert outside.begun.wait(PATIENCE)
                raise TimeoutError("no answer")

            run.result = pay()
        return run.result

    with pytest.raises(InDoubt):
        program()
    with pytest.raises(RunWaiting, match="still running in this process"):
        program(wait=0)
    with ThreadPoolExecutor(1) as pool:
        resumed: Future[Any] = pool.submit(program)
        outside.go_on.set()
        assert resumed.result(PATIENCE) == "paid"
    assert len(world.read_all()) == 1 and len(tries) == (1 if arrives else 2)


def test_another_agent_of_the_process_knows_of_the_body(store_url: str, world: World) -> None:
    """However the run is opened again: by another agent object, with a connection of its own."""
    outside = Outside(world)

    def program(agent: Agent, **how: Any) -> Any:
        @agent.effect(name="pay", check=make_world_check(world), timeout=0.05)
        def pay(*, key: str) -> str:
            outside.post(key)
            return "paid"

        with agent.run("r", **how) as run:
            run.result = pay()
        return run.result

    with pytest.raises(InDoubt):
        program(agent_at(store_url))
    other = Agent("tester", store=store_url, durability="process")
    with pytest.raises(RunWaiting):
        program(other, wait=0)
    outside.go_on.set()
    assert program(other) == "paid"
    assert len(world.read_all()) == 1
