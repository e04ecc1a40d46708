"""SIGTERM and Ctrl-C at every failpoint: the run is interrupted in order, no commit is torn, and it resumes at once."""

from __future__ import annotations

import json
import random
import signal
import time

import pytest

from tests.budget import sample
from tests.crash.harness import Scene, Stage, Undisturbed, repeat_cases, run_cases, spread

COLOURS = ("sync", "async")
SIGNALS = {"SIGTERM": 143, "SIGINT": 130}
POINTS = {"sqlite": 6, "postgres": 4}
EDGES = {"sqlite": 8, "postgres": 6}
"""Per colour and signal in CI, anywhere and around the claim and the end of a run; `make soak` takes all."""

ROUNDS = {"sqlite": 4, "postgres": 3}
"""At random moments, per colour and signal."""

LINES = 70
"""That the victim writes to the outside log: moments are counted in work done, whatever the machine."""

IN_ORDER = {"interrupted", "finished", "failed", "waiting", "cancelling", "cancelled", "queued"}
"""What a run may be after a process left in order. `crashed` is not among them."""


def interrupt(stage: Stage, colour: str, expected: Undisturbed, name: str, nth: int) -> list[str]:
    """Send the signal at the nth failpoint, look at the runs, and let another process go on."""
    scene = stage.scene("victim:main", colour)
    code = scene.once({"CRASH_NTH": str(nth), "CRASH_SIGNAL": name})
    # The place is the victim's own account: under asyncio the order of commits may differ by one.
    [[where, place]] = [line[1:] for line in scene.world.lines() if line[0] == "signal"] or [["out", ""]]
    found = []
    if code in (SIGNALS[name], 0):
        found += [f"{run} is {status}" for run, status in look(scene).items() if status not in IN_ORDER]
    if where == "in" and code != SIGNALS[name]:
        found.append(f"the process ended with {code}, not in order")
    scene.finish()
    return [f"{place}: {text}" for text in found + scene.judge(expected)]


def look(scene: Scene) -> dict[str, str]:
    """The status of every run, as another process sees it."""
    scene.fork_server.run("tests.crash.child_programs:statuses", scene.folder)
    found: dict[str, str] = json.loads((scene.folder / "statuses.json").read_text())
    return found


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("colour", COLOURS)
def test_interrupted_at_failpoints(stage: Stage, undisturbed: dict[str, Undisturbed], colour: str, name: str) -> None:
    expected = undisturbed[colour]
    all_points = range(1, len(expected.reached) + 1)
    # More of those around the claim and the end of a run: there the run is neither closed nor quite open.
    edges = [n for n in all_points if expected.reached[n - 1].startswith(("run.claim", "run.end"))]
    points = sorted({*spread(edges, EDGES[stage.kind]), *spread(list(all_points), POINTS[stage.kind])})
    assert run_cases(lambda nth: interrupt(stage, colour, expected, name, nth), sample(points, 4)) == []


@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("colour", COLOURS)
def test_interrupted_at_random_moments(
    stage: Stage, undisturbed: dict[str, Undisturbed], colour: str, name: str
) -> None:
    """From outside, between any two instructions: whenever a run is open, it is left in order."""
    rounds, codes = ROUNDS[stage.kind], []

    def case(seed: int) -> list[str]:
        scene = stage.scene("victim:main", colour)
        chance = random.Random(f"{name} {seed}")
        wanted_lines = chance.randrange(LINES)
        child = scene.start()
        scene.wait_for_lines(wanted_lines, child)
        time.sleep(chance.uniform(0, 0.003))
        child.send(signal.Signals[name])
        codes.append(child.wait())
        crashed = [f"{run} is {status}" for run, status in look(scene).items() if status not in IN_ORDER]
        scene.finish()
        return crashed + scene.judge(undisturbed[colour])

    assert repeat_cases(case, rounds, lambda: codes.count(SIGNALS[name]) > rounds // 2) == []


@pytest.mark.soak
@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("colour", COLOURS)
def test_interrupted_at_every_failpoint(
    stage: Stage, undisturbed: dict[str, Undisturbed], colour: str, name: str
) -> None:
    expected = undisturbed[colour]
    points = range(1, len(expected.reached) + 1)
    assert run_cases(lambda nth: interrupt(stage, colour, expected, name, nth), points) == []


def test_sigterm_interrupts_the_runs_of_every_task(stage: Stage) -> None:
    """Not only of the task that opened the first one, which may be over."""
    scene = stage.scene("forking_programs:many_tasks")
    child = stage.fork_server.start("tests.crash.forking_programs:many_tasks", scene.folder)
    assert child.wait() == SIGNALS["SIGTERM"], child.output()
    assert look(scene) == {"quick": "finished", "slow": "interrupted", "slower": "interrupted"}
