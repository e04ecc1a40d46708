"""Cuts of every kind at random round trips of many runs at once, and commits that arrive when their sender is dead."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable

import pytest

from perdure import Agent
from perdure.store.postgres import pool
from tests.crash.child_programs import stop_at
from tests.crash.harness import Child, Stage, run_cases
from tests.crash.waiting import wait_for
from tests.crash.world import World
from tests.postgres import contender
from tests.postgres.cluster import Cluster
from tests.postgres.proxy import Fault, Proxy
from tests.postgres.workload_process import WorkloadProcess

CUTS = [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.LATE]
KILLED = -9


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_many_runs_in_a_storm(stage: Stage, cluster: Cluster, schema: str, colour: str) -> None:
    strike_at_random(stage, cluster, schema, colour, blows=40, steps=60, seed=8)


@pytest.mark.soak
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_many_runs_in_a_long_storm(stage: Stage, cluster: Cluster, schema: str, colour: str) -> None:
    seed = random.randrange(10**9)
    strike_at_random(stage, cluster, schema, colour, blows=1500, steps=2000, seed=seed)


def strike_at_random(
    stage: Stage, cluster: Cluster, schema: str, colour: str, *, blows: int, steps: int, seed: int
) -> None:
    """Several connections work at the same time, so that a late commit of one meets the next ones of others."""
    chance = random.Random(seed)
    with Proxy(cluster, late_seconds=0.05) as proxy:
        child = WorkloadProcess(stage, proxy.url(schema), colour, steps=steps)
        struck = 0
        while struck < blows and child.is_running:
            proxy.strike(chance.randrange(1, 20), chance.choice(CUTS))
            struck += proxy.struck.wait(5)
        assert child.join_and_judge(cluster.url(schema)) == [], f"seed {seed}"
        assert struck == blows, "the storm was over too late"


def test_short_lives_in_a_storm(stage: Stage, cluster: Cluster) -> None:
    assert run_cases(lambda seed: strike_all_the_way(stage, cluster, seed), range(4)) == []


@pytest.mark.soak
def test_many_short_lives_in_a_storm(stage: Stage, cluster: Cluster) -> None:
    first = random.randrange(10**9)
    assert run_cases(lambda seed: strike_all_the_way(stage, cluster, seed), range(first, first + 500)) == []


def strike_all_the_way(stage: Stage, cluster: Cluster, seed: int) -> list[str]:
    """Hardly a moment without a cut, from the first connection on: tables, agent, holder and runs are made in it."""
    chance, schema = random.Random(seed), f"short_{seed}"
    with Proxy(cluster, late_seconds=chance.choice((0.01, 0.03, 0.1))) as proxy:
        child = WorkloadProcess(stage, proxy.url(schema), chance.choice(("sync", "async")), steps=4)
        while child.is_running:
            proxy.strike(chance.randrange(1, 12), chance.choice(CUTS))
            proxy.struck.wait(0.5)
        proxy.settle()
        return child.join_and_judge(cluster.url(schema))


def test_a_commit_that_arrives_when_its_sender_is_dead_and_replaced(stage: Stage, cluster: Cluster) -> None:
    """It was on its way when its process was killed. When it comes, another has the run, and the fence says so."""
    complaints = run_cases(lambda number: replace(stage, cluster, number), range(14, 44, 5))
    assert complaints == []


def replace(stage: Stage, cluster: Cluster, number: int) -> list[str]:
    """What is wrong after the commit in this round trip has come late."""
    folder, schema = stage.folder(), f"ghost_{number}"

    def start(who: str, url: str) -> Child:
        return stage.fork_server.start("tests.postgres.contender:main", folder, url=url, who=who, items=6)

    with Proxy(cluster, late_seconds=0.6) as proxy:
        proxy.strike(number, Fault.LATE)
        first = start("first", proxy.url(schema))
        assert proxy.struck.wait(100), first.output()
        first.send(signal.SIGKILL)
        assert first.wait() == KILLED, first.output()
        second = start("second", cluster.url(schema))
        assert second.wait() == 0, second.output()
        proxy.settle()
    return contender.judge(cluster.url(schema), World(folder), 6)


def test_a_process_stopped_in_a_transaction_holds_others_up_briefly(
    stage: Stage, cluster: Cluster, schema: str
) -> None:
    """It has locked the row that numbers streams. The server ends its transaction, and the others go on."""
    folder = stage.folder()
    make(cluster.url(schema), lambda agent: agent.run("first"))
    sleeper = stage.fork_server.start(
        "tests.postgres.test_random_cuts:sleep_in_claim", folder, url=cluster.url(schema), place="run.claim:written"
    )
    wait_for((folder / "stopped").exists, "the sleeper")
    make(cluster.url(schema), lambda agent: agent.run("another"))
    sleeper.send(signal.SIGCONT)
    assert sleeper.wait() == 0, sleeper.output()
    make(cluster.url(schema), lambda agent: agent.run("slept"))


def make(url: str, opened: Callable[[Agent], object]) -> None:
    agent = Agent("traveller", store=url)
    with opened(agent):  # type: ignore[attr-defined]
        pass
    agent.close()


def sleep_in_claim(folder: str, url: str, place: str) -> None:
    """The body of a child: stops when its new run is written and not committed."""
    pool.IDLE_SECONDS_MAX = 1.0  # type: ignore[attr-defined]  # instead of ten, so that the others need not wait that long here
    stop_at(folder, place, 0)
    make(url, lambda agent: agent.run("slept"))
