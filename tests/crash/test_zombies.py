"""A process that is stopped past its lease and wakes up when another has its run: it must do nothing more."""

from __future__ import annotations

import signal

import pytest

from tests.crash.harness import Child, Scene, Stage, every
from tests.crash.players import BUSY, LEASE_SECONDS, LOST

ELSEWHERE = "pid:[another]"
"""The zombie's pid namespace: nobody else can look whether it is alive."""

KILLED = -9


def start_zombie(scene: Scene, place: str, **options: object) -> Child:
    """Start it and wait until it has stopped itself."""
    child = scene.zygote.start("tests.crash.players:zombie", scene.folder, place=place, **options)
    for _ in every(0.005, 2000):
        if (scene.folder / "stopped").exists():
            break
        assert not child.ended, child.output()
    return child


def take_over(scene: Scene, *, patient: bool = True) -> int:
    return scene.zygote.run("tests.crash.players:successor", scene.folder, patient=patient)


PLACES = (
    "between",
    "in step",
    "in effect",
    "before end",
    "step.done:before",
    "effect.intent:before",
    "effect.intent:after",
    "effect.outcome:before",
    "run.write:after",
    "run.end:before",
)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("pause", [0.0, LEASE_SECONDS], ids=["wakes-at-once", "heart-beats-first"])
def test_a_zombie_commits_nothing_and_starts_no_effect(stage: Stage, colour: str, place: str, pause: float) -> None:
    if pause and ":" not in place:
        pytest.skip("this place is the victim's own, without a hook to wait in")
    scene = stage.scene("players:zombie", colour)
    child = start_zombie(scene, place, colour=colour, namespace=ELSEWHERE, pause=pause)
    assert take_over(scene, patient=False) == BUSY, "a stopped process is alive until its lease runs out"
    assert take_over(scene) == 0
    child.send(signal.SIGCONT)
    assert child.wait() == LOST, child.output()
    assert scene.world.effects() == {"booked": 1}, "the zombie acted"
    assert writer_of(scene) != child.pid


def writer_of(scene: Scene) -> int:
    """Whose result the run has."""
    scene.zygote.run("tests.crash.players:statuses", scene.folder)
    from perdure import Agent

    agent = Agent("victim", store=f"sqlite:///{scene.folder}/store.db")
    try:
        return int(agent.runs.result("shared"))
    finally:
        agent.close()


def test_a_stopped_process_in_sight_is_alive_until_its_lease_runs_out(stage: Stage) -> None:
    scene = stage.scene("players:zombie")
    child = start_zombie(scene, "between")
    assert take_over(scene, patient=False) == BUSY
    assert take_over(scene) == 0
    child.send(signal.SIGCONT)
    assert child.wait() == LOST, child.output()


def test_a_killed_process_in_sight_is_taken_over_at_once(stage: Stage) -> None:
    """No lease to wait for: the first try has the run."""
    for _ in range(5):
        scene = stage.scene("players:zombie")
        child = start_zombie(scene, "between")
        child.send(signal.SIGKILL)
        assert child.wait() == KILLED
        assert take_over(scene, patient=False) == 0


def test_a_process_that_slept_without_a_run_is_a_holder_again(stage: Stage) -> None:
    """Its row was cleared away meanwhile; the run that it opens now must be as safe as any other."""
    scene = stage.scene("players:sleeper")
    run = lambda name, **given: stage.zygote.run(f"tests.crash.players:{name}", scene.folder, **given)  # noqa: E731
    run("newcomer")  # makes the agent, so that the sleeper holds nothing
    sleeper = stage.zygote.start("tests.crash.players:sleeper", scene.folder)
    for _ in every(LEASE_SECONDS, 40):
        if (scene.folder / "stopped").exists():
            break
    for _ in every(LEASE_SECONDS, 2):
        pass
    run("newcomer")
    sleeper.send(signal.SIGCONT)
    for _ in every(0.01, 1000):
        if (scene.folder / "second-open").exists() or sleeper.ended:
            break
    refused = run("intruder", run_id="second")
    (scene.folder / "looked").touch()
    assert (sleeper.wait(), refused) == (0, BUSY), sleeper.output()
