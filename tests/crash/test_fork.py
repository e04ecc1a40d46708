"""os.fork(): connections, leases and threads of the parent are dead in the child, and say so."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import apsw
import pytest

from perdure import Agent
from tests.crash.harness import Stage
from tests.crash.stores import FILE, store_of
from tests.crash.waiting import wait_for
from tests.unit import child as programs

KILLED = -9


@pytest.mark.parametrize("leaving", ["_exit", "exit"])
def test_the_parents_agent_is_refused_in_the_child_and_the_parent_goes_on(stage: Stage, leaving: str) -> None:
    scene = stage.scene("forking_programs:family")
    folder = scene.folder
    assert stage.fork_server.run("tests.crash.forking_programs:family", folder, leaving=leaving) == 0
    lines = scene.world.lines()
    refused = {line[1] for line in lines if line[0] == "refused"}
    assert refused == {"step", "write", "event", "effect", "read", "run", "answer"}
    assert ["child", "0"] in lines
    assert scene.world.effects() == {"booked": 1}
    agent = Agent("victim", store=store_of(folder))
    parent, child = agent.runs.get("parent"), agent.runs.get("child")
    agent.close()
    assert (parent.status, parent.result, parent.state) == ("finished", ["after", "before"], {"before": 1, "after": 2})
    assert (child.status, child.result) == ("finished", "made in the child")
    if stage.kind == "sqlite":
        assert apsw.Connection(f"{folder}/{FILE}").execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_child_forked_in_the_middle_of_a_commit_does_not_keep_the_turn_of_its_dead_parent(stage: Stage) -> None:
    """A lock on an open file, and a connection with its transaction, live on in a child that shares them."""
    scene = stage.scene("forking_programs:orphan")
    assert stage.fork_server.run("tests.crash.forking_programs:orphan", scene.folder) == KILLED
    orphan = int((scene.folder / "orphan").read_text())
    try:
        for run_id in ("another", "parent"):
            child = stage.fork_server.start("tests.crash.child_programs:intruder", scene.folder, run_id=run_id)
            assert child.wait() == 0, child.output()
    finally:
        os.kill(orphan, signal.SIGKILL)


FIRST_USE = """
import sys
before = set(sys.modules)
from perdure import Agent
agent = Agent("first", store=sys.argv[1])
with agent.run("r") as run:
    run.step(lambda: 1, name="s")
agent.close()
print(*(name for name in set(sys.modules) - before if name.startswith("encodings.")))
"""


@pytest.mark.stores("sqlite")
def test_no_codec_is_looked_for_while_a_store_is_opened(store_url: str) -> None:
    """Forked while a thread imports one, a child that wants it too would wait for that thread for ever."""
    ended = programs.run(FIRST_USE, store_url)
    assert (ended.returncode, ended.stdout.split()) == (0, []), ended.stderr


def test_what_a_child_commits_outlives_its_parent(stage: Stage) -> None:
    """SQLite in the child believes that it holds the parent's locks: the parent would take the log from under it."""
    scene = stage.scene("forking_programs:outlived")
    assert stage.fork_server.run("tests.crash.forking_programs:outlived", scene.folder) == KILLED
    wait_for(lambda: ["acknowledged", "second"] in scene.world.lines(), "the child")
    assert read_state(scene.folder) == {"parent": 1, "first": 1, "second": 2}


@pytest.mark.stores("sqlite")
def test_a_child_forked_in_the_middle_of_a_commit_may_not_touch_the_file(stage: Stage) -> None:
    scene = stage.scene("forking_programs:torn")
    assert stage.fork_server.run("tests.crash.forking_programs:torn", scene.folder) == 0
    assert ["child", "refused"] in scene.world.lines()
    assert read_state(scene.folder) == {"before": 1, "forked": "whole", "after": 2}


@pytest.mark.stores("sqlite")
def test_children_are_born_whole_whatever_other_threads_do(stage: Stage) -> None:
    """Forked while a thread is inside SQLite, a child would hang for ever in one of its mutexes."""
    scene, children = stage.scene("forking_programs:nursery"), 60
    assert stage.fork_server.run("tests.crash.forking_programs:nursery", scene.folder, children=children) == 0
    [[_, *statuses]] = [line for line in scene.world.lines() if line[0] == "statuses"]
    assert statuses == ["0"] * children
    assert read_state(scene.folder) == {"born": children}


@pytest.mark.stores("sqlite")
def test_a_child_is_born_whole_while_another_thread_holds_every_lock(stage: Stage) -> None:
    """A hook that takes a lock before the locks are free hangs the child inside os.fork()."""
    scene = stage.scene("forking_programs:locked")
    assert stage.fork_server.run("tests.crash.forking_programs:locked", scene.folder) == 0
    assert ["statuses", "0"] in scene.world.lines()
    assert read_state(scene.folder) == {"parent": 1, "born": 1}


def read_state(folder: Path) -> dict[str, object]:
    """The state that a new process finds."""
    agent = Agent("victim", store=store_of(folder))
    try:
        return dict(agent.state.items("a"))
    finally:
        agent.close()
