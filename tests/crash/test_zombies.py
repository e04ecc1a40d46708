"""A process that is stopped past its lease and wakes up when another has its run: it must do nothing more."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from functools import partial
from typing import Any

import pytest

from perdure import Agent
from perdure.platform.failpoints import CommitMoment
from tests.conformance.kit import expire_leases
from tests.crash.child_programs import BUSY, DOUBT_SECONDS, LOST
from tests.crash.harness import ROOT, Child, Scene, Stage, environment, run_cases
from tests.crash.stores import store_of
from tests.crash.waiting import wait_for

ELSEWHERE = "pid:[another]"
"""The zombie's pid namespace: nobody else can look whether it is alive."""

IDLE_SECONDS = 1.0
"""How long the server waits for a zombie that has begun a transaction, instead of ten seconds."""

KILLED = -9


def start_zombie(scene: Scene, place: str, **options: Any) -> Child:
    """Start it and wait until it has stopped itself."""
    child = scene.fork_server.start("tests.crash.child_programs:zombie", scene.folder, place=place, **options)
    wait_for(lambda: (scene.folder / "stopped").exists() or child.ended, "the zombie")
    assert not child.ended, child.output()
    return child


def take_over(scene: Scene, *, patient: bool = True) -> int:
    """Want the run once, or after all leases have expired."""
    if patient:
        expire_leases(store_of(scene.folder))
    return scene.fork_server.run("tests.crash.child_programs:successor", scene.folder, patient=patient)


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


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_zombie_commits_nothing_and_starts_no_effect(stage: Stage, colour: str) -> None:
    """Stopped at each place; it wakes up and goes on at once, or after its heart has beaten again."""
    cases = [(place, 0.0) for place in PLACES] + [(place, DOUBT_SECONDS) for place in PLACES if ":" in place]

    def haunt(case: tuple[str, float]) -> list[str]:
        place, pause = case
        scene = stage.scene("child_programs:zombie", colour)
        child = start_zombie(scene, place, colour=colour, namespace=ELSEWHERE, pause=pause)
        assert take_over(scene) == 0
        child.send(signal.SIGCONT)
        assert child.wait() == LOST, child.output()
        assert scene.world.effects() == {"booked": 1}, "the zombie acted"
        assert writer_of(scene) != child.pid
        return []

    # They mostly sleep, so many at a time.
    assert run_cases(haunt, cases, at_a_time=8) == []


@pytest.mark.stores("postgres")
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_the_locks_of_a_process_stopped_in_a_transaction_are_taken_from_it(stage: Stage, colour: str) -> None:
    """The server ends a transaction that waits for its client; what the client then wants to commit is refused."""

    def haunt(place: str) -> list[str]:
        scene = stage.scene("child_programs:zombie", colour)
        child = start_zombie(scene, place, colour=colour, namespace=ELSEWHERE, idle=IDLE_SECONDS)
        assert take_over(scene) == 0
        child.send(signal.SIGCONT)
        # A claim that was never committed is made again, and meets a finished run.
        assert child.wait() == (0 if place.startswith("run.claim") else LOST), child.output()
        assert scene.world.effects() == {"booked": 1}
        assert writer_of(scene) != child.pid
        return []

    sites = ("run.claim", "run.write", "step.done", "effect.intent", "effect.outcome", "run.end")
    places = [f"{site}:{moment}" for site in sites for moment in (CommitMoment.BEGUN, CommitMoment.WRITTEN)]
    assert run_cases(haunt, places, at_a_time=8) == []


def writer_of(scene: Scene) -> int:
    """Whose result the run has."""
    agent = Agent("victim", store=store_of(scene.folder))
    try:
        return int(agent.runs.result("shared"))
    finally:
        agent.close()


def test_a_stopped_process_in_sight_is_alive_until_its_lease_runs_out(stage: Stage) -> None:
    scene = stage.scene("child_programs:zombie")
    child = start_zombie(scene, "between")
    assert take_over(scene, patient=False) == BUSY
    assert take_over(scene) == 0
    child.send(signal.SIGCONT)
    assert child.wait() == LOST, child.output()


def test_a_killed_process_in_sight_is_taken_over_at_once(stage: Stage) -> None:
    """No lease to wait for: the first try has the run."""
    for _ in range(5):
        scene = stage.scene("child_programs:zombie")
        child = start_zombie(scene, "between")
        child.send(signal.SIGKILL)
        assert child.wait() == KILLED
        assert take_over(scene, patient=False) == 0


def test_a_process_that_slept_without_a_run_is_a_holder_again(stage: Stage) -> None:
    """Its row was cleared away meanwhile; the run that it opens now must be as safe as any other."""
    scene = stage.scene("child_programs:sleeper")
    newcomer = partial(stage.fork_server.run, "tests.crash.child_programs:newcomer", scene.folder)
    newcomer()  # makes the agent, so that the sleeper holds nothing
    sleeper = stage.fork_server.start("tests.crash.child_programs:sleeper", scene.folder)
    wait_for((scene.folder / "stopped").exists, "the sleeper")
    expire_leases(store_of(scene.folder))
    newcomer()
    sleeper.send(signal.SIGCONT)
    wait_for(lambda: (scene.folder / "second-open").exists() or sleeper.ended, "the second run")
    refused = stage.fork_server.run("tests.crash.child_programs:intruder", scene.folder, run_id="second")
    (scene.folder / "looked").touch()
    assert (sleeper.wait(), refused) == (0, BUSY), sleeper.output()


def test_a_dead_holder_out_of_sight_is_waited_for(stage: Stage) -> None:
    """In a pid namespace of its own, for real: its death cannot be seen, so that its lease must run out."""
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-pf", "true"], capture_output=True, check=False).returncode:
        pytest.skip("a pid namespace cannot be made here (it needs root)")
    scene = stage.scene("child_programs:hold")
    command = [unshare, "-pf", "--kill-child", "--mount-proc", sys.executable, "-m", "tests.crash.child_programs"]
    seen = environment(HOME=str(scene.folder))
    with subprocess.Popen([*command, str(scene.folder)], cwd=ROOT, env=seen) as holder:
        wait_for((scene.folder / "stopped").exists, "the holder")
        holder.kill()
    assert take_over(scene, patient=False) == BUSY
    assert take_over(scene) == 0


def test_a_body_that_timed_out_in_this_process_is_a_zombie_too(stage: Stage) -> None:
    """That it did not happen is not believed while the body may still do it, whichever agent object asks."""
    scene = stage.scene("child_programs:latecomer")
    assert stage.fork_server.run("tests.crash.child_programs:latecomer", scene.folder) == 0
    said = {line[0]: line[1] for line in scene.world.lines() if line[0] in ("first", "second", "third")}
    assert said == {"first": "InDoubt", "second": "RunWaiting", "third": "finished"}
    assert scene.world.effects() == {"booked": 1}
