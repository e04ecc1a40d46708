"""A run waits for an answer in one process; whoever answers, or waits, is killed."""

from __future__ import annotations

import signal

import pytest

from perdure import Agent
from perdure.failpoints import Moment
from tests.crash.harness import Child, Scene, Stage, every, in_parallel
from tests.crash.stores import store_of

KILLED = -9
WAITERS = 3
"""Each is killed while it waits; then one is left to hear the answer."""


def ask(stage: Stage) -> tuple[Scene, Child]:
    """A run that has died in the middle of an effect, and a process that waits to be told how that went."""
    scene = stage.scene("players:asker")
    assert stage.zygote.run("tests.crash.players:asker", scene.folder, deadly=True) == KILLED
    return scene, wait_again(scene)


def wait_again(scene: Scene) -> Child:
    child = scene.zygote.start("tests.crash.players:asker", scene.folder)
    agent = Agent("victim", store=store_of(scene.folder))
    try:
        for _ in every(0.01, 1000):
            [run] = agent.runs.list()
            if run.status == "waiting" and run.holder.startswith(f"process {child.pid} "):
                break
        else:
            raise AssertionError(f"it does not wait:\n{child.output()}")
    finally:
        agent.close()
    return child


def judge(scene: Scene, waiter: Child) -> list[str]:
    """It has heard the answer, and done nothing again."""
    assert waiter.wait(15) == 0, waiter.output()
    agent = Agent("victim", store=store_of(scene.folder))
    try:
        assert agent.runs.result("shared") == "a receipt"
    finally:
        agent.close()
    assert scene.world.effects() == {"booked": 1}
    return []


@pytest.mark.parametrize("moment", list(Moment))
def test_who_answers_is_killed(stage: Stage, moment: Moment) -> None:
    """Either the answer is there, and is heard although nobody lived to tell, or it is given again."""

    def case(_: int) -> list[str]:
        scene, waiter = ask(stage)
        env = {"PERDURE_FAILPOINT": f"run.answer:{moment}"}
        assert stage.zygote.run("tests.crash.players:answerer", scene.folder, env) == KILLED
        if moment is not Moment.AFTER:
            assert stage.zygote.run("tests.crash.players:answerer", scene.folder) == 0
        return judge(scene, waiter)

    assert in_parallel(case, range(3)) == []


def test_who_waits_is_killed(stage: Stage) -> None:
    """The question stays, and the next one who waits hears the answer."""
    scene, waiter = ask(stage)
    for _ in range(WAITERS):
        waiter.send(signal.SIGKILL)
        assert waiter.wait() == KILLED
        waiter = wait_again(scene)
    assert stage.zygote.run("tests.crash.players:answerer", scene.folder) == 0
    assert judge(scene, waiter) == []
