"""The disk of a server fills up in the middle of a run, and has room again."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, Done, NotDone
from perdure.errors import StorageFull
from tests.conformance.kit import World, check_views
from tests.postgres import install
from tests.postgres.cluster import Cluster

DISK_MEGABYTES = 220
PARCELS, FILLED_AT = 120, 20
PARCEL_BYTES = 60_000


@pytest.fixture
def disk() -> Iterator[Path]:
    """A small file system for the data of a server."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    folder = install.new_folder()
    options = f"size={DISK_MEGABYTES}m,mode=711"
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)
    folder.rmdir()


def fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def test_a_run_on_a_full_server_ends_when_there_is_room(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, ballast = World(tmp_path), disk / "ballast"
    install.template(18)  # elsewhere: only the server's own data is on the small disk
    with monkeypatch.context() as patched:
        patched.setattr(tempfile, "tempdir", str(disk))
        cluster = Cluster()
    with cluster, Agent("sender", store=cluster.url("full")) as agent:

        def send(number: int, *, key: str) -> str:
            world.do(key)
            return os.urandom(PARCEL_BYTES).hex()

        def sent(number: int, *, key: str) -> Any:
            return Done("found") if key in world.read_all() else NotDone

        def program() -> None:
            with agent.run("r", wait=60) as run:
                for number in range(PARCELS):
                    run.effect(send, number, check=sent, timeout=60)
                    if number == FILLED_AT and not ballast.exists():
                        fill(ballast)

        for _ in range(3):
            with pytest.raises(StorageFull):
                program()
        os.truncate(ballast, 0)
        program()
        assert agent.runs.get("r").status == "finished"
        check_views(agent)
    assert len(world.read_all()) == len(set(world.read_all())) == PARCELS
