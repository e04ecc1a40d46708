"""The server, its clock and the hosts are what tests take them for."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from tests.crash.harness import ROOT, environment
from tests.crash.waiting import wait_for
from tests.postgres import install
from tests.postgres.clock import ServerClock
from tests.postgres.cluster import Cluster
from tests.postgres.hosts import hosts

WARM = "from tests.postgres.cluster import Cluster; print(Cluster().start().folder, flush=True); input()"


def test_the_test_server_is_durable_and_survives_a_kill() -> None:
    with Cluster() as cluster:
        durable = {name: cluster.execute(f"SHOW {name}")[0][0] for name in ("fsync", "synchronous_commit")}
        assert durable == {"fsync": "on", "synchronous_commit": "on"}
        cluster.execute("CREATE TABLE kept (number int)")
        client = cluster.connect()
        for number in range(3):
            cluster.execute("INSERT INTO kept VALUES (%s)", number)
            cluster.kill()
            assert not cluster.running
            cluster.start()
        with pytest.raises(psycopg.OperationalError):
            client.execute("SELECT 1")
        client.close()
        assert cluster.execute("SELECT count(*) FROM kept") == [(3,)]


def test_nothing_is_left_of_it_when_the_tests_are_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WARM], cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().decode().strip())
        server = int((folder / "data" / "postmaster.pid").read_text().split()[0])
        process.kill()
    wait_for(lambda: not folder.exists(), "the watchdog")
    assert not _runs(server)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_a_standby_has_what_was_acknowledged() -> None:
    with Cluster() as first, first.standby() as second:
        first.execute("CREATE TABLE kept (number int)")
        for number in range(20):
            first.execute("INSERT INTO kept VALUES (%s)", number)
        first.kill()
        second.promote()
        assert second.execute("SELECT count(*) FROM kept") == [(20,)]
        second.execute("INSERT INTO kept VALUES (20)")


def test_its_clock_jumps_and_nobody_elses_does() -> None:
    folder = install.new_folder()
    try:
        clock = ServerClock(folder)
        with Cluster(environment=clock.environment) as cluster:
            for offset in (0, 86_400, -3600):
                clock.set(offset)
                said = cluster.execute("SELECT extract(epoch FROM clock_timestamp())::bigint")[0][0]
                assert abs(said - offset - time.time()) < 600
    finally:
        install.Watchdog(folder).release()


IDENTITY = """
import os, socket, pathlib
print(os.getpid(), socket.gethostname(), pathlib.Path('/proc/sys/kernel/random/boot_id').read_text(), flush=True)
"""


def test_hosts_have_a_name_a_boot_id_and_a_process_table_of_their_own(tmp_path: Path) -> None:
    for machines in hosts(2, tmp_path):
        seen = []
        for host in machines:
            program = host.start("-c", IDENTITY, output=tmp_path / host.name)
            assert program.wait() == 0, program.output()
            seen.append(program.output().split())
        assert [words[:2] for words in seen] == [["1", "host-1"], ["1", "host-2"]]
        assert len({words[2] for words in seen}) == 2


def test_a_cable_can_be_unplugged(tmp_path: Path) -> None:
    reach = "import sys, socket; socket.create_connection((sys.argv[1], int(sys.argv[2])), int(sys.argv[3]))"
    for [host] in hosts(1, tmp_path):
        with Cluster(addresses=(host.gateway,)) as cluster:
            found = []
            for change, seconds in ((host.plug, "20"), (host.unplug, "1"), (host.plug, "20")):
                change()
                program = host.start("-c", reach, host.gateway, str(cluster.port), seconds, output=tmp_path / "out")
                found.append(program.wait() == 0)
            assert found == [True, False, True]
