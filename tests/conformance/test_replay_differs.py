"""Replay never drops a difference: another value than recorded is refused, warned about, or recorded instead."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from perdure import Agent, AsyncAgent, Run
from perdure.errors import Diverged, ReplayDiffers, RunFinished

from .kit import agent_at, check_views

WRITES: dict[str, Callable[[Run, Any], None]] = {
    "message": lambda run, value: run.messages.append({"role": "user", "content": value}),
    "state": lambda run, value: run.state.set("city", value),
    "update": lambda run, value: run.state.update("city", lambda before: value),
    "checkpoint": lambda run, value: run.checkpoint("half", {"city": value}),
}
TELEMETRY: dict[str, Callable[[Run, Any], None]] = {
    "event": lambda run, value: run.event("CHOSE", {"city": value}),
    "progress": lambda run, value: run.progress(done=value),
    "usage": lambda run, value: run.usage(model="m", input_tokens=len(value), cost_usd=0),
}


class Left(Exception):
    """Ends a block, so that the run is resumed next time."""


def write(agent: Agent, what: Callable[[Run, Any], None], value: Any, *, leave: bool = False, **options: Any) -> None:
    try:
        with agent.run("r", **options) as run:
            what(run, value)
            if leave:
                raise Left
    except Left:
        pass


@pytest.mark.parametrize("finished", [False, True], ids=["resumed", "finished"])
@pytest.mark.parametrize("kind", WRITES)
def test_another_value_diverges(store_url: str, kind: str, finished: bool) -> None:
    agent = agent_at(store_url)
    write(agent, WRITES[kind], "NYC", leave=not finished)
    write(agent, WRITES[kind], "NYC", leave=not finished)
    with pytest.raises(Diverged, match=r"'LGA'.*test_replay_differs\.py:\d+.*'NYC'") as refused:
        write(agent, WRITES[kind], "LGA")
    for way in ("another run id", "agent.thread", "run.now()", 'on_change="rerun"'):
        assert way in refused.value.hint
    write(agent, WRITES[kind], "NYC")
    assert len(agent.runs.get("r").messages) == (kind == "message")
    assert len(agent.checkpoint.list()) == (kind == "checkpoint")
    check_views(agent)


@pytest.mark.parametrize("kind", TELEMETRY)
def test_other_telemetry_warns_once_and_the_recorded_value_stays(store_url: str, kind: str) -> None:
    agent = agent_at(store_url)
    write(agent, TELEMETRY[kind], "NYC", leave=True)
    with pytest.warns(ReplayDiffers, match=r"test_replay_differs\.py:\d+") as told:
        write(agent, TELEMETRY[kind], "Newark", leave=True)
    assert [one.filename for one in told if one.category is ReplayDiffers] == [__file__]
    strict = Agent("tester", store=store_url, strict=True)
    with pytest.raises(Diverged):
        write(strict, TELEMETRY[kind], "Newark")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write(agent, TELEMETRY[kind], "NYC")
    with pytest.raises(Diverged):
        write(agent, TELEMETRY[kind], "Newark")
    assert agent.usage().input_tokens == (3 if kind == "usage" else 0)
    assert len(list(agent.events.read())) == (kind != "usage")
    check_views(agent)


@pytest.mark.parametrize("kind", ["now", "random", "uuid"])
def test_a_finished_run_makes_no_new_time_or_random_value(store_url: str, kind: str) -> None:
    agent = agent_at(store_url)
    with agent.run("with") as run:
        recorded = getattr(run, kind)()
    with agent.run("without") as run:
        run.result = "done"
    with agent.run("with") as run:
        assert getattr(run, kind)() == recorded
        with pytest.raises(RunFinished):
            getattr(run, kind)()
    with agent.run("without") as run, pytest.raises(RunFinished):
        getattr(run, kind)()


def test_the_timeline_tells_of_a_difference(store_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    from perdure.cli.main import main

    agent = agent_at(store_url)
    write(agent, TELEMETRY["event"], "NYC", leave=True)
    with pytest.warns(ReplayDiffers):
        write(agent, TELEMETRY["event"], "LGA", leave=True)
    agent.close()
    assert main(["timeline", "r", "--store", store_url]) == 0
    assert "event CHOSE was reported otherwise" in capsys.readouterr().out


@pytest.mark.parametrize("kind", [*WRITES, "event"])
def test_rerun_records_the_new_value_from_there_on(store_url: str, kind: str) -> None:
    agent, what = agent_at(store_url), {**WRITES, **TELEMETRY}[kind]
    write(agent, what, "NYC", leave=True)
    write(agent, what, "LGA", leave=True, on_change="rerun")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write(agent, what, "LGA", leave=True)
        write(agent, what, "LGA")
    with pytest.raises(RunFinished):
        write(agent, what, "NYC", on_change="rerun")
    info = agent.runs.get("r")
    assert [one["content"] for one in info.messages] == (["LGA"] if kind == "message" else [])
    assert info.state == ({"city": "LGA"} if kind in ("state", "update") else {})
    check_views(agent)


def test_messages_are_one_sequence_and_state_goes_by_key(store_url: str) -> None:
    agent = agent_at(store_url)

    def program(order: str, messages: tuple[str, ...]) -> None:
        with agent.run("r") as run:
            for key in order:
                run.state[key] = key
            for message in messages:
                run.messages.append(message)
            raise Left

    for order, messages in (("ab", ("x", "y")), ("ba", ("x", "y"))):
        with pytest.raises(Left):
            program(order, messages)
    with pytest.raises(Diverged, match="message is 'y'"):
        program("ab", ("y", "x"))


def test_a_deleted_key_that_is_set_now_diverges(store_url: str) -> None:
    agent = agent_at(store_url)

    def program(last: Callable[[Run], Any]) -> None:
        with agent.run("r") as run:
            run.state["k"] = 1
            last(run)
            raise Left

    with pytest.raises(Left):
        program(lambda run: run.state.delete("k"))
    with pytest.raises(Diverged, match="recorded '<deleted>'"):
        program(lambda run: run.state.set("k", 2))


def test_values_are_compared_and_not_their_bytes(store_url: str) -> None:
    agent = agent_at(store_url)
    write(agent, WRITES["state"], {"a": 1, "b": "x" * 100_000}, leave=True)
    write(agent, WRITES["state"], {"b": "x" * 100_000, "a": 1})
    with pytest.raises(Diverged):
        write(agent, WRITES["state"], {"b": "x" * 100_000, "a": 2})


def test_the_last_result_of_a_finished_run_is_compared(store_url: str) -> None:
    agent = agent_at(store_url)

    def program(*results: Any, **options: Any) -> None:
        with agent.run("r", **options) as run:
            for result in results:
                run.result = result

    program("draft", "done")
    program("draft", "done")
    program("other draft", "done")
    with pytest.raises(Diverged, match=r"result is 'draft' at .*test_replay_differs.*'done'"):
        program("draft")
    with pytest.raises(RunFinished):
        program("draft", on_change="rerun")
    assert agent.runs.result("r") == "done"


def test_erased_payloads_are_not_compared(store_url: str) -> None:
    agent = agent_at(store_url)
    write(agent, lambda run, value: [WRITES["message"](run, "the secret word"), WRITES["message"](run, value)], "NYC")
    secret = agent.memory.remember("the secret word")
    assert agent.memory.forget(secret, everywhere=True).erased
    with agent.run("r") as run:
        run.messages.append({"role": "user", "content": "the secret word"})


def test_two_texts_under_one_run_are_refused(store_url: str) -> None:
    """The program that people write first: the second text was lost, and the first answer came again."""
    agent = agent_at(store_url)

    @agent.step
    def ask(messages: list[Any]) -> str:
        return f"re: {messages[-1]['content']}"

    def chat(text: str) -> Any:
        with agent.run("user-123") as run:
            run.messages.append({"role": "user", "content": text})
            run.result = ask(list(run.messages))
        return run.result if run.finished else agent.runs.result("user-123")

    assert chat("Book a flight") == "re: Book a flight"
    with pytest.raises(Diverged, match="Make it LaGuardia") as refused:
        chat("Make it LaGuardia")
    assert "agent.thread" in refused.value.hint


def test_now_random_and_uuid_are_recorded(store_url: str) -> None:
    agent = agent_at(store_url)
    seen: list[list[Any]] = []

    @agent.step
    def use(value: Any) -> Any:
        return value

    def program(leave: bool) -> None:
        with agent.run("r") as run:
            seen.append([run.now(), run.random(), run.uuid(), run.now(), run.random()])
            for item in run.each(["a", "b"]):
                seen[-1].append(use([item, run.random()]))
                if leave:
                    raise Left
            run.state["at"] = seen[-1][0]
            seen[-1].append(run.step(lambda: run.random(), name="inside"))

    with pytest.raises(Left):
        program(True)
    program(False)
    program(False)
    assert seen[0] == seen[1][:6]
    assert seen[1][:5] + seen[1][7:] == seen[2][:5] + seen[2][5:]
    assert seen[1][0].tzinfo is not None
    assert seen[1][2].version == 4
    assert 0 <= seen[1][1] < 1
    assert seen[1][1] != seen[1][4]
    check_views(agent)


def test_asyncio_compares_and_records_too(store_url: str) -> None:
    async def main() -> None:
        agent = AsyncAgent("travel", store=store_url)
        seen = []
        for _ in range(2):
            async with agent.run("r") as run:
                await run.state.set("large", "x" * 100_000)
                seen.append([await run.now(), await run.random(), await run.uuid()])
        assert seen[0] == seen[1]
        with pytest.raises(Diverged):
            async with agent.run("r") as run:
                await run.state.set("large", "y" * 100_000)
        await agent.close()

    asyncio.run(main())
