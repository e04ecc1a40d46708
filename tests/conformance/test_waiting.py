"""A run that waits for people, events and times: asked once, answered once, whatever dies meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure import Agent, AsyncAgent, RunWaiting, stored
from perdure.cli.main import main
from perdure.errors import AlreadyAnswered, EffectInsideStep, InDoubt, NothingToAnswer, RunFinished, WaitTimeout
from perdure.platform.failpoints import CommitMoment, Site

from .kit import World, agent_at, check_views, kill_at, run_in_child


def trip(agent: Agent, world: World, wait: float | None = 0) -> Any:
    """Waits for everything that there is; the outside sees what it was told."""
    with agent.run("trip", wait=wait) as run:
        seat = run.ask("Window or aisle?", choices=["window", "aisle"])
        if run.approve("Book it?"):
            run.step(world.do, f"book {seat}")
        run.sleep(0.02)
        paid = [run.wait_event("paid") for _ in range(2)]
        run.result = (seat, paid)
    return agent.runs.result("trip")


def say_everything(agent: Agent, world: World) -> Any:
    """Answer whatever is asked, and start again, until it is done."""
    for _ in range(20):
        try:
            return trip(agent, world)
        except RunWaiting:
            for question in agent.runs.get("trip").questions:
                if question.kind in ("ask", "approve"):
                    agent.runs.answer("trip", "aisle" if question.kind == "ask" else True)
                elif question.kind == "event":
                    agent.send_event("trip", "paid", {"euro": 7})
                else:
                    time.sleep(0.02)  # it sleeps for as long
    raise AssertionError("it does not end")


def test_each_question_is_asked_once_and_its_answer_kept(store_url: str, world: World) -> None:
    agent = agent_at(store_url)
    assert say_everything(agent, world) == ("aisle", [{"euro": 7}, {"euro": 7}])
    assert trip(agent, world) == ("aisle", [{"euro": 7}, {"euro": 7}])
    assert world.read_all() == ["book aisle"]
    kinds = [event.kind for event in agent.runs.get("trip").events]
    assert kinds.count("WaitBegan") == kinds.count("WaitEnded") == 5
    check_views(agent)


@pytest.mark.parametrize("moment", list(CommitMoment))
@pytest.mark.parametrize("site", [Site.WAIT_BEGIN, Site.WAIT_END, Site.SIGNAL, Site.ANSWER])
def test_a_kill_at_any_moment_asks_and_takes_nothing_twice(
    store_url: str, world: World, site: Site, moment: CommitMoment
) -> None:
    agent_at(store_url).state.set("a", "b", 1)  # the store is there
    nth = 2 if site in (Site.WAIT_BEGIN, Site.WAIT_END) else 1
    kill_at(lambda: say_everything(agent_at(store_url), world), site, moment, nth)
    agent = agent_at(store_url)
    assert say_everything(agent, world) == ("aisle", [{"euro": 7}, {"euro": 7}])
    assert world.read_all() == ["book aisle"]
    asked = [e.record.text for e in agent.runs.get("trip").events if e.kind == "WaitBegan"]
    assert asked.count("Window or aisle?") == asked.count("Book it?") == 1
    check_views(agent)


def test_an_answer_from_another_process_wakes_the_run(store_url: str) -> None:
    agent = agent_at(store_url)

    def program() -> None:
        other = agent_at(store_url)
        while not (other.runs.list() and other.runs.get("r").questions):
            pass
        other.runs.answer("r", 5, by="ann")
        with pytest.raises((AlreadyAnswered, NothingToAnswer)):
            other.runs.answer("r", 6)
        other.send_event("r", "go", "now")

    child = threading.Thread(target=lambda: statuses.append(run_in_child(program)))
    statuses: list[int] = []
    child.start()
    with agent.run("r") as run:
        assert run.ask("How many?", schema=int) == 5
        assert run.wait_event("go") == "now"
    child.join()
    assert statuses == [0]
    [answered] = [e.record for e in agent.runs.get("r").events if getattr(e.record, "how", "") == "answer"]
    assert answered.by == "ann"


def test_events_may_come_before_the_run_does_and_are_taken_in_their_order(store_url: str) -> None:
    agent = agent_at(store_url)
    for number in range(3):
        agent.send_event("later", "tick", number)
    with agent.run("later") as run:
        assert [run.wait_event("tick") for _ in range(3)] == [0, 1, 2]
        assert run.wait_event("tick", timeout=0.02, default="none") == "none"
        agent.send_event("later", "tick", 3)
        assert run.wait_event("tick") == 3
    check_views(agent)


def test_threads_that_wait_for_one_name_take_one_event_each(store_url: str) -> None:
    agent = agent_at(store_url)
    with agent.run("r") as run:
        with run.executor() as pool:
            waiting = [pool.submit(run.wait_event, "tick") for _ in range(4)]
            for number in range(4):
                agent.send_event("r", "tick", number)
            assert sorted(one.result() for one in waiting) == [0, 1, 2, 3]
    check_views(agent)


def test_an_event_sent_in_a_step_is_sent_with_the_step(store_url: str) -> None:
    agent = agent_at(store_url)

    @agent.step
    def tell(fails: bool) -> None:
        agent.send_event("listener", "told", fails)
        if fails:
            raise RuntimeError("after it was sent")

    with agent.run("teller"):
        with pytest.raises(RuntimeError):
            tell(True)
        tell(False)
    with agent.run("listener") as run:
        assert run.wait_event("told") is False
        assert run.wait_event("told", timeout=0.02, default="nothing more") == "nothing more"


def test_an_answer_that_does_not_fit_is_asked_for_again(store_url: str) -> None:
    @stored("seat")
    @dataclass
    class Seat:
        row: int

    agent = agent_at(store_url)
    with pytest.raises(RunWaiting), agent.run("r", wait=0) as run:
        run.ask("Which seat?", schema=Seat)
    agent.runs.answer("r", {"row": "no number"})
    with pytest.raises(RunWaiting), agent.run("r", wait=0) as run:
        run.ask("Which seat?", schema=Seat)
    agent.runs.answer("r", {"row": 12})
    for _ in range(2):
        with agent.run("r") as run:
            assert run.ask("Which seat?", schema=Seat) == Seat(12)


def test_whoever_answers_is_told_what_would_not_fit(store_url: str) -> None:
    agent = agent_at(store_url)
    choices = ["a", "b", "long " * 2000]
    with pytest.raises(RunWaiting, match="perdure answer r VALUE"), agent.run("r", wait=0) as run:
        run.ask("Which?", choices=choices)
    agent.gc()  # what only the question refers to stays
    with pytest.raises(ValueError, match="one of 'a', 'b'"):
        agent.runs.answer("r", "c")
    with pytest.raises(NothingToAnswer, match="it asks: 'Which\\?'"):
        agent.runs.answer("r", "a", question="What?")
    agent.runs.answer("r", "a")
    with pytest.raises(RunWaiting), agent.run("r", wait=0) as run:
        assert run.ask("Which?", choices=choices) == "a"
        run.approve("Sure?")
    with pytest.raises(ValueError, match="True or False.*`perdure answer r --yes` or `--no`"):
        agent.runs.answer("r", "maybe")


@pytest.mark.parametrize(("word", "means"), [("yes", True), ("No", False), ("true", True), (False, False)])
def test_a_yes_or_no_is_said_in_words_or_as_a_flag(
    store_url: str, word: str | bool, means: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = agent_at(store_url)
    with pytest.raises(RunWaiting) as caught, agent.run("7", wait=0) as run:
        run.approve("Sure?")
    assert f"`perdure answer 7 --store {store_url} --yes` or `--no`" in caught.value.hint.replace("'", "")
    assert main(["answer", "7", str(word), "--store", store_url]) == 0
    with agent.run("7") as run:
        assert run.approve("Sure?") is means
    assert f"answered: {means}" in capsys.readouterr().out


def test_messages_name_the_run_and_no_placeholder(store_url: str) -> None:
    agent = agent_at(store_url)
    with agent.run("my run") as run:
        run.step(lambda: 1, name="one")
    with pytest.raises(NothingToAnswer, match="perdure show 'my run'"):
        agent.runs.answer("my run", True)

    @agent.effect(in_doubt="fail")
    def pay() -> None:
        raise ConnectionError

    for _ in range(2):  # once from the body, once from what is recorded
        with (
            pytest.raises(InDoubt, match="perdure answer 'the order' --store .* --done RESULT"),
            agent.run("the order"),
        ):
            pay()


def test_a_timeout_is_counted_from_the_first_time_and_recorded(store_url: str) -> None:
    agent = agent_at(store_url)
    with pytest.raises(RunWaiting), agent.run("r", wait=0) as run:
        run.ask("Anybody?", timeout="600ms")
    with agent.run("r") as run:
        with pytest.raises(WaitTimeout):
            run.ask("Anybody?", timeout="7d")  # the time that was given first counts
        run.result = "nobody"
    with agent.run("r") as run:
        with pytest.raises(TimeoutError):
            run.ask("Anybody?", timeout="7d")
        with pytest.raises(RunFinished):
            run.ask("And now?")


def test_a_sleep_ends_at_the_time_that_was_first_fixed(store_url: str) -> None:
    agent = agent_at(store_url)
    with pytest.raises(RunWaiting), agent.run("r", wait=0) as run:
        run.sleep(timedelta(seconds=0.6))
    [question] = agent.runs.get("r").questions
    assert question.kind == "sleep" and agent.runs.get("r").status == "waiting"
    with agent.run("r") as run:
        run.sleep("2h")
        run.sleep(datetime.now(UTC) - timedelta(days=1))
        run.sleep(datetime.fromtimestamp(0, UTC))
    assert agent.runs.get("r").questions == []


def test_a_body_cannot_wait(store_url: str) -> None:
    agent = agent_at(store_url)
    with agent.run("r") as run:
        for wait in (lambda: run.ask("?"), lambda: run.sleep(1), lambda: run.wait_event("e")):
            with pytest.raises(EffectInsideStep, match="inside a step"):
                run.step(wait, name="waits")


async def test_tasks_wait_side_by_side(store_url: str) -> None:
    agent = AsyncAgent("tester", store=store_url)

    async def answers() -> None:
        while len((await agent.runs.get("r")).questions) < 2:
            await asyncio.sleep(0.01)
        await agent.runs.answer("r", True, question="Second?")
        await agent.runs.answer("r", False, question="First?")

    async with agent.run("r") as run:
        helper = asyncio.create_task(answers())
        assert await asyncio.gather(run.approve("First?"), run.approve("Second?")) == [False, True]
        await helper
        await run.sleep(0.01)
        await agent.send_event("r", "e", 1)
        assert await run.wait_event("e") == 1
