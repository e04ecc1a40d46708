"""Three hosts, one server, cables that are cut: one writer always, whatever the others think."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.crash.waiting import wait_for
from tests.crash.world import World
from tests.postgres import contender, install
from tests.postgres.clock import ServerClock
from tests.postgres.cluster import Cluster
from tests.postgres.hosts import Host, Program, hosts

ITEMS = 12


class Town:
    """Three hosts around one server."""

    def __init__(self, machines: list[Host], folder: Path) -> None:
        self.hosts = machines
        self.folder = folder
        self.world = World(folder)
        self.cluster = Cluster(addresses=tuple(host.gateway for host in machines))
        self._programs: list[Program] = []

    def start(self, host: Host, *, env: dict[str, str] | None = None, **orders: Any) -> Program:
        """Want the run, there. Whoever is cut off gives a statement a second, and the server a minute to come back."""
        limits = {"connect_timeout": "2", "statement_seconds": "1", "reconnect_seconds": "50"}
        url = host.url(self.cluster.port, "town", **limits)
        every_one = {"folder": str(self.folder), "url": url, "who": host.name, "items": ITEMS}
        text = msgspec.json.encode({**every_one, **orders}).decode()
        output = self.folder / f"output-{len(self._programs)}"
        program = host.start("-m", "tests.postgres.contender", text, output=output, env=env)
        self._programs.append(program)
        return program

    def close(self) -> None:
        for program in self._programs:
            program.end()

    def wait_for(self, *words: str, program: Program) -> None:
        """Until somebody has written that down."""
        wait_for(lambda: list(words) in self.world.lines() or program.ended, str(words))
        assert list(words) in self.world.lines(), program.output()

    def start_holder(self) -> Program:
        """The first host has the run, and stands still in it until `go`."""
        holder = self.start(self.hosts[0], hold_at=4)
        self.wait_for("holds", "host-1", program=holder)
        return holder

    def start_others(self) -> list[Program]:
        """Both others want the run too, and have been told that it is busy."""
        others = [self.start(host) for host in self.hosts[1:]]
        for host, program in zip(self.hosts[1:], others, strict=True):
            self.wait_for("RunBusy", host.name, program=program)
        return others

    def go(self) -> None:
        """Whoever holds may go on."""
        (self.folder / contender.GO).touch()

    def judge(self, items: int = ITEMS) -> list[str]:
        return contender.judge(self.cluster.url("town"), self.world, items)

    def writers(self) -> list[str]:
        return [host for host, _ in contender.writers(self.cluster.url("town"))]


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    for machines in hosts(3, tmp_path):
        town = Town(machines, tmp_path)
        with town.cluster:
            yield town
            town.close()


def test_a_host_that_is_cut_off_is_replaced_and_can_do_no_harm_when_it_is_back(town: Town) -> None:
    first, cut_off, others = town.hosts[0], town.start_holder(), town.start_others()
    first.unplug()
    town.go()
    assert [program.wait(60) for program in others] == [0, 0], others[0].output()
    first.plug()
    assert cut_off.wait(60) == 0, cut_off.output()
    assert ["LeaseLost", "host-1"] in town.world.lines()
    assert town.judge() == []
    assert town.writers()[0] == "host-1"
    assert len(town.writers()) == 2


def test_a_zombie_on_another_host_wakes_up_and_writes_nothing(town: Town) -> None:
    zombie = town.start_holder()
    zombie.send(signal.SIGSTOP)
    other = town.start(town.hosts[1])
    assert other.wait(60) == 0, other.output()
    town.go()
    zombie.send(signal.SIGCONT)
    assert zombie.wait(60) == 0, zombie.output()
    assert ["LeaseLost", "host-1"] in town.world.lines()
    assert town.judge() == []
    assert town.writers() == ["host-1", "host-2"]


def test_a_host_with_another_boot_id_is_not_taken_for_dead(town: Town) -> None:
    """Another boot is a past one for a file on this machine. For a server it is another machine, at work."""
    holder = town.start_holder()
    for _ in range(3):
        assert town.start(town.hosts[1], once=True).wait() == contender.BUSY
    town.go()
    assert holder.wait() == 0, holder.output()
    assert town.judge() == []
    assert town.writers() == ["host-1"]


def test_a_host_that_is_gone_is_replaced_when_its_lease_has_run_out(town: Town) -> None:
    victim, others = town.start_holder(), town.start_others()
    victim.send(signal.SIGKILL)
    assert [program.wait() for program in others] == [0, 0], others[0].output()
    victim.wait()
    assert town.judge() == []
    assert len(town.writers()) == 2


@pytest.mark.parametrize("offset", [0, 3600, -3600], ids=["right", "ahead", "behind"])
def test_a_body_that_still_runs_elsewhere_is_waited_for_by_whatever_clock(town: Town, offset: int) -> None:
    """The successor asks whether it happened, and hears no. It did not yet: the body is at work, on a host cut off."""
    first, second, _ = town.hosts
    folder = install.new_folder()
    try:
        clock = ServerClock(folder)
        clock.set(offset)
        cut_off = town.start(first, slow_at=3, body_seconds_max=20.0)
        town.wait_for("holds", "host-1", program=cut_off)
        first.unplug()
        other = town.start(second, env=clock.environment, body_seconds_max=20.0)
        town.wait_for("asked", "host-2", program=other)
        town.go()
        assert other.wait(50) == 0, other.output()
        first.plug()
        assert cut_off.wait(50) == 0, cut_off.output()
    finally:
        install.Watchdog(folder).release()
    assert town.judge() == []


def test_cables_that_come_and_go(town: Town) -> None:
    flap(town, items=30, cuts=3, seed=6)


@pytest.mark.soak
def test_cables_that_come_and_go_for_long(town: Town) -> None:
    flap(town, items=400, cuts=60, seed=random.randrange(10**9))


def flap(town: Town, *, items: int, cuts: int, seed: int) -> None:
    """All three want the run. Again and again the one that has it, or another, is cut off past its lease."""
    chance = random.Random(seed)
    programs = [town.start(host, items=items) for host in town.hosts]
    for _ in range(cuts):
        time.sleep(chance.uniform(0.2, 0.8))
        opened = [line[1] for line in town.world.lines() if line[0] == "opened"]
        # Mostly the one that has it: cutting off who only waits proves little.
        names = [host.name for host in town.hosts]
        unlucky = town.hosts[names.index(opened[-1]) if opened and chance.random() < 0.8 else chance.randrange(3)]
        unlucky.unplug()
        time.sleep(chance.uniform(0.3, 1.5) * contender.LEASE_SECONDS)
        unlucky.plug()
    assert [program.wait(100) for program in programs] == [0, 0, 0], f"seed {seed}: {programs[0].output()}"
    assert town.judge(items) == [], f"seed {seed}"
