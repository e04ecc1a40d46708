"""Killed from outside at any moment, with many runs at work whose commits share transactions."""

from __future__ import annotations

import random
import signal
import time

import pytest

from tests.crash.crowd import RUNS, STEPS
from tests.crash.harness import Stage, every, in_parallel

KILLED = -9
ROUNDS = {"sqlite": 20, "postgres": 7}
KILLS_MAX = 6
LINES_PER_LIFE_MAX = 40
"""Of the outside log, which has some 150 when all is done."""


def play(stage: Stage, colour: str, seed: int) -> tuple[int, list[str]]:
    """Kill it again and again, then let it finish. Says how often it was killed, and what is wrong."""
    chance, kills = random.Random(seed), 0
    scene = stage.scene("crowd:main", colour)
    for _ in range(KILLS_MAX):
        # Counted in work done, not in seconds: a quick machine would be through before the kill, a slow one not begun.
        wanted_lines = len(scene.world.lines()) + chance.randrange(1, LINES_PER_LIFE_MAX)
        child = scene.start()
        for _ in every(0.001, 20_000):
            if child.ended or len(scene.world.lines()) >= wanted_lines:
                break
        time.sleep(chance.uniform(0, 0.003))
        child.send(signal.SIGKILL)
        code = child.wait()
        assert code in (0, KILLED), child.output()
        kills += code == KILLED
    scene.finish()
    found = scene.world.broken_promises()
    wanted = {f"r{number}": 1 for number in range(RUNS)}
    if scene.world.effects() != wanted:
        found.append(f"effects: {scene.world.effects()}")
    missing = {f"r{run}-{step}" for run in range(RUNS) for step in range(STEPS)} - scene.world.bodies().keys()
    return kills, found + [f"{name} never ran" for name in sorted(missing)]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_killed_at_random_moments(stage: Stage, colour: str) -> None:
    rounds, kills = ROUNDS[stage.kind], []

    def case(seed: int) -> list[str]:
        count, found = play(stage, colour, seed)
        kills.append(count)
        return found

    assert in_parallel(case, range(rounds)) == []
    assert sum(kills) > rounds, "the kills come too late to matter"


@pytest.mark.soak
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_killed_at_random_moments_for_long(stage: Stage, colour: str) -> None:
    seed = random.randrange(10**9)
    assert in_parallel(lambda n: play(stage, colour, n)[1], range(seed, seed + 2_000)) == []
