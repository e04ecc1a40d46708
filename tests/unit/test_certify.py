"""`perdure.testing`: others can certify a store with the suite that ours must pass, as it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# A store that forgets: now and then it says that something is durable, and it is not.
FORGETFUL = """
from perdure.platform.failpoints import Site
from perdure.store import open_store
from perdure.store.base import Store
from perdure.store.sqlite.store import SqliteStore

def open(url, *, clock, durability):
    kind = Honest if url.startswith("honest") else Forgetful
    return kind(url.partition("://")[2], clock=clock, durability=durability)

class Honest(SqliteStore):
    def __init__(self, path, **options):
        super().__init__(path, **options)
        self.url = f"honest://{path}"

class Forgetful(SqliteStore):
    def __init__(self, path, **options):
        super().__init__(path, **options)
        self.url = f"forgetful://{path}"

    def submit(self, unit):
        if unit.site is not Site.STEP_DONE:
            return super().submit(unit)
        return 0
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `pip install` would lay down, with a package of somebody else's beside it."""
    folder, wheels = tmp_path_factory.mktemp("installed"), tmp_path_factory.mktemp("wheels")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    (folder / "theirs.py").write_text(FORGETFUL)
    info = folder / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[perdure.stores]\nhonest = theirs:open\nforgetful = theirs:open\n")
    return folder


def certify(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "perdure.testing", *arguments],
        cwd=installed,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


CRASH = "test_after_a_kill_finished_steps_are_not_repeated"


OTHERS = ("--ignore-glob=*/test_[!as]*", "--ignore-glob=*/test_a[!s]*", "--ignore-glob=*/test_state*")
"""Modules that need not even be read for it."""


def test_a_store_that_keeps_its_promises_passes(installed: Path) -> None:
    done = certify(installed, "honest://{folder}/x.db", *OTHERS, "-k", f"{CRASH} or test_gather")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_a_store_that_forgets_does_not(installed: Path) -> None:
    done = certify(installed, "forgetful://{folder}/x.db", *OTHERS, "-k", CRASH)
    assert done.returncode == 1, done.stdout + done.stderr
    assert CRASH in done.stdout


def test_the_whole_suite_is_there(installed: Path) -> None:
    done = certify(installed, "honest://{folder}/x.db", "--collect-only", "-q")
    ours = {path.name for path in (ROOT / "tests/conformance").glob("test_*.py")}
    found = {line.partition("::")[0].rpartition("/")[2] for line in done.stdout.splitlines() if "::" in line}
    assert found == ours


def test_without_a_store_it_says_what_it_wants(installed: Path) -> None:
    done = certify(installed)
    assert done.returncode == 2
    assert "usage: python -m perdure.testing URL" in done.stdout
