"""The end of a block while steps and effects of its run are still at work."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from perdure import AsyncAgent, InDoubt, RunWaiting
from perdure.errors import Abandoned
from perdure.platform import failpoints
from perdure.platform.failpoints import CommitMoment, Site
from perdure.records import EffectDone
from perdure.run import block_exit as leaving
from perdure.run import doubt

from .detached_service import Broken, Outside, make_world_check
from .kit import PATIENCE, World, agent_at, kill_at, run_in_child, wait_until

# -- a retry loop around a block ---------------------------------------------------------------------------------------


class Shop:
    """An agent that charges and takes from stock at the same time; the stock is broken at first."""

    def __init__(self, store_url: str, world: World) -> None:
        self.agent = AsyncAgent("tester", store=store_url)
        self.tries = self.charges = 0
        charging = asyncio.Event()

        @self.agent.effect(check=make_world_check(world), timeout=60)
        async def charge(order: int, *, key: str) -> str:
            charging.set()
            self.charges += 1
            await asyncio.sleep(0.3)
            world.do(key)
            return "paid"

        @self.agent.step
        async def stock(order: int) -> str:
            while not charging.is_set() and not world.read_all():
                await asyncio.sleep(0.01)
            self.tries += 1
            if self.tries == 1:
                raise Broken("the warehouse does not answer")
            return "taken"

        self.charge, self.stock = charge, stock

    async def order(self) -> Any:
        return await asyncio.gather(self.charge(1), self.stock(1))

    async def sell(self) -> Any:
        for _ in range(3):
            try:
                async with self.agent.run("order-1") as run:
                    run.result = await self.order()
                return run.result
            except Broken:
                continue
        raise AssertionError("it never got through")


async def test_a_charge_under_way_is_not_begun_again_by_a_retry_loop(store_url: str, world: World) -> None:
    shop = Shop(store_url, world)
    assert await shop.sell() == ["paid", "taken"]
    assert len(world.read_all()) == 1 and shop.charges == 1
    [done] = [e.record for e in (await shop.agent.runs.get("order-1")).events if isinstance(e.record, EffectDone)]
    assert done.how == "body", "the block has let it end"


async def test_a_charge_under_way_is_not_begun_again_by_a_worker(store_url: str, world: World) -> None:
    shop = Shop(store_url, world)

    @shop.agent.task(retries=3, backoff=0)
    async def sell() -> Any:
        return await shop.order()

    await sell.start("order-1")
    worker = shop.agent.worker()
    working = asyncio.create_task(worker.run())
    try:
        assert await sell.result("order-1", timeout=PATIENCE) == ["paid", "taken"]
    finally:
        worker.drain()
        await working
    assert shop.tries == 2
    assert len(world.read_all()) == 1


async def test_a_worker_parks_a_run_until_the_body_of_its_effect_has_ended(
    store_url: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The block was left, and the worker retries the task: the thread of the first try is still at work."""
    monkeypatch.setattr(leaving, "LEAVE_SECONDS", 0.2)
    monkeypatch.setattr(doubt, "PARKED_BODY_SECONDS", 0.5)
    agent, outside, tries = AsyncAgent("tester", store=store_url), Outside(world), list[int]()

    @agent.effect(check=make_world_check(world))
    async def charge(*, key: str) -> str:
        await asyncio.to_thread(outside.post, key)
        return "paid"

    @agent.task(retries=3, backoff=0)
    async def sell() -> str:
        charging = asyncio.create_task(charge())
        if not tries:
            await asyncio.to_thread(outside.begun.wait, PATIENCE)
            tries.append(1)
            raise Broken
        return await charging

    await sell.start("order-1")
    worker = agent.worker()
    working = asyncio.create_task(worker.run())
    try:
        while not tries or (await agent.runs.get("order-1")).status != "waiting":
            await asyncio.sleep(0.05)
        assert world.read_all() == []
        outside.go_on.set()
        assert await sell.result("order-1", timeout=PATIENCE) == "paid"
    finally:
        outside.go_on.set()
        worker.drain()
        await working
    assert len(world.read_all()) == 1


