"""What every suite shares: isolation, stores, Hypothesis profiles, time budgets.

Hypothesis profiles, by PERDURE_HYPOTHESIS, else `ci` when CI=true, else `dev`:
    dev   100 new random examples each time
    ci    100 examples, always the same: a red build is the fault of the change, and repeats
    soak  5,000 random examples; `make soak` uses it, and prints the blob that repeats a failure
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import budget

STORES = ["sqlite"]
"""Every test that takes `store_url` runs once per entry; PostgreSQL joins here."""

# Read before the environment is cleaned; see `strace`.
STRACE_MISSING = os.environ.get("PERDURE_STRACE_MISSING", "")


def pytest_configure(config: pytest.Config) -> None:
    """Time budgets and Hypothesis; profiles have no deadline, because other processes share the machine."""
    budget.install(config)
    # Said in full each time: Hypothesis changes its own defaults when it sees CI.
    same: dict[str, Any] = {"deadline": None, "print_blob": True}
    slow = [HealthCheck.too_slow]
    settings.register_profile("dev", **same, derandomize=False, max_examples=100, suppress_health_check=slow)
    settings.register_profile(
        "ci", **same, derandomize=True, max_examples=100, suppress_health_check=slow, database=None
    )
    settings.register_profile(
        "soak", **same, derandomize=False, max_examples=5_000, suppress_health_check=list(HealthCheck)
    )
    default = "ci" if os.environ.get("CI") == "true" else "dev"
    settings.load_profile(os.environ.get("PERDURE_HYPOTHESIS") or default)


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds the home folders."""
    return tmp_path_factory.mktemp("homes")


@pytest.fixture(autouse=True)
def isolated(homes: Path) -> Iterator[Path]:
    """A home folder of its own and no PERDURE_* or XDG_* for each test and its child processes.

    Otherwise a test would open the store of whoever runs it. A test that wants one of these variables sets
    it with `monkeypatch`; all is put back afterwards.
    """
    before = dict(os.environ)
    home = Path(tempfile.mkdtemp(dir=homes))
    for name in [name for name in os.environ if name.startswith(("PERDURE_", "XDG_"))]:
        del os.environ[name]
    os.environ["HOME"] = str(home)
    yield home
    os.environ.clear()
    os.environ.update(before)
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(params=STORES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a new store that no other test uses."""
    assert request.param == "sqlite"
    return f"sqlite:///{tmp_path / 'perdure.db'}"


@pytest.fixture(scope="session")
def strace() -> str:
    """The strace program, known to work here; without it the test is skipped and says why."""
    program = shutil.which("strace")
    if program is None:
        pytest.skip(f"strace is not installed ({STRACE_MISSING or '.ci/run installs it'})")
    probe = subprocess.run(
        [program, "-f", "-o", os.devnull, "true"], capture_output=True, text=True, timeout=20, check=False
    )
    if probe.returncode != 0:
        pytest.skip(f"strace may not trace here: {probe.stderr.strip()}")
    return program
