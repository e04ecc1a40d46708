"""os.fork(): connections, leases and threads of the parent are dead in the child, and say so."""

from __future__ import annotations

import os
import signal

import apsw
import pytest

from perdure import Agent
from tests.crash.harness import Stage

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
    agent = Agent("victim", store=f"sqlite:///{folder}/store.db")
    parent, child = agent.runs.get("parent"), agent.runs.get("child")
    agent.close()
    assert (parent.status, parent.result, parent.state) == ("finished", ["after", "before"], {"before": 1, "after": 2})
    assert (child.status, child.result) == ("finished", "made in the child")
    assert apsw.Connection(f"{folder}/store.db").execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.timeout(25)
def test_a_child_forked_in_the_middle_of_a_commit_does_not_keep_the_turn_of_its_dead_parent(stage: Stage) -> None:
    """flock belongs to the open file, which a child shares: it must give it up, or everybody waits for its end."""
    scene = stage.scene("forking:orphan")
    assert stage.zygote.run("tests.crash.forking:orphan", scene.folder) == KILLED
    orphan = int((scene.folder / "orphan").read_text())
    try:
        child = stage.zygote.start("tests.crash.players:newcomer", scene.folder)
        assert child.wait(10) == 0
    finally:
        os.kill(orphan, signal.SIGKILL)
