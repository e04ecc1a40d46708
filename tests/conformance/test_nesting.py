"""Runs, loops, items and steps inside each other, and calls that end late."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest

from perdure import AsyncAgent
from perdure.errors import (
    Abandoned,
    EffectInsideStep,
    LeaseLost,
    NothingToAnswer,
    NotStorable,
    StepTimeout,
    ValueTooLarge,
)
from perdure.platform.failpoints import CommitMoment, Site
from perdure.records import StepDone

from .kit import World, agent_at, kill_at, lose_lease


def test_a_run_that_was_lost_does_not_end_in_silence(store_url: str) -> None:
    agent = agent_at(store_url)
    with pytest.raises(LeaseLost), agent.run("r"):
        lose_lease(store_url, "r")
    assert len(agent.runs.get("r").events) == 1


def test_a_run_cannot_be_opened_inside_a_step(store_url: str) -> None:
    agent = agent_at(store_url)

    def work() -> None:
        with agent.run("inner"):
            pass

    with pytest.raises(EffectInsideStep, match="inner"), agent.run("outer") as run:
        run.step(work)


def wrap_error(error: Exception, kind: str) -> BaseException:
    """Ways for an exception to leave a run as another."""
    if kind == "cause":
        made = RuntimeError("wrapped")
        made.__cause__ = error
        return made
    return ExceptionGroup("several", [ValueError("other"), error]) if kind == "group" else error


@pytest.mark.parametrize("kind", ["itself", "cause", "group"])
def test_a_failure_that_ended_the_run_is_tried_again_whatever_it_was_wrapped_in(store_url: str, kind: str) -> None:
    agent, attempts = agent_at(store_url), []

    @agent.step
    def flaky() -> str:
        attempts.append(1)
        if len(attempts) == 1:
            raise ConnectionError("down")
        return "up"

    def program() -> str:
        with agent.run("r") as run:
            try:
                return flaky()
            except ConnectionError as error:
                run.state["noted"] = 1  # does something after it, and so has gone past it; but then it leaves the run
                leaving = wrap_error(error, kind)
            raise leaving

    with pytest.raises((ConnectionError, RuntimeError, ExceptionGroup)):
        program()
    assert program() == "up"


def test_a_loop_inside_a_step_is_part_of_the_step(store_url: str) -> None:
    agent = agent_at(store_url)

    def work() -> int:
        for n in run.each([1, 2, 3]):
            run.state["at"] = n
        return n

    with agent.run("r") as run:
        assert run.step(work) == 3
    names = [event.kind for event in agent.runs.get("r").events]
    assert names == ["RunStarted", "StepDone", "RunFinished"]
    assert agent.runs.get("r").state == {"at": 3}


def test_a_loop_takes_any_iterable(store_url: str) -> None:
    agent = agent_at(store_url)
    with agent.run("r") as run:
        assert [int(n) for n in run.each(n * n for n in range(3))] == [0, 1, 4]
        assert [str(n) for n in run.each({"b": 1, "a": 2})] == ["b", "a"]
        assert [str(n) for n in run.each([])] == []


def test_item_done_outside_of_a_loop_is_a_mistake(store_url: str) -> None:
    agent = agent_at(store_url)
    with agent.run("r") as run, pytest.raises(RuntimeError, match=r"outside of run\.each"):
        run.item_done()


@pytest.mark.parametrize("how", ["break", "exception", "end"])
def test_after_a_loop_the_code_is_outside_of_its_items(store_url: str, how: str) -> None:
    agent = agent_at(store_url)

    def leave(item: str) -> None:
        if how == "exception" and item == "b":
            raise ValueError("enough")

    with agent.run("r") as run:
        try:
            for item in run.each(["a", "b"]):
                run.state["in"] = item
                if how == "break" and item == "b":
                    break
                leave(item)
        except ValueError:
            pass
        run.state["after"] = 1
        assert agent.runs.get("r").state == {"after": 1, "in": "b" if how == "end" else "a"}
        run.step(lambda: 1, name="after")
    assert [e.record.call.scope for e in agent.runs.get("r").events if isinstance(e.record, StepDone)] == [""]


def test_named_loops_may_be_added_and_removed(store_url: str) -> None:
    agent, seen = agent_at(store_url), []

    def program(*names: str, stop: bool) -> None:
        with agent.run("r") as run:
            for name in names:
                seen.extend(f"{name}{n}" for n in run.each([1, 2], name=name))
            if stop:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        program("a", "b", stop=True)
    program("new", "b", "b", stop=False)
    assert seen == ["a1", "a2", "b1", "b2", "new1", "new2", "b1", "b2"]


@pytest.mark.parametrize(("first", "second"), [("1", ""), ("a#2", "a"), ("a:1/b", "b"), ("a/b", "a"), ("ä", "Ä")])
def test_no_name_of_a_loop_is_mistaken_for_another_loop(store_url: str, first: str, second: str) -> None:
    agent, seen = agent_at(store_url), []

    def program(stop: bool) -> None:
        with agent.run("r") as run:
            seen.extend(f"{first}{n}" for n in run.each([1], name=first))
            if stop:
                raise KeyboardInterrupt
            for _ in range(2):
                for n in run.each([1], name=second):
                    seen.extend(f"{second}{n}{m}" for m in run.each([1], name="b"))

    with pytest.raises(KeyboardInterrupt):
        program(stop=True)
    program(stop=False)
    assert seen == [f"{first}1", f"{second}11", f"{second}11"]


def test_a_parent_can_be_written_to_from_the_block_of_its_child(store_url: str) -> None:
    agent = agent_at(store_url)
    with agent.run("parent") as parent, agent.run("child") as child:
        parent.state["a"] = 1
        child.state["b"] = 2
        assert (dict(parent.state), dict(child.state)) == ({"a": 1}, {"b": 2})
    assert agent.runs.get("parent").state == {"a": 1}
    assert agent.runs.get("child").state == {"b": 2}


def test_what_an_item_deletes_is_gone_for_it_at_once_and_for_others_with_it(store_url: str) -> None:
    agent = agent_at(store_url)
    with agent.run("r") as run:
        run.state["x"] = run.state["y"] = 1
        for _ in run.each([1]):
            del run.state["x"]
            assert "x" not in run.state
            assert dict(run.state) == {"y": 1}
            assert agent.runs.get("r").state == {"x": 1, "y": 1}
        assert agent.runs.get("r").state == {"y": 1}
        assert dict(run.state) == {"y": 1}


def test_events_are_noted_once(store_url: str) -> None:
    agent = agent_at(store_url)

    def program(stop: bool) -> None:
        with agent.run("r") as run:
            run.event("A", 1)
            run.event("A", 2)
            run.event("B")
            if stop:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        program(stop=True)
    program(stop=False)
    names = [event.kind for event in agent.runs.get("r").events]
    assert names.count("Wrote") == 3


@pytest.mark.parametrize(("key", "error"), [("k" * 513, ValueTooLarge), (1, TypeError)])
def test_names_are_texts_of_bounded_length(store_url: str, key: Any, error: type[Exception]) -> None:
    agent = agent_at(store_url)
    with agent.run("r") as run, pytest.raises(error, match="a name"):
        run.state[key] = 1


def test_a_late_body_cannot_call_steps(store_url: str) -> None:
    agent, go, late, caught = agent_at(store_url), threading.Event(), threading.Event(), []

    @agent.step
    def inner() -> int:
        return 1

    def slow() -> None:
        go.wait()
        try:
            inner()
        except Abandoned as error:
            caught.append(error)
        late.set()

    with agent.run("r") as run:
        with pytest.raises(StepTimeout):
            run.step(slow, timeout=0.02)
        go.set()
        late.wait()
    assert len(caught) == 1


def test_a_result_that_cannot_be_stored_is_not_paid_for_again(store_url: str) -> None:
    agent, calls = agent_at(store_url), []

    @agent.step(retries=3, backoff=0)
    def work() -> object:
        calls.append(1)
        return object()

    with pytest.raises(NotStorable), agent.run("r"):
        work()
    assert len(calls) == 1


def test_a_timeout_is_tried_again(store_url: str) -> None:
    agent, calls, go = agent_at(store_url), [], threading.Event()

    @agent.step(retries=100, backoff=0, timeout=0.05)  # on a busy machine the second body may be late too
    def work() -> int:
        calls.append(1)
        if len(calls) == 1:
            go.wait()
        return len(calls)

    with agent.run("r"):
        assert work() == len(calls) > 1
    go.set()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_timeout_of_the_body_itself_is_not_taken_for_ours(store_url: str, asynchronous: bool) -> None:
    def plain() -> None:
        raise TimeoutError("mine")

    async def coroutine() -> None:
        raise TimeoutError("mine")

    async def program() -> None:
        async with AsyncAgent("tester", store=store_url).run("r") as run:
            await run.step(coroutine if asynchronous else plain, timeout=60)

    with pytest.raises(TimeoutError, match="mine") as caught:
        asyncio.run(program())
    assert type(caught.value) is TimeoutError


def test_an_effect_at_work_is_not_shown_as_in_doubt(store_url: str) -> None:
    agent, seen = agent_at(store_url), []
    with agent.run("r") as run:
        run.effect(lambda: seen.append(agent.runs.get("r").in_doubt), name="pay")
    assert seen == [[]]


def test_with_several_effects_in_doubt_the_answer_must_say_which(store_url: str, world: World) -> None:
    def program() -> list[str]:
        agent, begun = AsyncAgent("tester", store=store_url), list[str]()

        async def body(key: str) -> str:
            begun.append(key)
            while len(begun) < 2:  # neither ends before the other's intent is durable too
                await asyncio.sleep(0)
            return key

        async def both() -> list[str]:
            async with agent.run("r", wait=0) as run:
                calls = [run.effect(body, name=name, id=name, key=name) for name in ("a", "b")]
                return await asyncio.gather(*calls)

        return asyncio.run(both())

    kill_at(program, Site.EFFECT_OUTCOME, CommitMoment.BEFORE)
    agent = agent_at(store_url)
    doubts = {effect.name: effect.key for effect in agent.runs.get("r").in_doubt}
    assert set(doubts) == {"a", "b"}
    with pytest.raises(NothingToAnswer, match="several"):
        agent.runs.answer("r", done="x")
    for name, key in doubts.items():
        agent.runs.answer("r", done=f"{name} done", key=key)
    assert program() == ["a done", "b done"]


def test_a_write_that_was_refused_is_no_write(store_url: str) -> None:
    """Who catches that and writes another value has written once: the replay finds it."""

    def program() -> dict[str, Any]:
        agent = agent_at(store_url)
        with agent.run("r") as run:
            for value in (object(), "stored"):
                with suppress(NotStorable):
                    run.state["k"] = value
                with suppress(NotStorable):
                    run.messages.append({"role": "user", "content": value})
            run.step(lambda: 1, name="s")
        info = agent.runs.get("r")
        agent.close()
        return {"state": info.state, "messages": [item["content"] for item in info.messages]}

    assert program() == program() == {"state": {"k": "stored"}, "messages": ["stored"]}
