"""A paid call is never paid again because of its result: a step whose result cannot be stored stays failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from perdure import AsyncAgent
from perdure import records as r
from perdure.errors import NothingToRetry, NotStorable, RunBusy, ValueTooLarge
from perdure.journal import objects
from perdure.journal.lineage import events_of
from perdure.values import limits

from .kit import agent_at, check_views
from .test_tasks import rows, work_off


@dataclass
class Reply:
    text: str
    client: Any


def _reply() -> Reply:
    return Reply("costly", object())


@pytest.mark.parametrize(
    ("make", "error"),
    [(_reply, NotStorable), (lambda: "x" * (limits.VALUE_BYTES_MAX + 1), ValueTooLarge)],
    ids=["not storable", "too large"],
)
def test_every_resume_raises_the_same_error_and_nothing_is_paid_again(store_url: str, make: Any, error: Any) -> None:
    agent, calls = agent_at(store_url), []

    @agent.step(retries=3)
    def ask() -> Any:
        calls.append(1)
        return make()

    told = []
    for _ in range(3):
        with pytest.raises(error) as caught, agent.run("r"):
            ask()
        told.append(str(caught.value))
    assert calls == [1]
    assert len(set(told)) == 1
    assert told[0].startswith("ask()")


def test_it_stays_failed_when_the_program_catches_it_and_goes_on(store_url: str) -> None:
    agent, calls = agent_at(store_url), []

    @agent.step
    def ask(n: int) -> Any:
        calls.append(n)
        return object() if n == 1 else n

    for _ in range(2):
        with agent.run("r") as run:
            with pytest.raises(NotStorable):
                ask(1)
            with pytest.raises(NotStorable):
                ask.options(id="one")(1)
            with pytest.raises(NotStorable):
                ask.options(id="one")(1)
            ask(2)
            run.result = 3
    assert calls == [1, 1, 2]


def test_it_runs_again_after_a_retry(store_url: str) -> None:
    agent, calls = agent_at(store_url), []
    results = [object(), object(), "text"]

    @agent.step
    def ask() -> Any:
        calls.append(1)
        return results[len(calls) - 1]

    def attempt() -> Any:
        with agent.run("r") as run:
            run.result = ask()
        return run.result

    for _ in range(2):
        with pytest.raises(NotStorable):
            attempt()
    agent.runs.retry("r", by="ann")
    for _ in range(2):
        with pytest.raises(NotStorable):
            attempt()
    assert len(calls) == 2
    agent.runs.retry("r", by="ann")
    with pytest.raises(NothingToRetry):
        agent.runs.retry("r")
    assert attempt() == "text"
    assert attempt() == "text"
    assert len(calls) == 3
    with pytest.raises(NothingToRetry):
        agent.runs.retry("r")


def test_a_retry_of_an_open_run_is_refused(store_url: str) -> None:
    agent = agent_at(store_url)

    @agent.step
    def ask() -> Any:
        return object()

    with pytest.raises(NotStorable), agent.run("r"):
        ask()
    with pytest.raises(NotStorable), agent.run("r"):
        with pytest.raises(RunBusy):
            agent.runs.retry("r")
        ask()


@pytest.mark.parametrize("explicit", [False, True])
def test_it_runs_again_with_another_version(store_url: str, explicit: bool) -> None:
    agent, calls = agent_at(store_url), []

    def declared(version: int, result: Any) -> Any:
        @agent.step(name="ask", version=version)
        def ask() -> Any:
            calls.append(version)
            return result

        return ask.options(id="one") if explicit else ask

    for version, result in ((1, object()), (1, object()), (2, object()), (2, "text"), (3, "text"), (3, "text")):
        try:
            with agent.run("r") as run:
                run.state["got"] = declared(version, result)()
                raise KeyboardInterrupt  # it is not finished
        except (NotStorable, KeyboardInterrupt):
            pass
    assert calls == [1, 2, 3]


def test_it_runs_again_on_every_resume_if_it_says_so(store_url: str) -> None:
    agent, calls = agent_at(store_url), []

    @agent.step(retry_unstorable=True)
    def ask() -> Any:
        calls.append(1)
        return object() if len(calls) < 3 else "text"

    for _ in range(2):
        with pytest.raises(NotStorable), agent.run("r"):
            ask()
    with agent.run("r") as run:
        run.result = ask()
    assert run.result == "text"
    assert len(calls) == 3


async def test_an_async_step_stays_failed_too(store_url: str) -> None:
    agent, calls = AsyncAgent("tester", store=store_url), []

    @agent.step
    async def ask() -> Any:
        calls.append(1)
        return object()

    for _ in range(2):
        with pytest.raises(NotStorable):
            async with agent.run("r"):
                await ask()
    await agent.runs.retry("r")
    with pytest.raises(NotStorable):
        async with agent.run("r"):
            await ask()
    assert len(calls) == 2


def test_what_could_be_kept_of_the_result_is_recorded(store_url: str) -> None:
    agent = agent_at(store_url)

    @agent.step
    def ask() -> Any:
        return {"reply": _reply(), "n": [1, object()]}

    with pytest.raises(NotStorable), agent.run("r"):
        ask()
    store = agent._engine.store
    [(stream, *_)] = store.read("get_run", ("tester", "r"))
    entries = events_of(store, stream, fork=False)
    [failed] = [entry.record for entry in entries if isinstance(entry.record, r.StepFailedEntry)]
    kept = objects.unpack(store, failed.result)
    assert kept["data"]["reply"]["text"] == "costly"
    assert kept["data"]["n"][0] == 1
    assert "<object object at" in kept["data"]["n"][1]
    assert len(kept["repr"]) < 10_000


def test_a_dead_task_runs_again_after_a_retry(store_url: str) -> None:
    agent, calls = agent_at(store_url), []

    @agent.step
    def ask() -> Any:
        calls.append(1)
        return object() if len(calls) == 1 else "text"

    @agent.task(retries=1, backoff=0)
    def job() -> Any:
        return ask()

    job.start("j")
    work_off(agent)
    assert rows(agent) == {"j": "dead"}
    assert len(calls) == 1
    agent.runs.retry("j")
    work_off(agent)
    assert job.result("j") == "text"
    assert len(calls) == 2
    check_views(agent)
