"""The server is killed while runs go on: nothing acknowledged is lost, every run finishes, effects happen once."""

from __future__ import annotations

import random
import time

import pytest

from tests.crash.harness import Stage
from tests.postgres.cluster import Cluster
from tests.postgres.workload_process import STEPS, WorkloadProcess

COLOURS = ["sync", "async"]
DOWN_SECONDS_MAX = 0.4
DEATH = "was terminated by signal 9"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("colour", COLOURS)
def test_the_server_is_killed_again_and_again(stage: Stage, schema: str, colour: str) -> None:
    kill_and_restart(stage, schema, colour, kills=8, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("colour", COLOURS)
def test_the_server_is_killed_fifty_times(stage: Stage, schema: str, colour: str) -> None:
    kill_and_restart(stage, schema, colour, kills=50, seed=random.randrange(10**9), steps=600)


def kill_and_restart(stage: Stage, schema: str, colour: str, *, kills: int, seed: int, steps: int = STEPS) -> None:
    """All processes of the server at one instant; away for a moment; back, through crash recovery."""
    chance = random.Random(seed)
    with Cluster() as cluster:
        child = WorkloadProcess(stage, cluster.url(schema), colour, steps=steps)

        def kill() -> None:
            cluster.kill()
            time.sleep(chance.uniform(0, DOWN_SECONDS_MAX))
            cluster.start()

        child.strike(kills, kill, chance)
        assert child.join_and_judge(cluster.url(schema)) == [], f"seed {seed}"
        assert cluster.log().count("was not properly shut down; automatic recovery in progress") == kills


@pytest.mark.timeout(900)
@pytest.mark.parametrize("colour", COLOURS)
def test_single_backends_are_killed(stage: Stage, schema: str, colour: str) -> None:
    """The server takes the death of one for a crash of all, throws everybody out, and recovers by itself."""
    chance = random.Random(2)
    with Cluster() as cluster:
        child = WorkloadProcess(stage, cluster.url(schema), colour)

        def kill_one() -> None:
            deaths = cluster.log().count(DEATH)
            while cluster.log().count(DEATH) == deaths:
                # One that is thrown out at this moment may be gone before the signal comes.
                cluster.kill_backend(chance.choice(_backends(cluster, child)))
                time.sleep(0.01)

        child.strike(6, kill_one, chance)
        assert child.join_and_judge(cluster.url(schema)) == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("colour", COLOURS)
def test_an_administrator_ends_connections(stage: Stage, cluster: Cluster, schema: str, colour: str) -> None:
    """One at a time, while the others go on; the client is told, perhaps in the middle of a commit."""
    chance = random.Random(3)
    child = WorkloadProcess(stage, cluster.url(schema), colour)
    child.strike(15, lambda: cluster.terminate_backend(chance.choice(_backends(cluster, child))), chance)
    assert child.join_and_judge(cluster.url(schema)) == []


@pytest.mark.timeout(900)
def test_the_server_is_restarted_in_order(stage: Stage, schema: str) -> None:
    """As for an upgrade: connections are ended, new ones are refused for a while, then all is as before."""
    chance = random.Random(4)
    with Cluster() as cluster:
        child = WorkloadProcess(stage, cluster.url(schema), "sync")
        child.strike(3, cluster.restart, chance)
        assert child.join_and_judge(cluster.url(schema)) == []


def _backends(cluster: Cluster, child: WorkloadProcess) -> list[int]:
    """Those that serve somebody; waits while the server recovers."""
    while child.is_running:
        if found := cluster.backends():
            return found
        time.sleep(0.001)
    raise AssertionError("the child was over too soon")
