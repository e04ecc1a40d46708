"""Killed from outside at any moment, with much at work whose commits share transactions."""

from __future__ import annotations

import random
import signal
import time

import pytest

from perdure import Agent
from perdure.journal import rebuild
from perdure.journal.verify import verify
from perdure.store import open_store
from tests.crash.harness import Child, Scene, Stage, repeat_cases, run_cases
from tests.crash.parallel_program import RUNS, STEPS
from tests.crash.stores import store_of

KILLED = -9
PROGRAMS = ("parallel_program:main", "parallel_program:team")
"""Many runs, and one run with as much going on in it."""

ROUNDS = {"sqlite": 4, "postgres": 3}
FLEET = 3
FLEETS = {"sqlite": 4, "postgres": 4}
KILLS_MAX = 6
LINES_PER_LIFE_MAX = 40
"""Of the outside log, which has some 150 when all is done."""


def play(stage: Stage, program: str, colour: str, seed: int) -> tuple[int, list[str]]:
    """Kill it again and again, then let it finish. Says how often it was killed, and what is wrong."""
    chance, kills = random.Random(seed), 0
    scene = stage.scene(program, colour)
    for _ in range(KILLS_MAX):
        # Counted in work done, not in seconds: a quick machine would be through before the kill, a slow one not begun.
        wanted_lines = len(scene.world.lines()) + chance.randrange(1, LINES_PER_LIFE_MAX)
        child = scene.start()
        scene.wait_for_lines(wanted_lines, child)
        time.sleep(chance.uniform(0, 0.003))
        child.send(signal.SIGKILL)
        code = child.wait()
        assert code in (0, KILLED), child.output()
        kills += code == KILLED
    scene.finish()
    return kills, complaints_about(scene)


def complaints_about(scene: Scene) -> list[str]:
    """What a crowd has not done, or done twice, and what is wrong with the store that it has left."""
    world, found = scene.world, damage_in(store_of(scene.folder))
    found += world.broken_promises()
    wanted = {f"r{number}": 1 for number in range(RUNS)}
    if world.effects() != wanted:
        found.append(f"effects: {world.effects()}")
    missing = {f"r{run}-{step}" for run in range(RUNS) for step in range(STEPS)} - world.bodies().keys()
    return found + [f"{name} never ran" for name in sorted(missing)]


def damage_in(url: str) -> list[str]:
    """Runs that are not finished, entries that should not be there, views that differ from the journal."""
    agent = Agent("crowd", store=url)
    try:
        open_runs = [f"{run.id} is {run.status}" for run in agent.runs.list() if run.status != "finished"]
    finally:
        agent.close()
    store = open_store(url)
    try:
        damage = [str(one) for one in verify(store).findings if one.severity == "damage"]
        return open_runs + damage + [str(one) for one in rebuild.check(store)]
    finally:
        store.close()


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_killed_at_random_moments(stage: Stage, program: str, colour: str) -> None:
    rounds, kills = ROUNDS[stage.kind], []

    def case(seed: int) -> list[str]:
        count, found = play(stage, program, colour, seed)
        kills.append(count)
        return found

    assert repeat_cases(case, rounds, lambda: sum(kills) > rounds) == []


def send_a_fleet(stage: Stage, seed: int) -> tuple[int, list[str]]:
    """Workers on the same runs, killed one after the other and replaced. Says how many were, and what is wrong."""
    chance, scene = random.Random(seed), stage.scene("parallel_program:worker")
    fleet: list[Child] = []

    def man() -> None:
        while len(fleet) < FLEET:
            fleet.append(stage.fork_server.start("tests.crash.parallel_program:worker", scene.folder))

    kills = 0
    for _ in range(KILLS_MAX):
        man()
        wanted_lines = len(scene.world.lines()) + chance.randrange(1, LINES_PER_LIFE_MAX // 2)
        scene.wait_for_lines(wanted_lines, *fleet)
        time.sleep(chance.uniform(0, 0.003))
        lost = fleet.pop(chance.randrange(FLEET))
        lost.send(signal.SIGKILL)
        code = lost.wait()
        assert code in (0, KILLED), lost.output()
        kills += code == KILLED
    man()
    assert [child.wait() for child in fleet] == [0] * FLEET, "\n".join(child.output() for child in fleet)
    return kills, complaints_about(scene)


def test_a_fleet_whose_workers_are_killed_at_random_moments(stage: Stage) -> None:
    """Whoever is free takes what a dead one left: each step and each effect is somebody's, once."""
    kills = []

    def case(seed: int) -> list[str]:
        count, found = send_a_fleet(stage, seed)
        kills.append(count)
        return found

    fleets = FLEETS[stage.kind]
    assert repeat_cases(case, fleets, lambda: sum(kills) > 2 * fleets, at_a_time=2) == []


@pytest.mark.soak
def test_a_fleet_for_long(stage: Stage) -> None:
    seed = random.randrange(10**9)
    assert run_cases(lambda n: send_a_fleet(stage, n)[1], range(seed, seed + 500), at_a_time=2) == []


@pytest.mark.soak
@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_killed_at_random_moments_for_long(stage: Stage, program: str, colour: str) -> None:
    seed = random.randrange(10**9)
    assert run_cases(lambda n: play(stage, program, colour, n)[1], range(seed, seed + 2_000)) == []