@pytest.mark.parametrize("moment", list(CommitMoment))
@pytest.mark.parametrize("site", [Site.EFFECT_INTENT, Site.STEP_FAILED, Site.EFFECT_OUTCOME, Site.RUN_END])
def test_killed_while_a_block_is_left_and_resumed_a_charge_happens_once(
    store_url: str, world: World, site: Site, moment: CommitMoment
) -> None:
    def program() -> None:
        asyncio.run(Shop(store_url, world).sell())

    kill_at(program, site, moment)
    program()
    assert len(world.read_all()) == 1
    assert agent_at(store_url).runs.result("order-1") == ["paid", "taken"]


# -- the end of a block ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [Broken, None])
async def test_steps_are_cancelled_and_effects_awaited(
    store_url: str, world: World, error: type[Exception] | None
) -> None:
    agent, begun, told = AsyncAgent("tester", store=store_url), asyncio.Semaphore(0), list[str]()

    @agent.step
    async def think() -> None:
        begun.release()
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            await asyncio.sleep(0.05)
            told.append("cancelled")

    @agent.effect
    async def pay(*, key: str) -> str:
        begun.release()
        await asyncio.sleep(0.3)
        world.do(key)
        return "paid"

    tasks = []

    async def leave() -> None:
        async with agent.run("r"):
            tasks.extend([asyncio.create_task(think()), asyncio.create_task(pay())])
            await begun.acquire()
            await begun.acquire()
            if error is not None:
                raise error

    if error is None:
        await leave()
    else:
        with pytest.raises(error):
            await leave()
    assert told == ["cancelled"] and len(world.read_all()) == 1
    info = await agent.runs.get("r")
    assert (info.status, info.in_doubt) == ("failed" if error else "finished", [])
    assert await tasks[1] == "paid"
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]


@pytest.mark.parametrize("error", [asyncio.CancelledError, KeyboardInterrupt])
async def test_a_cancelled_block_cancels_effects_and_awaits_them(
    store_url: str, world: World, error: type[BaseException]
) -> None:
    agent, begun, told = AsyncAgent("tester", store=store_url), asyncio.Event(), list[str]()

    @agent.effect(check=make_world_check(world), timeout=PATIENCE)
    async def pay(*, key: str) -> str:
        begun.set()
        try:
            await asyncio.sleep(0.01 if told else PATIENCE)
            world.do(key)
        finally:
            await asyncio.sleep(0.05)
            told.append("ended")
        return "paid"

    with pytest.raises(error):
        async with agent.run("r"):
            task = asyncio.create_task(pay())
            await begun.wait()
            raise error
    assert told == ["ended"] and task.cancelled
    info = await agent.runs.get("r")
    assert info.status == "interrupted" and len(info.in_doubt) == 1
    async with agent.run("r", wait=0):
        assert await pay() == "paid"
    assert len(world.read_all()) == 1


