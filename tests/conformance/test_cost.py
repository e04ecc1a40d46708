"""`run.usage`, `agent.usage`, `agent.savings` and budgets: money that was spent is counted once, and kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from perdure import AsyncAgent, NotDone
from perdure.errors import BudgetExceeded, RunNotFound, VersionConflict
from perdure.platform.failpoints import CommitMoment, Site

from .kit import World, agent_at, check_views, die, kill_at, run_in_child


def count_usage(item: Any) -> tuple[int, int, float | None]:
    return item.calls, item.input_tokens, item.cost_usd


def test_usage_is_counted_once_wherever_it_is_reported(store_url: str) -> None:
    agent = agent_at(store_url)

    def think(tokens: int) -> int:
        run.usage(model="big", input_tokens=tokens, output_tokens=7, cached_input_tokens=2, cost_usd=0.5, provider="p")
        return tokens

    for stops in (True, False, False):  # left in the middle, finished, read
        try:
            with agent.run("r") as run:
                run.step(think, 10)
                run.usage(model="small", input_tokens=1, cost_usd=0.1)
                run.usage(model="small", input_tokens=2, cost_usd=0.2)
                for item in run.each([100, 200]):
                    run.usage(model="small", input_tokens=item, cost_usd=0)
                run.effect(think, 20, name="act")
                if stops:
                    raise ValueError
        except ValueError:
            pass
    usage = agent.usage()
    assert count_usage(usage) == (6, 333, 1.3)
    assert (usage.output_tokens, usage.cached_input_tokens, usage.tokens, usage.unpriced_calls) == (14, 4, 347, 0)
    assert {name: count_usage(totals) for name, totals in usage.by_model.items()} == {
        "big": (2, 30, 1.0),
        "small": (4, 303, 0.3),
    }
    assert {name: totals.calls for name, totals in usage.by_step.items()} == {"": 4, "act": 1, "think": 1}
    assert [(len(day), totals.calls) for day, totals in usage.by_day.items()] == [(len("2026-11-16"), 6)]
    assert agent.usage(run="r") == agent.runs.get("r").usage == usage
    assert count_usage(agent_at(store_url, "other").usage()) == (0, 0, 0.0)
    with pytest.raises(RunNotFound):
        agent.usage(run="x")
    check_views(agent)


def test_what_a_failed_attempt_has_spent_is_kept_and_what_it_wrote_is_not(store_url: str) -> None:
    agent, tries = agent_at(store_url), list[int]()

    def spend(cents: int) -> None:
        run.usage(model="m", cost_usd=cents / 100)
        run.state["dropped"] = 1

    def flaky() -> str:
        spend(1)
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError
        run.state["dropped"] = 0
        return "ok"

    def hopeless(cents: int, error: str) -> None:
        spend(cents)
        raise {"NotDone": NotDone, "LookupError": LookupError}.get(error, KeyboardInterrupt)

    def races() -> None:
        spend(1000)
        agent.state.set("ns", "k", 1, if_version=5)

    with pytest.raises(KeyboardInterrupt), agent.run("r") as run:
        run.step(flaky, retries=2, backoff=0)
        with pytest.raises(LookupError):
            run.step(hopeless, 10, "LookupError", name="refused")
        with pytest.raises(NotDone):
            run.effect(hopeless, 10, "NotDone", name="declined")
        with pytest.raises(VersionConflict):
            run.step(races)
        for _ in run.each(["left"]):
            spend(10000)
            run.step(hopeless, 100000, "", name="cancelled")
    info = agent.runs.get("r")
    assert info.usage.cost_usd == pytest.approx(1110.23)
    by_step = {name: totals.cost_usd for name, totals in info.usage.by_step.items()}
    assert by_step == {"": 100, "cancelled": 1000, "flaky": 0.03, "races": 10, "refused": 0.1, "declined": 0.1}
    assert info.state == {"dropped": 0}
    check_views(agent)


def test_a_killed_body_is_not_counted_and_its_next_try_is(store_url: str) -> None:
    def program() -> None:
        agent = agent_at(store_url)

        def think() -> None:
            run.usage(model="m", input_tokens=3, cost_usd=1)

        with agent.run("r") as run:
            run.step(think, name="first")
            run.step(think, name="second")

    for moment in CommitMoment:
        kill_at(program, Site.STEP_DONE, moment, 2 if moment is CommitMoment.BEFORE else 1)
    program()
    agent = agent_at(store_url)
    assert count_usage(agent.usage()) == (2, 6, 2.0)
    # Opened four times, each time past the first step; and the last time past the second one too.
    assert (agent.savings().steps, agent.savings().cost_usd) == (5, 5.0)
    check_views(agent)


def test_only_what_the_code_asks_for_again_is_credited_and_once_for_each_opening(store_url: str) -> None:
    agent = agent_at(store_url)

    def opened(*asked: str, new: str, run_id: str = "r") -> None:
        with pytest.raises(ValueError, match="stop"), agent.run(run_id) as run:
            for name in asked:
                run.step(lambda: run.usage(model="m", input_tokens=1, cost_usd=1), id=name, name="s")
                run.step(lambda: None, id=name, name="s")  # the same call
            for _ in range(2):
                run.step(lambda: None, id=new, name="s")
            raise ValueError("stop")

    opened("a", "b", "c", new="1")
    assert agent.savings().steps == 0
    opened("a", "c", new="2")
    assert (agent.savings().steps, agent.savings().calls, agent.savings().cost_usd) == (2, 2, 2.0)
    opened("a", "b", "c", new="3")
    saved = agent.savings()
    assert (saved.steps, saved.calls, saved.by_run["r"].steps, list(saved.by_model)) == (5, 5, 5, ["m"])
    opened("a", new="1", run_id="other")
    assert agent.savings(run="other").steps == 0
    check_views(agent)


def test_a_child_that_goes_on_is_new_work_of_its_parent(store_url: str) -> None:
    def program() -> None:
        agent = agent_at(store_url)
        with agent.run("parent") as run:
            run.step(lambda: 1, name="before")
            with agent.run("child") as child:
                child.step(lambda: 1, name="inside")
                child.step(die, name="killed")

    for _ in range(3):
        assert run_in_child(program) != 0
    saved = agent_at(store_url).savings()
    assert {name: totals.steps for name, totals in saved.by_run.items()} == {"parent": 2, "child": 2}


def test_a_finished_task_is_credited_to_the_run_that_resumes_past_it(store_url: str) -> None:
    """Its function is not called again, so nothing replays its steps one by one."""

    def program(last: Callable[[], Any]) -> None:
        agent = agent_at(store_url)

        @agent.task
        def child() -> None:
            agent_step = agent.step(lambda n: n, name="inside")
            agent_step(1)
            agent_step(2)

        with agent.run("parent") as run:
            child.run("kid")
            run.step(last, name="last")

    assert run_in_child(lambda: program(die)) != 0
    program(lambda: 1)
    assert {name: totals.steps for name, totals in agent_at(store_url).savings().by_run.items()} == {"parent": 2}


def test_a_finished_child_is_credited_to_the_parent_that_resumes_past_it(store_url: str) -> None:
    def program(fail: bool) -> None:
        agent = agent_at(store_url)
        with agent.run("parent") as run:
            for _ in range(2):  # the second time it is only read
                with agent.run("child") as child:
                    child.step(lambda: 1, name="inside")
                    for item in child.each("ab"):
                        child.step(str, item)
                    with agent.run("grandchild") as inner:
                        inner.step(partial(inner.usage, model="m", input_tokens=10, cost_usd=0.5), name="deep")
            run.step(die if fail else str, name="killed")

    run_in_child(lambda: program(True))
    assert agent_at(store_url).savings().steps == 0
    run_in_child(lambda: program(True))
    saved = agent_at(store_url).savings()
    assert {name: totals.steps for name, totals in saved.by_run.items()} == {"parent": 4}
    assert count_usage(saved.by_run["parent"]) == (1, 10, 0.5)
    program(False)
    assert agent_at(store_url).savings().steps == 8
    program(False)
    assert agent_at(store_url).savings().steps == 8, "reading a finished run saves nothing"
    check_views(agent_at(store_url))


def test_a_child_that_works_in_this_opening_is_not_credited(store_url: str) -> None:
    agent = agent_at(store_url)
    with pytest.raises(ConnectionError), agent.run("parent"):
        raise ConnectionError
    with agent.run("parent"):
        for _ in range(2):
            with agent.run("child") as child:
                child.step(lambda: 1, name="inside")
    assert agent.savings().steps == 0


def test_finished_steps_of_a_workflow_are_credited_when_it_goes_on(store_url: str) -> None:
    def program(fail: bool) -> None:
        agent = agent_at(store_url)
        agent.step(name="search")(lambda: 1)
        steps = [{"step": n, "action": action} for n, action in ((1, "search"), (2, "plain"), (3, "last"))]
        wf = agent.workflows.create("bill", steps=steps)
        wf.resume(
            handlers={
                "plain": lambda run: run.usage(model="m", input_tokens=7, cost_usd=0.25),
                "last": die if fail else int,
            }
        )

    run_in_child(lambda: program(True))
    assert agent_at(store_url).savings().steps == 0
    program(False)
    saved = agent_at(store_url).savings()
    assert saved.steps == 2 and count_usage(saved) == count_usage(agent_at(store_url).usage()) == (1, 7, 0.25)
    assert list(saved.by_run) == ["bill@1/3"]
    program(False)
    assert agent_at(store_url).savings().steps == 2, "nothing was left to do"
    check_views(agent_at(store_url))


# -- budgets ------------------------------------------------------------------------------------------------------


def test_a_budget_stops_before_the_next_call_and_survives_a_kill(store_url: str, world: World) -> None:
    def program(budget: float | None, dies: bool = False) -> None:
        agent = agent_at(store_url)

        def pay(number: int) -> int:
            world.do(f"pay {number}")
            run.usage(model="m", cost_usd=1)
            if number == 2 and not world.count("tried"):
                world.do("tried")
                raise ConnectionError
            return number

        with agent.run("r", budget_usd=budget) as run:
            for number in (1, 2):
                run.step(pay, number, retries=1, backoff=0)
            run.usage(model="m", cost_usd=0.25)
            if dies:
                die()
            run.effect(pay, 3)
            run.step(pay, 4)

    assert run_in_child(lambda: program(3.5, dies=True)) != 0
    paid = ["pay 1", "pay 2", "tried", "pay 2"]
    assert world.read_all() == paid
    with pytest.raises(BudgetExceeded, match=r"\$3\.2500 of its budget of \$3\.2500") as stopped:
        program(3.25)
    assert "budget_usd=" in stopped.value.hint
    agent = agent_at(store_url)
    info = agent.runs.get("r")
    assert (info.status, info.in_doubt, world.read_all()) == ("failed", [], paid), "no intent stands"
    assert "BudgetExceeded" in agent.runs.list()[0].error
    with pytest.raises(BudgetExceeded):
        program(4)
    assert world.read_all() == [*paid, "pay 3"]
    program(4.5)
    assert world.read_all() == [*paid, "pay 3", "pay 4"]
    assert agent.usage().cost_usd == 5.25
    program(None)
    check_views(agent)


def test_children_spend_the_budget_of_their_parent(store_url: str) -> None:
    agent = agent_at(store_url)

    def program(budget: float) -> None:
        with agent.run("parent", budget_usd=budget) as run:
            for name in ("a", "b"):
                with agent.run(name) as child:
                    for number in range(2):
                        child.step(lambda: child.usage(model="m", cost_usd=1), name=f"{number}")
            run.step(lambda: None, name="end")

    with pytest.raises(BudgetExceeded, match="'parent'"):
        program(3)
    assert agent.usage().cost_usd == 3
    with pytest.raises(BudgetExceeded, match="'parent'"):
        program(3)
    program(4.5)
    assert agent.usage().cost_usd == 4


def test_under_a_budget_every_call_needs_a_price(store_url: str) -> None:
    agent = agent_at(store_url)
    for _ in range(2):
        with (
            pytest.raises(BudgetExceeded, match="'nobody-knows-it'") as stopped,
            agent.run("r", budget_usd=5) as run,
        ):
            run.step(lambda: run.usage(model="nobody-knows-it", input_tokens=1), name="first")
            run.step(lambda: None, name="next")
    assert "cost_usd=" in stopped.value.hint
    with agent.run("r") as run:
        run.step(lambda: None, name="next")
    for wrong, error in ((0, ValueError), (-1, ValueError), ("5", TypeError), (float("inf"), ValueError)):
        with pytest.raises(error, match="budget_usd"):
            agent.run("s", budget_usd=wrong)


async def test_the_async_side_counts_the_same(store_url: str) -> None:
    agent, reached, open_runs = AsyncAgent("tester", store=store_url), asyncio.Event(), list[Any]()

    @agent.step
    async def think(number: int) -> int:
        await open_runs[-1].usage(model="m", input_tokens=number, cost_usd=1)
        return number

    async def program(budget: float | None, stays: bool = False) -> None:
        async with agent.run("r", budget_usd=budget) as run:
            open_runs.append(run)
            await asyncio.gather(*[think(n) for n in (1, 2, 3)])
            await think(0)
            await run.usage(model="m", cost_usd=1)
            if stays:
                reached.set()
                await asyncio.sleep(60)
            await think(4)

    first = asyncio.create_task(program(None, stays=True))
    await reached.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    with pytest.raises(BudgetExceeded):
        await program(5)
    await program(6)
    usage, saved = await agent.usage(), await agent.savings()
    assert count_usage(usage) == (6, 10, 6.0)
    assert (saved.steps, saved.calls, saved.input_tokens, saved.cost_usd) == (8, 8, 12, 8.0)
    await agent.close()
