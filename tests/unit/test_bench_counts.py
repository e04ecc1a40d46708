"""The counts of docs/about/performance.md in every build: what no noise can blur. Times are for `make bench`.

Counted in child processes, outside of SQLite and Perdure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import rows, sections
from bench.lab import ROOT, Lab
from bench.rows import Row, Verdict
from bench.syncs import Probe, find_probe

CALLS = 12
COUNTED_BY_HAND = """
import os, sys, threading
from bench.syncs import counter
count, file = counter(), os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)
for sync in (os.fsync, os.fdatasync, os.fsync):
    sync(file)
threads = [threading.Thread(target=os.fdatasync, args=(file,)) for _ in range(4)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
print(count())
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(quick=True, base=tmp_path_factory.mktemp("bench"))
    yield lab
    lab.close()


@pytest.fixture(scope="module")
def found(lab: Lab) -> dict[str, Any]:
    counts: dict[str, Any] = lab.measure("counts", calls=CALLS)
    return counts


@pytest.fixture
def syncs(lab: Lab, found: dict[str, Any]) -> dict[str, list[int]]:
    if not lab.probe.name:
        pytest.skip("syncs are counted with a C compiler or with strace, and neither works here")
    return {name: one["syncs"] for name, one in found.items()}


def test_a_step_is_one_sync_and_an_effect_two(syncs: dict[str, list[int]]) -> None:
    assert syncs["step"] == [1]
    assert syncs["effect"] == [2]


def test_writes_in_the_open_and_items_are_one_sync(syncs: dict[str, list[int]]) -> None:
    assert syncs["message"] == syncs["state in the open"] == syncs["item"] == [1]


def test_a_run_is_one_sync_to_open_and_one_to_close(syncs: dict[str, list[int]]) -> None:
    assert syncs["run opened"] == syncs["run closed"] == [1]


def test_a_finished_run_is_replayed_without_a_sync(syncs: dict[str, list[int]]) -> None:
    assert syncs["finished run replayed"] == [0]


def test_the_first_run_makes_the_store_in_few_syncs(syncs: dict[str, list[int]]) -> None:
    # The file, its log, the schema, the home, the key and its folder, holder, agent and run.
    assert syncs["first run opened"][0] <= 17


@pytest.mark.parametrize(
    ("operation", "statements"),
    [
        ("step", "BEGIN INSERT COMMIT"),
        ("effect", "BEGIN INSERT COMMIT BEGIN INSERT COMMIT"),
        ("message", "BEGIN INSERT COMMIT"),
        ("state in the open", "BEGIN INSERT INSERT COMMIT"),
        ("state of the agent", "BEGIN SELECT SELECT INSERT INSERT INSERT INSERT COMMIT"),
        ("item", "BEGIN INSERT INSERT COMMIT"),
    ],
)
def test_statements(found: dict[str, Any], operation: str, statements: str) -> None:
    assert found[operation]["statements"] == [statements]


@pytest.mark.parametrize(("operation", "most"), [("run opened", 12), ("run closed", 9), ("finished run replayed", 4)])
def test_statements_around_a_run(found: dict[str, Any], operation: str, most: int) -> None:
    [statements] = found[operation]["statements"]
    assert len(statements.split()) <= most


def test_replaying_a_finished_run_writes_nothing(found: dict[str, Any]) -> None:
    [statements] = found["finished run replayed"]["statements"]
    assert {"INSERT", "UPDATE", "DELETE"}.isdisjoint(statements.split())
    assert found["finished run replayed"]["pages"] == 0


def test_a_step_writes_the_pages_of_a_bare_commit(lab: Lab, found: dict[str, Any]) -> None:
    bare = lab.measure("pages", calls=CALLS)["pages"]
    # Entries are a little longer than a bare row: they fill a page, and open the next one, a little sooner.
    assert found["step"]["pages"] <= bare * 1.1


def test_few_functions_run_for_a_call(lab: Lab) -> None:
    """More of them take processor time from every step, most of all after a sync, when the caches are cold."""
    for name, functions in lab.measure("python", calls=CALLS).items():
        assert functions <= sections.PYTHON_CALLS_MAX[name], name


def test_bytes_of_a_step(lab: Lab) -> None:
    size = lab.measure("bytes", steps=100)["bytes"]
    assert 1024 < size <= sections.BYTES_PER_STEP_MAX


@pytest.mark.parametrize("kind", ["asyncio", "threads"])
def test_64_runs_share_syncs(lab: Lab, kind: str) -> None:
    if not lab.probe.name:
        pytest.skip("syncs are counted with a C compiler or with strace, and neither works here")
    # With the slow syncs of an ordinary disk, whatever this one is: the others queue up meanwhile, however the
    # machine schedules them. In memory a sync takes no time, and threads have nothing to share.
    measured = lab.measure("concurrent", kind=kind, runs=64, steps=5, alone=2, pairs=2, delay_us=2000)
    assert measured["syncs_per_step"] <= 0.15


# -- the counting itself --------------------------------------------------------------------------------------


def count_by(probe: Probe, folder: Path) -> int:
    trace = folder / "trace.txt"
    command = probe.command([sys.executable, "-c", COUNTED_BY_HAND, str(folder / "file")], trace, 0)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **probe.environment(trace, 0)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_preloading_counts_every_sync(lab: Lab, tmp_path: Path) -> None:
    if lab.probe.name != "preload":
        pytest.skip("no C compiler")
    assert count_by(lab.probe, tmp_path) == 7


def test_strace_counts_every_sync(strace: str, tmp_path: Path) -> None:
    assert count_by(Probe("strace", program=strace), tmp_path) == 7


def test_without_a_compiler_strace_counts(strace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "strace").symlink_to(strace)
    (tmp_path / "true").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_probe(tmp_path).name == "strace"
    (tmp_path / "strace").unlink()
    assert find_probe(tmp_path) == Probe()


# -- verdicts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bar", "measured", "verdict"),
    [
        (rows.exactly(1), 1, Verdict.OK),
        (rows.exactly(1), 2, Verdict.FAIL),
        (rows.exactly(1), 0, Verdict.FAIL),
        (rows.at_most(1.3, 1.6), 1.3, Verdict.OK),
        (rows.at_most(1.3, 1.6), 1.31, Verdict.OVER_TARGET),
        (rows.at_most(1.3, 1.6), 1.61, Verdict.FAIL),
        (rows.at_most(10), 10.1, Verdict.FAIL),
        (rows.at_least(8), 8, Verdict.OK),
        (rows.at_least(8), 7.9, Verdict.FAIL),
        (None, 3, Verdict.FIGURE),
        (rows.at_least(8), None, Verdict.NOT_MEASURED),
    ],
)
def test_verdicts(bar: rows.Bar | None, measured: float | None, verdict: Verdict) -> None:
    assert Row("section", "what", measured, bar=bar).verdict is verdict


def test_a_sync_too_many_fails_the_benchmark(lab: Lab, found: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"counts": found | {"step": found["step"] | {"syncs": [1, 2]}}, "pages": {"pages": 2}, "bytes": {"bytes": 2}}
    told["python"] = {"step": 60}
    monkeypatch.setattr(lab, "measure", lambda name, **arguments: told[name])
    failed = [row for row in sections.counts(lab) if row.verdict is Verdict.FAIL]
    assert [(row.what, row.hard) for row in failed] == [("step: syncs", True)]


def test_the_benchmark_runs_and_speaks_json(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "--quick", "--json", "--folder", str(tmp_path), "counts"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert {"step: syncs", "effect: syncs"} <= {row["what"] for row in report["rows"]}
    assert list(tmp_path.iterdir()) == []
