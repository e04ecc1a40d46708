"""A run waits for an answer in one process; whoever answers, or waits, is killed."""

from __future__ import annotations

import signal

import pytest

from perdure import Agent
from perdure.platform.failpoints import CommitMoment
from tests.crash.harness import Child, Scene, Stage, run_cases
from tests.crash.stores import store_of
from tests.crash.waiting import wait_for

KILLED = -9
WAITERS = 3
"""Each is killed while it waits; then one is left to hear the answer."""


def ask(stage: Stage) -> tuple[Scene, Child]:
    """A run that has died in the middle of an effect, and a process that waits to be told how that went."""
    scene = stage.scene("child_programs:asker")
    assert stage.fork_server.run("tests.crash.child_programs:asker", scene.folder, deadly=True) == KILLED
    return scene, wait_again(scene)


def wait_again(scene: Scene) -> Child:
    child = scene.fork_server.start("tests.crash.child_programs:asker", scene.folder)
    agent = Agent("victim", store=store_of(scene.folder))
    try:
        wait_for(lambda: waits(agent, child) or child.ended, "a question")
        assert not child.ended, child.output()
    finally:
        agent.close()
    return child


def waits(agent: Agent, child: Child) -> bool:
    [run] = agent.runs.list()
    return run.status == "waiting" and run.holder.startswith(f"process {child.pid} ")


def judge(scene: Scene, waiter: Child) -> list[str]:
    """It has heard the answer, and done nothing again."""
    assert waiter.wait() == 0, waiter.output()
    agent = Agent("victim", store=store_of(scene.folder))
    try:
        assert agent.runs.result("shared") == "a receipt"
    finally:
        agent.close()
    assert scene.world.effects() == {"booked": 1}
    return []


@pytest.mark.parametrize("moment", list(CommitMoment))
def test_killed_while_answering_a_question(stage: Stage, moment: CommitMoment) -> None:
    """Either the answer is there, and is heard although nobody lived to tell, or it is given again."""

    def case(_: int) -> list[str]:
        scene, waiter = ask(stage)
        env = {"PERDURE_FAILPOINT": f"run.answer:{moment}"}
        assert stage.fork_server.run("tests.crash.child_programs:answerer", scene.folder, env) == KILLED
        if moment is not CommitMoment.AFTER:
            assert stage.fork_server.run("tests.crash.child_programs:answerer", scene.folder) == 0
        return judge(scene, waiter)

    assert run_cases(case, range(3)) == []


def test_killed_while_waiting_for_an_answer(stage: Stage) -> None:
    """The question stays, and the next one who waits hears the answer."""
    scene, waiter = ask(stage)
    for _ in range(WAITERS):
        waiter.send(signal.SIGKILL)
        assert waiter.wait() == KILLED
        waiter = wait_again(scene)
    assert stage.fork_server.run("tests.crash.child_programs:answerer", scene.folder) == 0
    assert judge(scene, waiter) == []
