"""os.fork(): connections, leases and threads of the parent are dead in the child, and say so."""

from __future__ import annotations

import os
import signal

import apsw
import pytest

from perdure import Agent
from tests.crash.harness import Stage
from tests.crash.stores import FILE, store_of

KILLED = -9


@pytest.mark.parametrize("leaving", ["_exit", "exit"])
def test_the_parents_agent_is_refused_in_the_child_and_the_parent_goes_on(stage: Stage, leaving: str) -> None:
    scene = stage.scene("forking:family")
    folder = scene.folder
    assert stage.zygote.run("tests.crash.forking:family", folder, leaving=leaving) == 0
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


@pytest.mark.timeout(25)
def test_a_child_forked_in_the_middle_of_a_commit_does_not_keep_the_turn_of_its_dead_parent(stage: Stage) -> None:
    """A lock on an open file, and a connection with its transaction, live on in a child that shares them."""
    scene = stage.scene("forking:orphan")
    assert stage.zygote.run("tests.crash.forking:orphan", scene.folder) == KILLED
    orphan = int((scene.folder / "orphan").read_text())
    try:
        for run_id in ("another", "parent"):
            child = stage.zygote.start("tests.crash.players:intruder", scene.folder, run_id=run_id)
            assert child.wait(8) == 0, child.output()
    finally:
        os.kill(orphan, signal.SIGKILL)
