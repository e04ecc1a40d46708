"""Functions that give something to await: under asyncio it is awaited, and elsewhere nothing was done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest

from perdure import AsyncAgent, Done, InDoubt, NotDone
from perdure.errors import NotAwaited, StepTimeout
from perdure.records import StepDone

from .kit import World, agent_at


class Payer:
    """An object whose call is a coroutine."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def __call__(self, amount: int, *, key: str) -> str:
        await asyncio.sleep(0)
        self._world.do(key)
        return f"paid {amount}"


class Later:
    """An awaitable that is no coroutine."""

    def __init__(self, coroutine: Any) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Any:
        return self._coroutine.__await__()


def an_object(world: World) -> Callable[..., Any]:
    return Payer(world)


def a_partial(world: World) -> Callable[..., Any]:
    async def pay(world: World, amount: int, *, key: str) -> str:
        world.do(key)
        return f"paid {amount}"

    return partial(pay, world)


def a_partial_of_an_object(world: World) -> Callable[..., Any]:
    return partial(Payer(world), 5)


def a_plain_function(world: World) -> Callable[..., Any]:
    def pay(amount: int, *, key: str) -> Any:
        return Payer(world)(amount, key=key)

    return pay


def an_awaitable(world: World) -> Callable[..., Any]:
    def pay(amount: int, *, key: str) -> Any:
        return Later(Payer(world)(amount, key=key))

    return pay


def a_coroutine_of_a_coroutine(world: World) -> Callable[..., Any]:
    async def pay(amount: int, *, key: str) -> Any:
        return Payer(world)(amount, key=key)

    return pay


@pytest.mark.parametrize("made", [an_object, a_partial, a_plain_function, an_awaitable, a_coroutine_of_a_coroutine])
@pytest.mark.parametrize("effect", [True, False])
async def test_under_asyncio_whatever_can_be_awaited_is(
    store_url: str, world: World, made: Callable[[World], Callable[..., Any]], effect: bool
) -> None:
    agent = AsyncAgent("tester", store=store_url)
    for _ in range(2):
        async with agent.run("r") as run:
            if effect:
                assert await run.effect(made(world), 5, name="pay") == "paid 5"
            else:
                assert await run.step(made(world), 5, key="step", name="pay") == "paid 5"
    assert len(world.read_all()) == 1


async def test_a_returned_awaitable_runs_in_the_frame_and_timeout_of_the_body(store_url: str) -> None:
    agent, cancelled = AsyncAgent("tester", store=store_url), list[int]()

    async def slow(run: Any) -> None:
        await run.state.set("x", 1)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    with pytest.raises(StepTimeout):
        async with agent.run("r") as run:
            await run.step(lambda: slow(run), name="slow", timeout=0.3)
    assert cancelled and (await agent.runs.get("r")).state == {}, "what it wrote is dropped with it"


async def test_checks_handlers_tasks_and_map(store_url: str, world: World) -> None:
    agent = AsyncAgent("tester", store=store_url)

    class Check:
        async def __call__(self, amount: int, *, key: str) -> object:
            return Done("looked up") if world.count(key) else NotDone

    @agent.effect(check=Check())
    async def pay(amount: int, *, key: str) -> str:
        world.do(key)
        raise TimeoutError("the answer is lost")

    class Twice:
        async def __call__(self, n: int) -> int:
            return 2 * n

    @agent.task(name="work")
    def work(run: Any) -> Any:
        return _work(run)

    async def _work(run: Any) -> Any:
        return [await pay(5), *await run.map(Twice(), [1, 2])]

    await work.start("t")
    worker = agent.worker()
    working = asyncio.create_task(worker.run())
    try:
        assert await work.result("t", timeout=60) == ["looked up", 2, 4]
    finally:
        worker.drain()
        await working
    plan = await agent.workflows.create("w", steps=[{"action": "double", "args": [4]}])
    assert await plan.resume(handlers={"double": Twice()}) == {1: 8}


async def test_a_bound_coroutine_function_belongs_to_the_run(store_url: str) -> None:
    agent = AsyncAgent("tester", store=store_url)

    @agent.step
    async def double(n: int) -> int:
        return 2 * n

    async def elsewhere(n: int) -> int:
        return await double(n)

    async with agent.run("r") as run:
        bound = run.bind(elsewhere)
        there = await asyncio.to_thread(lambda: asyncio.run(bound(2)))
        assert there == 4
    records = [event.record for event in (await agent.runs.get("r")).events]
    assert [record.call.name for record in records if isinstance(record, StepDone)] == ["double"]


