"""Wrong arguments and a wrong environment raise a PerdureError that says what to do, of the type that Python has."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, AsyncAgent, PerdureError, RunWaiting
from perdure.cli.main import main

from .kit import agent_at, check_views

CALLS: dict[str, Callable[[Agent], Any]] = {
    "retries of a step": lambda agent: agent.step(retries="3"),  # type: ignore[call-overload]
    "retries of an effect": lambda agent: agent.effect(retries="3"),  # type: ignore[call-overload]
    "retries of a task": lambda agent: agent.task(retries="3"),  # type: ignore[call-overload]
    "backoff": lambda agent: agent.step(backoff="1s"),  # type: ignore[call-overload]
    "timeout": lambda agent: agent.step(timeout="1s"),  # type: ignore[call-overload]
    "version": lambda agent: agent.step(version="2"),  # type: ignore[call-overload]
    "wait": lambda agent: agent.run("r", wait="5"),  # type: ignore[arg-type]
    "wait of a turn": lambda agent: agent.thread("t").turn("hello", wait="5"),  # type: ignore[arg-type]
    "wait of a message": lambda agent: agent.turn(print)("t", "hello", wait=None),  # type: ignore[arg-type]
    "if_version of set": lambda agent: agent.state.set("ns", "k", 1, if_version="x"),  # type: ignore[arg-type]
    "if_version of delete": lambda agent: agent.state.delete("ns", "k", if_version="x"),  # type: ignore[arg-type]
    "raises": lambda agent: agent.step(raises="ConnectionError"),  # type: ignore[call-overload]
    "not_done": lambda agent: agent.effect(not_done=[5]),  # type: ignore[call-overload]
    "ignore": lambda agent: agent.step(ignore=5)(print),  # type: ignore[call-overload]
    "fn of update": lambda agent: agent.state.update("ns", "k", 5),  # type: ignore[arg-type]
    "reducer": lambda agent: agent.events.replay("total", "SOLD"),  # type: ignore[arg-type]
    "version of a checkpoint": lambda agent: agent.checkpoint.restore("c", "1"),  # type: ignore[arg-type]
    "version of a workflow": lambda agent: agent.workflows.get("plan", version="1").steps,  # type: ignore[arg-type]
    "handlers": lambda agent: agent.workflows.create("plan", ["a"]).resume(print),  # type: ignore[arg-type]
    "limit of a list": lambda agent: agent.runs.list(limit="3"),  # type: ignore[arg-type]
    "id of a thread": lambda agent: agent.threads.delete(5),  # type: ignore[arg-type]
    "id of a run": lambda agent: agent.run(5),  # type: ignore[arg-type]
    "folder of a workspace": lambda agent: agent.workspace(5),  # type: ignore[arg-type]
    "kind of events": lambda agent: agent.events.read(kind=5),  # type: ignore[arg-type]
    "time of a state": lambda agent: agent.state.at("x"),  # type: ignore[arg-type]
    "time of a revert": lambda agent: agent.state.revert("x"),  # type: ignore[arg-type]
    "id of a task's run": lambda agent: agent.task(lambda order: order).start(7),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_wrong_type_is_refused_at_the_call(store_url: str, call: Callable[[Agent], Any]) -> None:
    with pytest.raises(TypeError, match="must be") as caught:
        call(agent_at(store_url))
    assert isinstance(caught.value, PerdureError)


IN_A_RUN: dict[str, Callable[[Any], Any]] = {
    "items=5: int cannot be looped over .for a number of times": lambda run: list(run.each(5)),
    "7 is not a function": lambda run: run.step(7),
    "8 is not a function": lambda run: run.map(8, [1]),
    "max_workers='2' must be an int": lambda run: run.executor(max_workers="2"),
    "max_concurrency='2' must be an int": lambda run: run.map(print, [1], max_concurrency="2"),
    "the name of a loop must be a str, not 5": lambda run: list(run.each([1], name=5)),
    "the id of a call must be a str, not 5": lambda run: run.step(str, id=5),
    "event's name must be a str": lambda run: run.wait_event(["a"]),
}


@pytest.mark.parametrize("told", IN_A_RUN)
def test_a_wrong_type_in_a_run_is_refused_and_the_run_goes_on(file_url: str, told: str) -> None:
    with agent_at(file_url).run("r") as run:
        with pytest.raises(TypeError, match=told) as caught:
            IN_A_RUN[told](run)
        assert isinstance(caught.value, PerdureError)
        run.result = "went on"


def test_an_export_into_a_missing_folder_says_which_and_what_to_do(file_url: str, tmp_path: Path) -> None:
    agent = agent_at(file_url)
    agent.state.set("ns", "k", 1)
    with pytest.raises(FileNotFoundError, match="nowhere") as caught:
        agent.export(tmp_path / "nowhere" / "x.perdure")
    assert isinstance(caught.value, PerdureError) and "create the folder" in caught.value.hint


def test_what_a_dict_has_and_the_state_of_a_run_has_not_is_refused_with_a_hint(file_url: str) -> None:
    with agent_at(file_url).run("r") as run:
        for call in (lambda: run.state.update(), lambda: run.state.update(key=1), lambda: run.state.update("k", k=1)):
            with pytest.raises(TypeError, match="a key and a function") as caught:
                call()  # type: ignore[no-untyped-call]
            assert isinstance(caught.value, PerdureError)
        with pytest.raises(AttributeError, match="del run.state"):
            run.state.pop("k")  # type: ignore[attr-defined]


def test_the_state_of_a_run_takes_keywords_and_defaults(store_url: str) -> None:
    agent = agent_at(store_url)
    for _ in range(2):  # the second time it is replayed
        with agent.run("r") as run:
            run.state.update(city="NYC", nights=3)
            run.state.update({"city": "LGA"}, seats=1)
            assert run.state.setdefault("city", "Newark") == "LGA" and run.state.setdefault("pets") is None
    assert agent.runs.get("r").state == {"city": "LGA", "nights": 3, "seats": 1, "pets": None}


WRITTEN: dict[str, Callable[[Agent, Any], Any]] = {
    "send_event": lambda agent, by: agent.send_event("asks", "go", by=by),
    "answer": lambda agent, by: agent.runs.answer("asks", "yes", by=by),
    "pause": lambda agent, by: agent.runs.pause("asks", by=by),
    "cancel": lambda agent, reason: agent.runs.cancel("asks", reason),
    "retry": lambda agent, by: agent.runs.retry("asks", by=by),
    "undo": lambda agent, by: agent.runs.undo("asks", by=by),
    "forget": lambda agent, by: agent.memory.forget(about="ann/seat", by=by),
    "forget for a reason": lambda agent, reason: agent.memory.forget(about="ann/seat", reason=reason),
    "rollback": lambda agent, reason: agent.memory.rollback(source="chat", reason=reason),
    "retire": lambda agent, reason: agent.retire(reason),
}


@pytest.mark.parametrize("call", WRITTEN.values(), ids=WRITTEN)
def test_what_could_not_be_read_again_is_not_written(store_url: str, call: Callable[[Agent, Any], Any]) -> None:
    """A number in the place of a name once made an entry that no process could read, and a store that none opened."""
    agent = agent_at(store_url)
    agent.memory.remember("Ann wants an aisle seat", about="ann/seat", source="chat")
    with pytest.raises(RunWaiting), agent.run("asks", wait=0) as run:
        run.step(str)
        run.ask("Go on?")
    for wrong in (5, 2.5, b"x", "\ud800"):
        with pytest.raises(PerdureError, match="must"):
            call(agent, wrong)
    check_views(agent)
    assert agent.runs.get("asks").status == "waiting"


def test_a_question_that_could_not_be_stored_is_refused(store_url: str) -> None:
    with agent_at(store_url).run("r") as run, pytest.raises(PerdureError, match="lone surrogates"):
        run.ask("\ud800?")


def test_the_other_kind_of_with_says_which_one_it_needs(file_url: str) -> None:
    async def mistaken() -> None:
        async with agent_at(file_url).run("r"):  # type: ignore[misc]
            pass

    with pytest.raises(TypeError, match=r"Run needs `with` \(or take AsyncAgent"):
        asyncio.run(mistaken())
    with pytest.raises(TypeError, match="AsyncRun needs `async with`"), AsyncAgent("a", store=file_url).run("r"):
        pass


def test_messages_are_added_by_extend(file_url: str) -> None:
    with agent_at(file_url).run("r") as run, pytest.raises(TypeError, match=r"run\.messages\.extend"):
        run.messages += ["hello"]


def test_an_argument_that_cannot_be_stored_can_be_left_out(file_url: str) -> None:
    agent = agent_at(file_url)
    with agent.run("r"), pytest.raises(TypeError, match=r"client: .* \(exclude the parameter with ignore=.*; or"):
        agent.step(lambda client: 1, name="ask")(object())


def test_one_exception_type_needs_no_tuple(store_url: str) -> None:
    agent = agent_at(store_url)
    tried: list[int] = []

    @agent.effect(not_done=ConnectionError, retries=1, backoff=0)
    def pay() -> str:
        tried.append(1)
        if len(tried) == 1:
            raise ConnectionError
        return "paid"

    with agent.run("r"):
        assert pay() == "paid"


def test_a_transaction_refuses_a_version_that_is_none(store_url: str) -> None:
    agent = agent_at(store_url)
    with pytest.raises(PerdureError, match="if_version='x' must be an int"), agent.state.transaction() as change:
        change.set("ns", "a", 1)
        change.delete("ns", "k", if_version="x")  # type: ignore[arg-type]
    assert agent.state.get("ns", "a") is None


@pytest.mark.parametrize("option", [{"retries": -1}, {"backoff": -1}, {"timeout": 0}, {"version": 0}])
def test_a_wrong_value_is_refused_at_the_call(file_url: str, option: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be") as caught:
        agent_at(file_url).step(**option)
    assert isinstance(caught.value, PerdureError)


def test_a_workspace_that_cannot_be_written_says_so(store_url: str, tmp_path: Path) -> None:
    agent = agent_at(store_url)
    with pytest.raises(PerdureError, match="cannot be written: .*agent.workspace") as caught:
        agent.workspace("/proc/no-workspace")
    assert isinstance(caught.value, OSError)
    with agent.run("r") as run:
        run.progress(done="goes on without files")
    assert agent.workspace(tmp_path / "home").progress()[0].done == ("goes on without files",)


WITHOUT = """
import sys
sys.modules[{package!r}] = None
from perdure import PerdureError
try:
    from perdure.adapters.{module} import {name}
