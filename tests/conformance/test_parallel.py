"""`run.map`: several items at a time, each remembered by itself."""

from __future__ import annotations

import asyncio
import threading

import pytest

from perdure import AsyncAgent, Done, NotDone
from perdure.errors import EffectInsideStep
from perdure.platform.failpoints import CommitMoment, Site

from .kit import World, agent_at, die, kill_at, run_in_child


def test_results_come_in_the_order_of_the_items_and_are_remembered(store_url: str) -> None:
    agent = agent_at(store_url)
    both, calls = threading.Barrier(2), list[int]()

    @agent.step
    def double(number: int) -> int:
        if number < 2:
            both.wait(100)  # two are at work at once, or this breaks
        calls.append(number)
        return 2 * number

    for _ in range(2):
        with agent.run("r") as run:
            assert run.map(double, [1, 0, 2, 3, 2], max_concurrency=2) == [2, 0, 4, 6, 4]
    assert sorted(calls) == [0, 1, 2, 2, 3]


@pytest.mark.parametrize("moment", list(CommitMoment))
@pytest.mark.parametrize("site", [Site.EFFECT_INTENT, Site.EFFECT_OUTCOME])
def test_killed_in_the_middle_no_effect_happens_twice(
    store_url: str, world: World, site: Site, moment: CommitMoment
) -> None:
    def program() -> None:
        agent = agent_at(store_url)

        @agent.effect(check=lambda number, *, key: Done(number) if world.count(str(number)) else NotDone)
        def send(number: int) -> int:
            world.do(str(number))
            return number

        with agent.run("r") as run:
            assert run.map(send, range(6), max_concurrency=3) == list(range(6))

    agent_at(store_url).state.set("a", "b", 1)
    kill_at(program, site, moment, 2)  # concurrent intents may share a commit: a later one may not come
    assert run_in_child(program) == 0
    assert sorted(world.read_all()) == [str(number) for number in range(6)]


def test_a_failure_stops_what_has_not_begun_and_is_raised(store_url: str) -> None:
    agent, calls = agent_at(store_url), list[int]()

    @agent.step(raises=(ZeroDivisionError,))
    def invert(number: int) -> float:
        calls.append(number)
        return 1 / number

    with pytest.raises(ZeroDivisionError), agent.run("r") as run:
        run.map(invert, [1, 0, 2, 4], max_concurrency=1)
    assert calls == [1, 0]
    with agent.run("r2") as run:
        one, error, half = run.map(invert, [1, 0, 2], errors="return")
    assert (one, half) == (1.0, 0.5) and isinstance(error, ZeroDivisionError)


def test_items_are_told_apart_by_their_key(store_url: str) -> None:
    agent, calls = agent_at(store_url), list[str]()

    @agent.step(ignore=("page",))
    def read(page: dict[str, str]) -> str:
        calls.append(page["url"])
        return page["url"].upper()

    pages = [{"url": "a", "seen": "monday"}, {"url": "b", "seen": "monday"}]
    with pytest.raises(RuntimeError), agent.run("r") as run:
        run.map(read, pages, key="url")
        raise RuntimeError
    later = [{"url": "c", "seen": "tuesday"}, *({**page, "seen": "tuesday"} for page in pages)]
    with agent.run("r") as run:
        assert run.map(read, later, key="url") == ["C", "A", "B"]
    assert sorted(calls) == ["a", "b", "c"]


def test_any_function_can_be_mapped_but_not_in_a_step(store_url: str) -> None:
    agent = agent_at(store_url)
    with agent.run("r") as run:
        assert run.map(str.upper, ["a", "b"]) == ["A", "B"]
        assert run.map(str.upper, []) == []
        with pytest.raises(EffectInsideStep, match=r"run\.map"):
            run.step(lambda: run.map(str.upper, ["a"]), name="outer")
        with pytest.raises(ValueError, match="max_concurrency=0"):
            run.map(str.upper, ["a"], max_concurrency=0)


async def test_tasks_share_a_limit_and_a_cancelled_map_goes_on_later(store_url: str) -> None:
    agent = AsyncAgent("tester", store=store_url)
    done, stuck = list[int](), asyncio.Event()

    @agent.step
    async def work(number: int) -> int:
        if number == 2 and not done.count(3):
            stuck.set()
            await asyncio.sleep(60)
        done.append(number)
        return number

    async def first() -> None:
        async with agent.run("r") as run:
            await run.map(work, [1, 2], max_concurrency=2)

    task = asyncio.create_task(first())
    await stuck.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    done.append(3)
    async with agent.run("r") as run:
        assert await run.map(work, [1, 2], max_concurrency=2) == [1, 2]
    assert done == [1, 3, 2]


def test_a_process_that_dies_in_the_middle_repeats_only_what_was_not_done(store_url: str, world: World) -> None:
    def program() -> None:
        agent = agent_at(store_url)

        @agent.step
        def work(number: int) -> int:
            world.do(f"begin {number}")
            if number == 5 and world.count("begin 5") == 1:
                die()
            return number * number

        with agent.run("r") as run:
            assert run.map(work, range(8), max_concurrency=1) == [n * n for n in range(8)]

    run_in_child(program)
    assert run_in_child(program) == 0
    assert [world.count(f"begin {n}") for n in range(8)] == [1, 1, 1, 1, 1, 2, 1, 1]