# -- where nobody awaits -----------------------------------------------------------------------------------------------


def test_in_a_synchronous_run_a_coroutine_is_closed_and_nothing_was_done(store_url: str, world: World) -> None:
    agent = agent_at(store_url)

    @agent.effect(retries=3, backoff=0)
    def pay(amount: int, *, key: str) -> Any:
        return payer(amount, key=key)

    payer: Callable[..., Any] = Payer(world)
    with pytest.raises(NotAwaited, match="AsyncAgent"), agent.run("r"):
        pay(5)
    info = agent.runs.get("r")
    assert (info.status, info.in_doubt, world.read_all()) == ("failed", [], [])
    payer = lambda amount, *, key: f"paid {amount}"  # noqa: E731  the program was mended
    with agent.run("r"):
        assert pay(5) == "paid 5"


def test_so_it_is_with_a_timeout_a_step_and_a_check(store_url: str, world: World) -> None:
    agent = agent_at(store_url)

    @agent.effect(timeout=30)
    def pay(amount: int, *, key: str) -> Any:
        return Payer(world)(amount, key=key)

    @agent.step
    def think() -> Any:
        return Payer(world)(5, key="")

    @agent.effect(check=lambda key: Payer(world)(5, key=key))
    def send(*, key: str) -> Any:
        raise TimeoutError("who knows")

    for number, call in enumerate([lambda: pay(5), think]):
        with pytest.raises(NotAwaited), agent.run(f"r{number}"):
            call()
        assert agent.runs.get(f"r{number}").in_doubt == []
    with pytest.raises(InDoubt), agent.run("r"):  # a check that fails has told us nothing
        send()
    assert world.read_all() == []


def test_an_awaitable_that_may_have_begun_is_not_said_to_have_done_nothing(store_url: str) -> None:
    agent = agent_at(store_url)
    loop = asyncio.new_event_loop()

    @agent.effect
    def pay(*, key: str) -> Any:
        return loop.create_future()

    with pytest.raises(InDoubt), agent.run("r"):
        pay()
    loop.close()
    assert len(agent.runs.get("r").in_doubt) == 1


async def generating(*, key: str) -> AsyncIterator[int]:
    yield 1


def generate(*, key: str) -> Iterator[int]:
    yield 1


def test_what_can_be_recognised_is_refused_when_it_is_declared(store_url: str, world: World) -> None:
    agent, asynchronous = agent_at(store_url), AsyncAgent("tester", store=store_url)
    for call in (Payer(world), a_partial(world), a_partial_of_an_object(world)):
        with pytest.raises(TypeError, match="use AsyncAgent"):
            agent.effect(name="pay")(call)
        with pytest.raises(TypeError, match="use AsyncAgent"):
            agent.task(name="pay")(call)
    with pytest.raises(TypeError, match="is async"):
        agent.effect(name="pay", check=Payer(world))(lambda amount, *, key: None)
    for one in (generating, generate):
        with pytest.raises(TypeError, match="generator"):
            agent.effect(one)
        with pytest.raises(TypeError, match="generator"):
            asynchronous.step(one)
        with pytest.raises(TypeError, match="generator"):
            asynchronous.effect(check=one)(_nothing)


async def _nothing(*, key: str) -> None: ...


def test_functions_that_are_called_inside_of_something_must_be_plain(store_url: str) -> None:
    agent = agent_at(store_url)

    async def later(*_: Any, **__: Any) -> int:
        return 1

    @agent.task(key=lambda n: later())
    def limited(n: int) -> None: ...

    with pytest.raises(TypeError, match="plain function"):
        agent.state.update("ns", "k", later)
    with pytest.raises(TypeError, match="plain function"):
        limited.start("t", 1)
    agent.events.append("KIND")
    with pytest.raises(TypeError, match="plain function"):
        agent.events.replay(lambda state, event: later(), 0)
    with pytest.raises(TypeError, match="plain function"), agent.run("r") as run:
        run.state.update("k", later)
    with pytest.raises(TypeError, match="plain function"), agent.run("s") as run:
        next(iter(run.each([1], key=later)))
    assert agent.state.get("ns", "k") is None