@pytest.mark.parametrize("error", [Broken, None])
async def test_an_effect_that_takes_too_long_is_cancelled_into_doubt(
    store_url: str, world: World, error: type[Exception] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run does not finish with an effect of which nobody will ever know."""
    monkeypatch.setattr("perdure.run.block_exit.LEAVE_SECONDS", 0.2)
    agent, outside = AsyncAgent("tester", store=store_url), Outside(world)

    @agent.effect(check=make_world_check(world))
    async def pay(*, key: str) -> str:
        await asyncio.to_thread(outside.post, key)
        return "paid"

    with pytest.raises(error or InDoubt):
        async with agent.run("r"):
            task = asyncio.create_task(pay())
            await asyncio.to_thread(outside.begun.wait, PATIENCE)
            if error is not None:
                raise error
    assert (await agent.runs.get("r")).status == "failed"
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(RunWaiting):
        async with agent.run("r", wait=0):
            await pay()
    outside.go_on.set()
    async with agent.run("r"):
        assert await pay() == "paid"
    assert len(world.read_all()) == 1


async def test_a_block_that_is_cancelled_while_it_awaits_an_effect_is_left_at_once(
    store_url: str, world: World
) -> None:
    agent, begun, leaving = AsyncAgent("tester", store=store_url), asyncio.Event(), asyncio.Event()

    @agent.effect(check=make_world_check(world), timeout=PATIENCE * 10)
    async def pay(*, key: str) -> str:
        begun.set()
        await asyncio.sleep(PATIENCE * 10)
        return "paid"

    async def program() -> None:
        async with agent.run("r"):
            kept.append(asyncio.create_task(pay()))
            await begun.wait()
            leaving.set()
            raise Broken

    kept: list[asyncio.Task[Any]] = []
    task = asyncio.create_task(program())
    await leaving.wait()
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await agent.runs.get("r")).status == "interrupted"
    with pytest.raises(asyncio.CancelledError):
        await kept[0]


@pytest.mark.parametrize("error", [Broken, None, KeyboardInterrupt])
def test_a_bound_thread_of_a_synchronous_run(store_url: str, world: World, error: type[BaseException] | None) -> None:
    agent, outside = agent_at(store_url), Outside(world)

    @agent.effect(check=make_world_check(world), timeout=PATIENCE)
    def pay(*, key: str) -> str:
        outside.post(key)
        return "paid"

    def program(error: type[BaseException] | None) -> None:
        with agent.run("r") as run:
            thread = threading.Thread(target=run.bind(_ending_quietly(pay)), daemon=True)
            thread.start()
            assert outside.begun.wait(PATIENCE)
            if error is not KeyboardInterrupt:
                threading.Timer(0.2, outside.go_on.set).start()
            if error is not None:
                raise error

    if error is None:
        program(error)
    else:
        with pytest.raises(error):
            program(error)
    info = agent.runs.get("r")
    if error is KeyboardInterrupt:  # it is not waited for, and known to be at work
        assert len(info.in_doubt) == 1
        with pytest.raises(RunWaiting), agent.run("r", wait=0):
            pay()
        outside.go_on.set()
    else:
        assert (info.status, info.in_doubt) == ("finished" if error is None else "failed", [])
    with agent.run("r"):
        assert pay() == "paid"
    assert len(world.read_all()) == 1


def _ending_quietly(call: Callable[[], Any]) -> Callable[[], None]:
    def ends() -> None:
        with suppress(Abandoned, InDoubt):
            call()

    return ends


def test_an_effect_that_was_about_to_begin_when_the_block_was_left_does_not(store_url: str, world: World) -> None:
    agent, ended = agent_at(store_url), list[BaseException]()
    intended = threading.Event()

    @agent.effect
    def pay(*, key: str) -> None:
        world.do(key)

    def call() -> None:
        try:
            pay()
        except Abandoned as error:
            ended.append(error)

    def hold_back(site: Site, moment: CommitMoment) -> None:
        if site is Site.EFFECT_INTENT and moment is CommitMoment.AFTER and run_open:
            intended.set()
            wait_until(lambda: run_open[0].leaving)

    run_open: list[Any] = []
    failpoints.arm(hold_back)
    try:
        with pytest.raises(Broken), agent.run("r") as run:
            run_open.append(run._core)
            thread = threading.Thread(target=run.bind(call))
            thread.start()
            assert intended.wait(PATIENCE)
            raise Broken
    finally:
        failpoints.arm(None)
        thread.join()
    assert ended and world.read_all() == []


def test_ctrl_c_ends_the_wait_for_an_effect(store_url: str, world: World) -> None:
    """The child would wait for ten minutes otherwise."""

    def program() -> None:
        agent, outside = agent_at(store_url), Outside(world)

        @agent.effect(timeout=600)
        def pay(*, key: str) -> None:
            outside.post(key)

        signal.signal(signal.SIGINT, signal.default_int_handler)
        with pytest.raises(KeyboardInterrupt), agent.run("r") as run:
            core = run._core
            threading.Thread(target=run.bind(_ending_quietly(pay)), daemon=True).start()
            assert outside.begun.wait(PATIENCE)
            threading.Thread(target=_interrupt_when, args=(lambda: core.leaving,), daemon=True).start()
            raise Broken

    assert run_in_child(program) == 0
    assert len(agent_at(store_url).runs.get("r").in_doubt) == 1


def _interrupt_when(true: Callable[[], object]) -> None:
    wait_until(true)
    os.kill(os.getpid(), signal.SIGINT)
