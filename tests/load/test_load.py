"""Four workers do hundreds of runs while they are killed and cut off: every run ends, each effect happens once."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.crash.harness import Child, Stage, open_stage
from tests.load.campaign import COMMAND, Campaign, Place
from tests.postgres.cluster import Cluster
from tests.postgres.hosts import Host, Program, hosts

WORKERS = 4
SOAK_KILLS = int(os.environ.get("LOAD_KILLS", "1000"))
SOAK_RUNS = 500


def worker(folder: str, arguments: list[str]) -> None:
    """The command, in a child of the fork_server."""
    from perdure.cli.main import main

    sys.argv = ["perdure", *arguments]
    main()


def orders(folder: Path, url: str, who: str) -> dict[str, str]:
    """What a worker is told; the last of the four is an asynchronous one."""
    colour = "async" if who.startswith(f"w{WORKERS}-") else "sync"
    return {"LOAD_FOLDER": str(folder), "LOAD_STORE": url, "LOAD_WHO": who, "LOAD_COLOUR": colour}


# -- one host, one file -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with open_stage() as stage:
        yield stage


def start_here(stage: Stage, folder: Path, url: str, who: str) -> Child:
    env = orders(folder, url, who)
    return stage.fork_server.start("tests.load.test_load:worker", folder, env, arguments=list(COMMAND))


def survive_here(stage: Stage, *, runs: int, kills: int, seed: int) -> None:
    folder = stage.folder()
    url = f"sqlite:///{folder / 'perdure.db'}"
    launch = partial(start_here, stage, folder, url)
    campaign = Campaign(url, folder, [Place(f"w{n}", launch) for n in range(1, WORKERS + 1)], seed)
    wage(campaign, runs=runs, kills=kills, cuts=0)


def wage(campaign: Campaign, *, runs: int, kills: int, cuts: int) -> None:
    campaign.feed(runs)
    campaign.strike(kills, cuts)
    found = campaign.end()
    print(campaign.tally)
    assert not found, f"{campaign.tally}\n" + "\n".join(found)


def test_workers_on_one_host_are_killed_under_load(stage: Stage) -> None:
    survive_here(stage, runs=40, kills=6, seed=1)


@pytest.mark.soak
def test_workers_on_one_host_are_killed_under_load_for_long(stage: Stage) -> None:
    survive_here(stage, runs=SOAK_RUNS, kills=SOAK_KILLS, seed=random.randrange(10**9))


# -- three hosts, one server ------------------------------------------------------------------------------------------


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[list[Host]]:
    yield from hosts(3, tmp_path)


def start_there(host: Host, cluster: Cluster, folder: Path, who: str) -> Program:
    limits = {"connect_timeout": "2", "statement_seconds": "1", "reconnect_seconds": "20"}
    env = orders(folder, host.url(cluster.port, "load", **limits), who)
    return host.start("-m", "perdure.cli", *COMMAND, output=folder / f"{who}.txt", env=env)


def survive_there(machines: list[Host], folder: Path, *, runs: int, kills: int, cuts: int, seed: int) -> None:
    with Cluster(addresses=tuple(host.gateway for host in machines)) as cluster:
        chosen = [machines[number % len(machines)] for number in range(WORKERS)]
        launches = [partial(start_there, host, cluster, folder) for host in chosen]
        places = [Place(f"w{n + 1}", launches[n], chosen[n]) for n in range(WORKERS)]
        campaign = Campaign(cluster.url("load"), folder, places, seed)
        try:
            wage(campaign, runs=runs, kills=kills, cuts=cuts)
        finally:
            for place in places:
                place.process.end()


@pytest.mark.timeout(900)
def test_workers_on_three_hosts_are_killed_and_cut_off_under_load(machines: list[Host], tmp_path: Path) -> None:
    survive_there(machines, tmp_path, runs=40, kills=4, cuts=2, seed=2)


@pytest.mark.soak
def test_workers_on_three_hosts_are_killed_and_cut_off_for_long(machines: list[Host], tmp_path: Path) -> None:
    seed = random.randrange(10**9)
    survive_there(machines, tmp_path, runs=SOAK_RUNS, kills=SOAK_KILLS, cuts=SOAK_KILLS // 10, seed=seed)
