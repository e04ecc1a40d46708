"""What every suite shares beside `perdure.testing.plugin`: stores, Hypothesis profiles, time budgets.

Hypothesis profiles, by PERDURE_HYPOTHESIS:
    ci    the default: 40 examples, always the same, so that a commit has one verdict
    dev   100 new random examples each time
    soak  5,000 random examples; `make soak` uses it, and prints the blob that repeats a failure
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests import budget, session

if TYPE_CHECKING:
    from tests.postgres.cluster import Cluster

pytest_plugins = ["perdure.testing.plugin"]
WANTED = os.environ.get("PERDURE_TEST_STORES", "sqlite,postgres").split(",")

# Read before the environment is cleaned; see `strace`.
STRACE_MISSING = os.environ.get("PERDURE_STRACE_MISSING", "")


def pytest_configure(config: pytest.Config) -> None:
    """Time budgets, stores and Hypothesis; profiles have no deadline, because other processes share the machine."""
    session.install(config)
    budget.install(config)
    # A shell that starts the tests in the background makes them, and all their children, ignore Ctrl-C.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    from perdure.testing.plugin import SESSION_END, STORES  # not before: pytest imports it as a plugin first

    SESSION_END.callback(_end_cluster)
    SESSION_END.callback(_end_fork_servers)
    STORES.update({kind: partial(new_store, kind) for kind in WANTED if kind})
    # Said in full each time: Hypothesis changes its own defaults when it sees CI.
    same: dict[str, Any] = {"deadline": None, "print_blob": True}
    slow = [HealthCheck.too_slow]
    settings.register_profile("dev", **same, derandomize=False, max_examples=100, suppress_health_check=slow)
    settings.register_profile(
        "ci", **same, derandomize=True, max_examples=40, suppress_health_check=slow, database=None
    )
    settings.register_profile(
        "soak", **same, derandomize=False, max_examples=5_000, suppress_health_check=list(HealthCheck)
    )
    settings.load_profile(os.environ.get("PERDURE_HYPOTHESIS") or "ci")


FIRST = ("crash/test_failpoints", "powerloss/")
LAST = ("mutations/",)
"""Files that take long go first, so that no worker is left with one at the end; then those that keep all cores busy."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what SQLite shows as well, and put files in the order in which workers get them."""
    if "sqlite" in WANTED and (repeated := budget.find_repeated_on_postgres(items)):
        for item in repeated:
            item.add_marker("sampled")
        if not budget.IN_SOAK:
            config.hook.pytest_deselected(items=repeated)
            items[:] = [item for item in items if item not in set(repeated)]

    def turn(item: pytest.Item) -> int:
        name = item.nodeid.removeprefix("tests/")
        return -1 if name.startswith(FIRST) else 1 if name.startswith(LAST) else 0

    items.sort(key=turn)


SCHEMAS_MAX = 200
"""Of one server: each takes a megabyte of memory, and makes the next one slower."""

_cluster: Cluster | None = None
_schemas = 0
_starting = threading.Lock()


def new_store(kind: str, folder: Path) -> str:
    """The URL of a new store: a file in the folder, or a schema in the session's PostgreSQL server.

    The server is started by the first test that needs it, and replaced between files when it has many schemas.
    """
    if kind == "sqlite":
        return f"sqlite:///{folder / 'perdure.db'}"
    global _cluster, _schemas
    with _starting:  # crash tests make scenes in several threads
        if _cluster is None or not _cluster.running:
            from tests.postgres.cluster import Cluster

            _cluster, _schemas = Cluster().start(), 0
        _schemas += 1
        return _cluster.url(f"test_{_schemas}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """After the last test of a file nobody has a schema of the server any more."""
    yield
    if _schemas > SCHEMAS_MAX and (nextitem is None or nextitem.path != item.path):
        _end_cluster()


def _end_cluster() -> None:
    global _cluster
    if _cluster is not None:
        from perdure.kernel import engine

        engine._close_all()  # what tests have left open says goodbye while there is somebody to say it to
        _cluster.close()
        _cluster = None


def _end_fork_servers() -> None:
    """Those of crashtest end with their process, which is too late for a session without workers."""
    if crashtest := sys.modules.get("perdure.testing.crashtest.processes"):
        crashtest._close_all()


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
