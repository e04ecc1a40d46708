"""Everything at once: processes and servers die and stop, connections break, the clock jumps. The promises stand."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.harness import Child, Stage
from tests.crash.world import World
from tests.postgres import contender, install
from tests.postgres.clock import ServerClock
from tests.postgres.cluster import Cluster
from tests.postgres.proxy import Fault, Proxy

CUTS = [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.LATE]
STOP_SECONDS_MAX = 1.2
"""Less than the lease and the timeout of a body together: a body that sleeps longer and then acts helps nobody."""

WORKERS = 3


class Chaos:
    """Three workers on one run behind a proxy, and a list of what may happen to them."""

    def __init__(self, stage: Stage, cluster: Cluster, proxy: Proxy, clock: ServerClock, items: int) -> None:
        self.folder = stage.folder()
        self.world = World(self.folder)
        self._fork_server = stage.fork_server
        self._cluster, self._proxy, self._clock = cluster, proxy, clock
        self._items = items
        self._lives = 0
        self.workers = [self._start() for _ in range(WORKERS)]

    def _start(self) -> Child:
        """Each life has a pid namespace of its own, as it were: nobody can look at anybody."""
        self._lives += 1
        who = f"w{self._lives}"
        return self._fork_server.start(
            "tests.postgres.contender:main", self.folder, url=self._proxy.url("chaos"), who=who,
            items=self._items, namespace=f"pid:[{who}]",
        )  # fmt: skip

    def happen(self, chance: random.Random) -> None:
        """One thing."""
        what = chance.choice((self.kill_server, self.kill_backend, self.cut, self.cut, self.cut_all, self.kill_worker,
                              self.stop_worker, self.jump))  # fmt: skip
        what(chance)

    def kill_server(self, chance: random.Random) -> None:
        self._cluster.kill()
        time.sleep(chance.uniform(0, 0.3))
        self._cluster.start()

    def kill_backend(self, chance: random.Random) -> None:
        if backends := self._cluster.backends():
            self._cluster.kill_backend(chance.choice(backends))

    def cut(self, chance: random.Random) -> None:
        self._proxy.strike(chance.randrange(1, 30), chance.choice(CUTS))
        self._proxy.struck.wait(0.5)

    def cut_all(self, chance: random.Random) -> None:
        self._proxy.cut()

    def kill_worker(self, chance: random.Random) -> None:
        number = chance.randrange(WORKERS)
        self.workers[number].send(signal.SIGKILL)
        self.workers[number].wait()
        self.workers[number] = self._start()

    def stop_worker(self, chance: random.Random) -> None:
        worker = chance.choice(self.workers)
        worker.send(signal.SIGSTOP)
        time.sleep(chance.uniform(0.1, STOP_SECONDS_MAX))
        worker.send(signal.SIGCONT)

    def jump(self, chance: random.Random) -> None:
        self._clock.set(chance.choice((0, 0, 3600, -3600, 5, -5)))

    def end(self) -> list[str]:
        """Leave them alone until they have finished; what is wrong."""
        self._clock.set(0)
        self._proxy.heal()
        for worker in self.workers:
            assert worker.wait(90) == 0, worker.output()
        self._proxy.settle()
        return contender.judge(self._cluster.url("chaos"), self.world, self._items)


def survive(stage: Stage, *, seed: int, blows: int, items: int) -> None:
    chance = random.Random(seed)
    for folder in new_folder():
        clock = ServerClock(folder)
        with Cluster(environment=clock.environment) as cluster, Proxy(cluster, late_seconds=0.2) as proxy:
            chaos = Chaos(stage, cluster, proxy, clock, items)
            for _ in range(blows):
                time.sleep(chance.uniform(0.05, 0.3))
                chaos.happen(chance)
            assert chaos.end() == [], f"seed {seed}"


def new_folder() -> Iterator[Path]:
    folder = install.new_folder()
    yield folder
    install.Watchdog(folder).release()


@pytest.mark.timeout(900)
def test_everything_at_once(stage: Stage) -> None:
    survive(stage, seed=2, blows=12, items=40)


@pytest.mark.soak
def test_everything_at_once_for_long(stage: Stage) -> None:
    for _ in range(30):
        survive(stage, seed=random.randrange(10**9), blows=40, items=100)
