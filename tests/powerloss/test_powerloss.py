"""Guarantee 1: returned means on disk. The power is cut at every point of real workloads, and every image is opened."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import msgspec
import pytest

from tests.budget import sample
from tests.powerloss import judge as j
from tests.powerloss.disk import DROP, KEEP, REORDER, TORN, Disk
from tests.powerloss.explore import Plan, Point, Report, points
from tests.powerloss.vfs import Op
from tests.powerloss.workload import FILE, Recording, Setup

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 850
IMAGES_MIN = 10_000

CHECKPOINT_PAGES = (4, 16, 64, 1000)
"""How often SQLite checkpoints its log into the file: the more often, the more there is to tear."""

# The longest first, so that no core is left with it at the end.
FULL = [Setup(100, threads=True)] + [
    Setup(seed, trusting=seed % 2 == 0, checkpoint_pages=CHECKPOINT_PAGES[seed % len(CHECKPOINT_PAGES)])
    for seed in sample(range(4), 4)
]


def explore(plan: Plan) -> Report:
    """One process per setup, as many at a time as there are cores."""
    parts = [msgspec.structs.replace(plan, setups=[setup]) for setup in plan.setups]
    total = Report()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for report in pool.map(explore_in_process, parts):
            total.add(report)
    return total


def explore_in_process(plan: Plan) -> Report:
    return msgspec.json.decode(in_process(msgspec.json.encode(plan).decode()), type=Report)


def in_process(*arguments: str) -> bytes:
    command = [sys.executable, "-m", "tests.powerloss.explore", *arguments]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run(command, cwd=ROOT, env=environment, timeout=SECONDS_MAX, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.mark.sampled
@pytest.mark.timeout(SECONDS_MAX + 10)
def test_no_power_cut_loses_an_acknowledged_call_or_tears_the_store() -> None:
    report = explore(Plan(FULL, chances=1, closely_every=10, take_up_every=200, deep_every=2000))
    assert report.verdicts == {j.OK: report.images}, report.bad
    assert set(report.taken_up) == {j.OK}, report.bad
    assert report.images >= IMAGES_MIN
    assert report.closely >= 1_000
    assert report.taken_up[j.OK] >= 30
    assert report.deep >= 2
    assert report.acked >= 250


def test_durability_process_may_lose_the_last_calls_but_nothing_else() -> None:
    setups = [Setup(seed, durability="process", checkpoint_pages=16) for seed in (1, 2)]
    report = explore(Plan(setups, chances=1, closely_every=4))
    assert report.verdicts.get(j.LOST, 0) > 0, "the harness does not notice what NORMAL gives up"
    assert set(report.verdicts) == {j.OK, j.LOST}, report.bad


def test_without_syncs_the_store_is_corrupted() -> None:
    report = explore(Plan([Setup(1, synchronous="OFF"), Setup(2, synchronous="OFF")], chances=1))
    assert report.verdicts.get(j.CORRUPT, 0) > 0
    assert report.verdicts.get(j.LOST, 0) > 0


@pytest.mark.soak
def test_no_power_cut_loses_anything_however_long_we_try() -> None:
    setups = [
        Setup(seed, threads=seed % 5 == 0, trusting=seed % 2 == 0, checkpoint_pages=CHECKPOINT_PAGES[seed % 4])
        for seed in range(1000, 1100)
    ]
    for start in range(0, len(setups), 10):
        report = explore(Plan(setups[start : start + 10], chances=3, take_up_every=100, deep_every=500))
        assert report.verdicts == {j.OK: report.images}, report.bad
        assert set(report.taken_up) == {j.OK}, report.bad


# -- the harness itself ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recording() -> Recording:
    return msgspec.msgpack.decode(in_process("record", '{"seed": 3}'), type=Recording)


@pytest.fixture
def judge(recording: Recording) -> Iterator[j.Judge]:
    with j.Judge(recording) as item:
        yield item


def cuts(recording: Recording) -> Iterator[Point]:
    """One by one: all their images at once would make this process large, and every fork of later tests slow."""
    return points(recording, random.Random(1), 1)


@pytest.fixture(scope="module")
def end(recording: Recording) -> Point:
    """The last cut."""
    [last] = deque(cuts(recording), maxlen=1)
    return last


def test_an_early_acknowledgement_is_noticed(recording: Recording, judge: j.Judge) -> None:
    last = len(recording.history) - 1
    verdicts = [judge.judge(cut.image, min(cut.acked + 1, last), closely=False)[0] for cut in cuts(recording)]
    assert verdicts.count(j.LOST) > len(verdicts) // 4
    assert set(verdicts) <= {j.OK, j.LOST}


@pytest.mark.parametrize(
    ("damage", "verdict"),
    [
        ("DELETE FROM journal WHERE id = (SELECT max(id) FROM journal WHERE id >> 32 = 2)", j.GAP),
        ("DELETE FROM journal WHERE id = (2 << 32) | 3", j.GAP),
        ("UPDATE journal SET body = zeroblob(40) WHERE id = (SELECT max(id) FROM journal)", j.CORRUPT),
        ("DELETE FROM objects", j.CORRUPT),
        ("DELETE FROM run_state", j.VIEW),
        ("UPDATE runs SET changed_at = 0", j.VIEW),
        ("DROP TABLE answers", j.CORRUPT),
        ("DELETE FROM journal WHERE id >= (SELECT max(id) FROM journal)", j.LOST),
    ],
)
def test_what_is_missing_or_changed_is_noticed(end: Point, judge: j.Judge, damage: str, verdict: str) -> None:
    assert judge.judge(end.image, end.acked, closely=True) == (j.OK, "")
    with j.lay_out_image(end.image) as folder:
        connection = apsw.Connection(os.path.join(folder, FILE))
        connection.execute(damage).fetchall()
        connection.close()
        broken = {FILE: Path(folder, FILE).read_bytes()}
    assert judge.judge(broken, end.acked, closely=True)[0] == verdict


def images(disk: Disk, variant: str, tries: int = 60) -> set[bytes | None]:
    rng = random.Random(1)
    return {disk._image(variant, rng).get("f") for _ in range(tries)}


def test_what_is_synced_stays_and_what_is_not_may_go() -> None:
    disk = Disk()
    for op in (Op("write", "f", 0, b"a" * 1024), Op("sync", "f"), Op("write", "f", 0, b"b" * 1024)):
        disk.apply(op)
    assert images(disk, DROP) == {b"a" * 1024}
    assert images(disk, KEEP) == {b"b" * 1024}
    assert images(disk, REORDER) == {b"a" * 1024, b"b" * 1024}
    torn = images(disk, TORN)
    assert torn == {x * 512 + y * 512 for x in (b"a", b"b") for y in (b"a", b"b")}
    disk.apply(Op("sync", "f"))
    assert [image for _, image in disk.images(random.Random(1), 2)] == [{"f": b"b" * 1024}]


def test_writes_are_torn_at_the_sectors_of_the_disk() -> None:
    disk = Disk({"f": bytes(1024)})
    disk.apply(Op("write", "f", 500, b"x" * 24))
    kept = {image[500:524] for image in images(disk, TORN) if image is not None}
    assert kept == {bytes(24), b"x" * 24, b"x" * 12 + bytes(12), bytes(12) + b"x" * 12}


def test_later_writes_may_arrive_before_earlier_ones() -> None:
    disk = Disk({"f": b""})
    disk.apply(Op("write", "f", 0, b"a"))
    disk.apply(Op("write", "f", 1, b"b"))
    assert images(disk, REORDER) == {b"", b"a", b"ab", b"\0b"}


def test_files_appear_and_disappear_for_good_only_with_their_folder() -> None:
    disk = Disk({"f": b"old"})
    disk.apply(Op("delete", "f", 0))
    assert images(disk, DROP) == {None}
    assert images(disk, REORDER) == {None, b"old"}
    disk.apply(Op("write", "g", 0, b"new"))
    assert {disk._image(DROP, random.Random(1)).get("g")} == {None}
    disk.apply(Op("sync", "g"))
    assert images(disk, REORDER) == {None}


def test_truncating_may_be_undone_too() -> None:
    disk = Disk({"f": b"abcd"})
    disk.apply(Op("trunc", "f", 1))
    assert images(disk, REORDER) == {b"abcd", b"a"}
    assert images(disk, DROP) == {b"abcd"}
