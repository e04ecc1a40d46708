"""Runs that wait for a run of another agent, when one of the two agents moves."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, RunWaiting
from perdure.errors import AgentMoved, RunNotFound
from perdure.work.tasks.definition import tasks_of

from .kit import agent_at
from .test_tasks import run_worker, wait_until
from .test_transfer import sound
from .test_transfer_archives import run_command


def pair(store_url: str) -> tuple[Agent, Agent]:
    """Two agents, of which one waits for the other's runs."""
    parent, child = Agent("parent", store=store_url), Agent("child", store=store_url)

    @child.task
    def chapter(number: int) -> str:
        return f"chapter {number}"

    @parent.task
    def book(title: str) -> str:
        return f"{title}: {chapter.start('ch-1', 1).result()}"

    return parent, child


def test_a_parked_run_waits_for_an_agent_left_behind(
    store_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = f"sqlite:///{tmp_path / 'there.db'}"
    parent, child = pair(store_url)
    tasks_of(parent._engine)["book"].start("b", "Walden")
    with run_worker(parent):
        wait_until(lambda: parent._engine.store.read("all_task_waits"))
    out = run_command(capsys, "export", "parent", str(tmp_path / "p"), "--move", "--store", store_url)
    [note] = out["notes"]
    assert "run 'b' waits for run 'ch-1' of agent 'child'" in note
    assert run_command(capsys, "import", str(tmp_path / "p"), "--check")["notes"] == [note]
    assert run_command(capsys, "import", str(tmp_path / "p"), "--store", there)["notes"] == [note]

    parent, _ = pair(there)
    assert [row[8] for row in parent._engine.store.read("all_tasks")] == [0], "it is ready: somebody looks"
    with run_worker(parent):
        wait_until(lambda: parent.runs.get("b").status == "failed")
    assert "'ch-1' of agent 'child' is not in this store: agent 'parent' was imported" in parent.runs.get("b").error
    sound(there)

    child.export(tmp_path / "c", move=True)
    moved = Agent.import_from(tmp_path / "c", store=there)
    moved.close()
    parent, child = pair(there)
    parent.runs.retry("b")
    with run_worker(parent), run_worker(child):
        assert tasks_of(parent._engine)["book"].result("b", timeout="30s") == "Walden: chapter 1"
    sound(there)


def test_a_parent_that_moves_after_its_child_waits_on_for_it(store_url: str, tmp_path: Path) -> None:
    there = f"sqlite:///{tmp_path / 'there.db'}"
    parent, child = pair(store_url)
    tasks_of(parent._engine)["book"].start("b", "Walden")
    with run_worker(parent):
        wait_until(lambda: parent._engine.store.read("all_task_waits"))
    child.export(tmp_path / "c", move=True)
    Agent.import_from(tmp_path / "c", store=there).close()
    parent.export(tmp_path / "p", move=True)
    Agent.import_from(tmp_path / "p", store=there).close()
    parent, child = pair(there)
    assert [item.parked for item in parent.queues.list()] == [1]
    sound(there)
    with run_worker(parent), run_worker(child):
        assert tasks_of(parent._engine)["book"].result("b", timeout="30s") == "Walden: chapter 1"
    sound(there)


def test_in_a_with_block_it_is_the_same(file_url: str, tmp_path: Path) -> None:
    parent, child = pair(file_url)
    tasks_of(child._engine)["chapter"].start("ch-1", 1)
    with contextlib.suppress(RunWaiting), parent.run("b", wait=0):
        tasks_of(child._engine)["chapter"].result("ch-1")
    assert len(parent.export(tmp_path / "p", move=True).notes) == 1
    Agent.import_from(tmp_path / "p", store=tmp_path / "there.db").close()
    parent, child = pair(f"sqlite:///{tmp_path / 'there.db'}")
    with pytest.raises(RunNotFound, match="was imported into this store") as caught, parent.run("b"):
        tasks_of(child._engine)["chapter"].result("ch-1")
    assert "import agent 'child' here too" in str(caught.value.hint)


def test_a_parent_that_stays_is_told_that_its_child_moved(file_url: str, tmp_path: Path) -> None:
    parent, child = pair(file_url)
    tasks_of(child._engine)["chapter"].start("ch-1", 1)
    with contextlib.suppress(RunWaiting), parent.run("b", wait=0):
        tasks_of(child._engine)["chapter"].result("ch-1")
    [note] = child.export(tmp_path / "c", move=True).notes
    assert "run 'b' of agent 'parent' stays, and waits for run 'ch-1' of 'child'" in note
    with pytest.raises(AgentMoved), parent.run("b"):
        tasks_of(child._engine)["chapter"].result("ch-1")
    with pytest.raises(AgentMoved):
        tasks_of(child._engine)["chapter"].result("ch-1", timeout="30s")


def test_a_wait_for_ones_own_run_is_known_under_another_name(store_url: str, tmp_path: Path) -> None:
    agent = agent_at(store_url)

    def program(whose: Agent) -> Any:
        @whose.task
        def part() -> str:
            return "done"

        with whose.run("whole") as run:
            part.start("p")
            with run_worker(whose) if not run.finished else contextlib.nullcontext():
                run.result = part.result("p")
            return run.result

    assert program(agent) == "done"
    agent.export(tmp_path / "x.perdure")
    child = Agent.import_from(tmp_path / "x.perdure", store=store_url, name="another")
    assert program(child) == "done", "replayed: nothing new is waited for"


def test_a_step_that_somebody_was_at_is_free_where_it_arrives(store_url: str, tmp_path: Path) -> None:
    agent = Agent("agent", store=store_url)
    flow = agent.workflows.create("plan", ["search", "book"])
    flow.start(1)
    agent.export(tmp_path / "x.perdure")
    child = Agent.import_from(tmp_path / "x.perdure", store=store_url, name="another")
    [step, _] = child.workflows.get("plan").steps
    assert (step.status, step.claimed_by, step.by, step.ours) == ("in_progress", "", "another", False)
    done = child.workflows.get("plan").resume({"search": lambda: "found", "book": lambda: "booked"}, wait=0)
    assert done == {1: "found", 2: "booked"}
    assert agent.workflows.get("plan").steps[0].ours
    sound(store_url)