except ImportError as error:
    assert isinstance(error, PerdureError), error
    print(error)
"""


@pytest.mark.parametrize(
    ("package", "module", "name", "install"),
    [
        ("langgraph", "langgraph", "PerdureSaver", 'pip install "perdure[langgraph]"'),
        ("langchain", "langgraph", "DurableTools", "pip install langchain"),
        ("qdrant_client", "qdrant", "QdrantVectors", 'pip install "perdure[qdrant]"'),
    ],
)
def test_a_missing_extra_says_what_to_install(package: str, module: str, name: str, install: str) -> None:
    code = WITHOUT.format(package=package, module=module, name=name)
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert install in told.stdout


@pytest.mark.parametrize("broken", ["half", "header", "text", "empty"])
def test_doctor_tells_how_to_mend_a_broken_file(
    tmp_path: Path, broken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "perdure.db"
    with Agent("a", store=path) as agent, agent.run("r") as run:
        run.state["k"] = "v" * 10_000
    raw = path.read_bytes()
    path.write_bytes({"half": raw[: len(raw) // 2], "header": raw[:16] + os.urandom(84) + raw[100:]}.get(broken, b""))
    if broken == "text":
        path.write_text("no database\n" * 100)
    assert main(["doctor", "--store", str(path)]) == 1
    told = capsys.readouterr()
    assert "backup" in told.out and "perdure doctor" not in told.out and "Traceback" not in told.err
