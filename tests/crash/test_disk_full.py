"""The disk is full: a typed error, reads go on, nothing acknowledged is lost, and the same call works afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from perdure.store import open_store
from perdure.store.sqlite.file_guard import INDEX_BYTES
from tests.crash.forking_programs import FULL
from tests.crash.harness import Stage
from tests.crash.stores import FILE
from tests.crash.waiting import wait_for

pytestmark = pytest.mark.stores("sqlite")
STEPS = 90
PARCELS = 120
ROOM_BYTES = 1_500_000


@pytest.fixture
def small_disk(stage: Stage) -> Iterator[Path]:
    """A file system of one mebibyte."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    folder = stage.folder()
    made = _mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder))
    if made.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture(params=["tmpfs", "ext4"])
def crowded_disk(stage: Stage, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system on which another file takes all space but a little. Small blocks: SQLite maps more than it has."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    folder = stage.folder()
    image, disk = folder / "image", folder / "disk"
    disk.mkdir()
    made = _mount("-t", "tmpfs", "-o", "size=12m", "tmpfs", str(disk)) if request.param == "tmpfs" else None
    if made is None:
        image.write_bytes(bytes(12 << 20))
        command = ["mkfs.ext4", "-q", "-F", "-b", "1024", "-m", "0", "-O", "^has_journal", str(image)]
        if shutil.which("mkfs.ext4") is None or subprocess.run(command, check=False).returncode != 0:
            pytest.skip("a disk with small blocks needs mkfs.ext4")
        made = _mount("-o", "loop", str(image), str(disk))
    if made.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {made.stderr.strip()}")
    free = os.statvfs(disk)
    (disk / "ballast").write_bytes(os.urandom(free.f_bavail * free.f_frsize - ROOM_BYTES))
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def _mount(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)


def test_full_and_free_again(stage: Stage, small_disk: Path) -> None:
    scene = stage.scene("forking_programs:fill")
    child = stage.fork_server.start(
        "tests.crash.forking_programs:fill", scene.folder, {"PYTHONHASHSEED": "0"}, disk=str(small_disk), steps=STEPS
    )
    wait_for(lambda: (scene.folder / "full").exists() or child.ended, "a full disk")
    assert not child.ended, child.output()
    [(number, events)] = [line[1:] for line in scene.world.lines() if line[0] == "full"]
    assert int(events) > int(number) > 5, "reading goes on, and has all that was acknowledged"
    assert stage.fork_server.run("tests.crash.child_programs:statuses", scene.folder, store=str(small_disk)) == 0
    assert _mount("-o", "remount,size=16m", str(small_disk)).returncode == 0
    (scene.folder / "freed").touch()
    assert child.wait() == 0, child.output()
    assert (
        stage.fork_server.run("tests.crash.forking_programs:verify", scene.folder, disk=str(small_disk), steps=STEPS)
        == 0
    )


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("killed", [False, True])
def test_a_run_that_met_a_full_disk_ends_when_there_is_room(
    stage: Stage, crowded_disk: Path, colour: str, killed: bool
) -> None:
    """Started again and again while the disk is full, killed or not; each effect happens once."""
    scene = stage.scene("forking_programs:ship", colour)

    def ship() -> int:
        arguments = {"disk": str(crowded_disk), "parcels": PARCELS, "colour": colour}
        child = stage.fork_server.start("tests.crash.forking_programs:ship", scene.folder, **arguments)
        if killed:
            wait_for(lambda: child.ended or scene.world.effects(), "an effect")
            child.send(signal.SIGKILL)
        return child.wait()

    first = [ship() for _ in range(4)]
    assert set(first) <= {FULL, -signal.SIGKILL}
    if not killed:
        assert first == [FULL] * 4, "a typed error, and never a hang"
    assert 0 < len(scene.world.acks()) < PARCELS or killed
    (crowded_disk / "ballast").unlink()
    killed = False
    assert ship() == 0
    assert scene.world.effects() == {f"parcel-{number}": 1 for number in range(PARCELS)}
    assert stage.fork_server.run("tests.crash.billing_program:sound", scene.folder, store=f"{crowded_disk}/{FILE}") == 0


@pytest.mark.parametrize("crowded_disk", ["ext4"], indirect=True)
def test_a_full_disk_with_small_blocks_is_an_error_and_no_sigbus(stage: Stage, crowded_disk: Path) -> None:
    """SQLite writes to one block of each page of its index, and maps whole pages: too few blocks would kill it."""
    scene = stage.scene("forking_programs:ship")

    def ship() -> int:
        arguments = {"disk": str(crowded_disk), "parcels": 2, "colour": "sync"}
        return stage.fork_server.start("tests.crash.forking_programs:ship", scene.folder, **arguments).wait()

    assert stage.fork_server.run("tests.crash.child_programs:statuses", scene.folder, store=str(crowded_disk)) == 0
    for kilobytes in (28, 12, 11, 10, 9, 8):
        with open(crowded_disk / "ballast", "ab", buffering=0) as ballast:
            while os.statvfs(crowded_disk).f_bavail > kilobytes:
                ballast.write(bytes(1024))
                os.fsync(ballast.fileno())
        assert ship() == FULL
    (crowded_disk / "ballast").unlink()
    assert ship() == 0
    assert scene.world.effects() == {"parcel-0": 1, "parcel-1": 1}


@pytest.mark.parametrize("crowded_disk", ["ext4"], indirect=True)
def test_the_index_of_the_log_has_no_holes(crowded_disk: Path) -> None:
    """A write to a hole of a mapped file on a full disk is SIGBUS, long after the store was opened."""
    with closing(open_store(f"sqlite:///{crowded_disk}/{FILE}")):
        assert os.stat(crowded_disk / f"{FILE}-shm").st_blocks * 512 >= INDEX_BYTES


def test_a_file_that_may_not_grow(stage: Stage) -> None:
    """The system says no without saying why: the process is fenced, and an agent that is opened again goes on."""
    scene = stage.scene("forking_programs:outgrow")
    assert stage.fork_server.run("tests.crash.forking_programs:outgrow", scene.folder) == 0
    lines = scene.world.lines()
    [error] = [line[1] for line in lines if line[0] == "error"]
    [writes] = [line[1] for line in lines if line[0] == "writes"]
    assert (error, writes) in {("StoreFenced", "StoreFenced"), ("StorageFull", "StorageFull")}
    first = [line[2] for line in lines if line[0] == "done" and line[1] == "0"]
    second = [line[2] for line in lines if line[0] == "done" and line[1] == "1"]
    assert 0 < len(first) < 40
    assert second == [str(number) for number in range(40)]
