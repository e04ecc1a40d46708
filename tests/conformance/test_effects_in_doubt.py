"""Effects in doubt: checks, answers and policies that settle them, and attempts that survive a crash."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from perdure import AsyncAgent, Done, InDoubt, NotDone, RunWaiting
from perdure.errors import Diverged
from perdure.platform.failpoints import CommitMoment, Site
from perdure.records import EffectAgain

from .kit import PATIENCE, World, agent_at, die, kill_at, kill_on_other_host, run_in_child
from .test_effects import make_payment


@pytest.mark.parametrize(
    ("check", "result"),
    [
        (lambda amount: Done(f"found {amount}"), "found 5"),
        (lambda amount, **rest: Done(f"found {sorted(rest)}"), "found ['key']"),
        (lambda amount, key: Done, None),
        (lambda amount, key: Done(), None),
    ],
)
def test_a_check_takes_the_key_or_leaves_it_and_needs_no_result(
    store_url: str, world: World, check: Callable[..., Any], result: object
) -> None:
    kill_at(lambda: make_payment(store_url, world)[1](), Site.EFFECT_OUTCOME, CommitMoment.BEFORE)
    assert make_payment(store_url, world, check=check)[1](wait=0) == result
    assert len(world.read_all()) == 1


def test_an_effect_proven_absent_is_begun_again_with_a_new_entry(store_url: str, world: World) -> None:
    def check(amount: int) -> None:
        raise NotDone("not a trace of it")

    kill_at(lambda: make_payment(store_url, world)[1](), Site.EFFECT_INTENT, CommitMoment.AFTER)
    agent, program = make_payment(store_url, world, check=check)
    assert program(wait=0) == "paid 5"
    assert len(world.read_all()) == 1
    names = [event.kind for event in agent.runs.get("r").events]
    assert names == ["RunStarted", "EffectIntended", "RunResumed", "EffectAgain", "EffectDone", "RunFinished"]


def test_an_effect_proven_done_is_recorded_and_not_asked_about_again(store_url: str, world: World) -> None:
    asked = []

    def check(amount: int, *, key: str) -> object:
        asked.append(key)
        return Done("found")

    kill_at(lambda: make_payment(store_url, world)[1](), Site.EFFECT_OUTCOME, CommitMoment.BEFORE)
    agent, program = make_payment(store_url, world, check=check)
    assert [program(), program()] == ["found", "found"]
    assert asked == world.read_all()
    names = [event.kind for event in agent.runs.get("r").events]
    assert names == ["RunStarted", "EffectIntended", "RunResumed", "EffectDone", "RunFinished"]


@pytest.mark.parametrize("policy", ["fail", "retry"])
def test_an_answer_comes_before_the_policy_and_the_check(store_url: str, world: World, policy: str) -> None:
    kill_at(lambda: make_payment(store_url, world)[1](), Site.EFFECT_OUTCOME, CommitMoment.BEFORE)
    agent, program = make_payment(store_url, world, in_doubt=policy, check=lambda amount: NotDone)
    agent.runs.answer("r", done="paid by hand")
    assert program(wait=0) == "paid by hand"
    assert len(world.read_all()) == 1


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("answer", ["done", "retry", "check"])
def test_a_question_is_closed_once_it_is_settled(store_url: str, world: World, answer: str, asked: bool) -> None:
    kill_at(lambda: make_payment(store_url, world)[1](), Site.EFFECT_OUTCOME, CommitMoment.BEFORE)
    agent, program = make_payment(store_url, world)
    for _ in range(2 * asked):
        with pytest.raises(RunWaiting):
            program(wait=0)
        assert [question.kind for question in agent.runs.get("r").questions] == ["in_doubt"]
    if answer == "check":
        agent, program = make_payment(store_url, world, check=lambda amount: NotDone)
    else:
        agent.runs.answer("r", answer)
    program(wait=0)
    info = agent.runs.get("r")
    assert (info.status, info.questions, info.in_doubt) == ("finished", [], [])
    names = [event.kind for event in info.events]
    assert names.count("QuestionAsked") == names.count("QuestionClosed") == asked


def test_a_body_without_a_timeout_is_never_believed_to_be_over(
    store_url: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_on_other_host(store_url, lambda: make_payment(store_url, world, lambda: str(die()))[1]())
    monkeypatch.setattr("perdure.run.doubt.LEASE_MS", 1)
    # Its lease has run out long ago; but it may sleep in its body, and act when it wakes up.
    with pytest.raises(RunWaiting):
        make_payment(store_url, world, timeout=60, check=lambda amount: NotDone)[1](wait=0)
    assert len(world.read_all()) == 1


@pytest.mark.parametrize("before", ["first time", "in doubt", "failed"])
def test_two_calls_with_one_id_at_the_same_time_are_one_effect(store_url: str, world: World, before: str) -> None:
    async def program(calls: int, *, fail: bool = False) -> list[Any]:
        agent = AsyncAgent("tester", store=store_url)

        @agent.effect(check=lambda *, key: NotDone)
        async def pay(*, key: str) -> str:
            if fail:
                raise NotDone("no money")
            world.do(key)
            await asyncio.sleep(0.01)
            return "paid"

        async with agent.run("r"):
            return await asyncio.gather(*[pay.options(id="x")() for _ in range(calls)], return_exceptions=True)

    if before == "in doubt":
        kill_at(lambda: asyncio.run(program(1)), Site.EFFECT_INTENT, CommitMoment.AFTER)
    elif before == "failed":
        kill_at(lambda: asyncio.run(program(1, fail=True)), Site.RUN_END, CommitMoment.BEFORE)
    outcomes = asyncio.run(program(2))
    assert [type(one).__name__ for one in outcomes] == ["str", "Diverged"]
    assert len(world.read_all()) == 1


def test_two_threads_with_one_id_at_the_same_time_are_one_effect(store_url: str, world: World) -> None:
    agent, begun, free = agent_at(store_url), threading.Event(), threading.Event()

    @agent.effect
    def pay(*, key: str) -> str:
        world.do(key)
        begun.set()
        assert free.wait(PATIENCE)
        return "paid"

    with agent.run("r") as run, ThreadPoolExecutor() as pool:
        first = pool.submit(run.bind(pay.options(id="x")))
        assert begun.wait(PATIENCE)
        second = pool.submit(run.bind(pay.options(id="x")))
        assert isinstance(second.exception(PATIENCE), Diverged)
        free.set()
        assert first.result(PATIENCE) == "paid"
    assert len(world.read_all()) == 1


def test_a_finished_run_says_again_what_nobody_knew(store_url: str, world: World) -> None:
    agent = agent_at(store_url)

    @agent.effect
    def pay() -> None:
        world.do("paid")
        raise TimeoutError("who knows")

    for _ in range(2):
        with agent.run("r"), pytest.raises(InDoubt):
            pay()
        assert agent.runs.get("r").status == "finished"
    assert world.count("paid") == 1


class Receipt:
    """Nobody has registered it."""


@pytest.mark.parametrize("knows", [False, True])
def test_an_effect_with_an_unstorable_result_is_not_repeated(store_url: str, world: World, knows: bool) -> None:
    """Not by retries, nor because a TypeError is declared to mean that nothing happened, nor by a check that lags."""
    agent = agent_at(store_url)

    def check(amount: int, *, key: str) -> Done | type[NotDone]:
        return Done("found") if knows else NotDone

    @agent.effect(check=check, not_done=(TypeError, ValueError), retries=2, backoff=0.001)
    def pay(amount: int, *, key: str) -> Receipt:
        world.do("paid")
        return Receipt()

    for _ in range(2):
        if knows:
            with agent.run("r") as run:
                assert pay(7) == "found"
            continue
        with pytest.raises((InDoubt, RunWaiting), match="result c.*not be stored"), agent.run("r", wait=0) as run:
            pay(7)
    assert world.count("paid") == 1
    if not knows:
        agent.runs.answer("r", done="receipt 1")
        with agent.run("r") as run:
            run.result = pay(7)
        assert agent.runs.result("r") == "receipt 1"
        assert world.count("paid") == 1
    agent.close()


def test_an_effect_that_times_out_is_always_in_doubt(store_url: str) -> None:
    agent, go, calls = agent_at(store_url), threading.Event(), []

    @agent.effect(timeout=0.05, not_done=(TimeoutError,), retries=1, backoff=0.001)
    def pay(amount: int, *, key: str) -> None:
        calls.append(key)
        go.wait()

    with pytest.raises(InDoubt), agent.run("r"):
        pay(7)
    go.set()
    assert len(calls) == 1
    agent.close()


async def test_our_timeout_is_no_word_of_the_author_when_the_body_has_ended(store_url: str, world: World) -> None:
    agent = AsyncAgent("tester", store=store_url)

    @agent.effect(timeout=0.2, not_done=(TimeoutError,), retries=1, backoff=0)
    async def pay(*, key: str) -> None:
        world.do(key)
        await asyncio.sleep(60)

    with pytest.raises(InDoubt):
        async with agent.run("r"):
            await pay()
    assert len(world.read_all()) == 1


def test_the_pause_before_a_retry_is_kept_and_survives_a_crash(
    store_url: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program() -> None:
        agent = agent_at(store_url)

        @agent.step(retries=2, backoff=30)
        def flaky() -> None:
            world.do("attempt")
            if world.count("attempt") < 3:
                raise ConnectionError("down")

        with agent.run("r"):
            flaky()

    kill_at(program, Site.ATTEMPT_FAILED, CommitMoment.AFTER)
    slept: list[float] = []
    monkeypatch.setattr("perdure.values.clock.SystemClock.sleep", lambda clock, seconds: slept.append(seconds))
    program()
    # In slices, between which it listens for orders.
    assert 59 + 10 < sum(slept) < 60 + 30, "what is left of the first pause, and the second, which is twice as long"


@pytest.mark.parametrize("how", ["raises", "check"])
def test_the_attempts_of_an_effect_are_counted_across_a_crash(store_url: str, world: World, how: str) -> None:
    def program() -> None:
        agent = agent_at(store_url)

        @agent.effect(retries=3, backoff=0.001, check=(lambda *, key: NotDone) if how == "check" else None)
        def pay(*, key: str) -> None:
            world.do(key)
            raise NotDone("no money") if how == "raises" else TimeoutError("who knows")

        with agent.run("r"):
            pay()

    kill_at(program, Site.ATTEMPT_FAILED, CommitMoment.AFTER, nth=2)
    assert len(world.read_all()) == 2
    assert run_in_child(program) != 0
    assert len(world.read_all()) == 4
    assert len(set(world.read_all())) == 1


def test_an_effect_that_failed_for_certain_keeps_its_key_over_a_new_process(store_url: str, world: World) -> None:
    def program() -> None:
        agent = agent_at(store_url)

        @agent.effect
        def pay(*, key: str) -> None:
            world.do(key)
            if len(world.read_all()) == 1:
                raise NotDone("no money")

        with agent.run("r"):
            pay()

    assert run_in_child(program) != 0
    program()
    assert len(world.read_all()) == 2
    assert len(set(world.read_all())) == 1
    again = [event for event in agent_at(store_url).runs.get("r").events if isinstance(event.record, EffectAgain)]
    assert len(again) == 1


def test_code_outside_of_steps_runs_again(store_url: str, world: World) -> None:
    def program() -> None:
        agent = agent_at(store_url)
        with agent.run("r") as run:
            world.do("outside")
            run.step(lambda: world.do("inside"), name="inside")
            run.state["a"] = 1

    kill_at(program, Site.WRITE, CommitMoment.AFTER)
    program()
    assert world.read_all() == ["outside", "inside", "outside"]


def test_a_repeatable_effect_without_check_can_happen_twice(store_url: str, world: World) -> None:
    def program() -> None:
        with agent_at(store_url).run("r") as run:
            run.effect(lambda: world.do("paid"), name="pay", in_doubt="retry")

    kill_at(program, Site.EFFECT_OUTCOME, CommitMoment.BEFORE)
    program()
    assert world.count("paid") == 2
