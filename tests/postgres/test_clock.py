"""Clocks that are wrong, and clocks that jump: the server's, and those of hosts. Leases hold, effects happen once."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.crash.harness import Child, Stage
from tests.crash.waiting import wait_for
from tests.crash.world import World
from tests.postgres import contender, install
from tests.postgres.clock import ServerClock
from tests.postgres.cluster import Cluster

DAY = 86_400
ITEMS = 12


class Harbour:
    """A server with a false clock, and contenders that cannot look at each other's processes."""

    def __init__(self, stage: Stage, cluster: Cluster, clock: ServerClock) -> None:
        self.clock = clock
        self.cluster = cluster
        self.folder = stage.folder()
        self.world = World(self.folder)
        self._fork_server = stage.fork_server

    def start(self, who: str, *, env: dict[str, str] | None = None, **options: Any) -> Child:
        arguments = {"url": self.cluster.url("harbour"), "who": who, "items": ITEMS, "namespace": f"pid:[{who}]"}
        return self._fork_server.start("tests.postgres.contender:main", self.folder, env, **{**arguments, **options})

    def wait_for(self, *words: str) -> None:
        wait_for(lambda: any(line[: len(words)] == list(words) for line in self.world.lines()), str(words))

    def finish(self, *children: Child) -> list[str]:
        """Wait for all; what is wrong."""
        for child in children:
            assert child.wait() == 0, child.output()
        return contender.judge(self.cluster.url("harbour"), self.world, ITEMS)


@pytest.fixture
def harbour(stage: Stage) -> Iterator[Harbour]:
    folder = install.new_folder()
    try:
        clock = ServerClock(folder)
        with Cluster(environment=clock.environment) as cluster:
            yield Harbour(stage, cluster, clock)
    finally:
        install.Watchdog(folder).release()


@pytest.mark.parametrize("offset", [DAY, -DAY, 3650 * DAY], ids=["ahead", "behind", "years ahead"])
def test_a_server_whose_clock_is_wrong(harbour: Harbour, offset: int) -> None:
    """A lease runs out after its time by any clock: neither at once nor a day later."""
    harbour.clock.set(offset)
    first = harbour.start("first", hold_at=4)
    harbour.wait_for("holds", "first")
    second = harbour.start("second")
    harbour.wait_for("RunBusy", "second")
    first.send(signal.SIGKILL)
    first.wait()
    assert harbour.finish(second) == []


@pytest.mark.parametrize("jump", [3600, -3600], ids=["ahead", "back"])
def test_the_servers_clock_jumps_while_everybody_works(harbour: Harbour, jump: int) -> None:
    """Ahead, the lease of somebody alive may seem to be over: then its fence is, and it writes nothing more."""
    children = [harbour.start(f"c{number}") for number in range(3)]
    harbour.wait_for("effect", "item-2")
    for offset in (jump, 0, 2 * jump, jump // 60):
        harbour.clock.set(offset)
        time.sleep(contender.LEASE_SECONDS / 3)
    assert harbour.finish(*children) == []


def test_a_dead_holder_is_replaced_though_the_servers_clock_went_back(harbour: Harbour) -> None:
    """Its deadline lies an hour ahead now. Who waits for it has a clock too."""
    first = harbour.start("first", hold_at=4)
    harbour.wait_for("holds", "first")
    second = harbour.start("second")
    harbour.wait_for("RunBusy", "second")
    first.send(signal.SIGKILL)
    first.wait()
    harbour.clock.set(-3600)
    assert harbour.finish(second) == []
