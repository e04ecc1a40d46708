"""How long each suite takes, and which part of a long campaign `make test` takes.

A suite is a folder of tests/. Its time is the sum of setup, call and teardown of its tests. `make test` runs three at
a time, because tests wait for a third of their time. Budgets are for two idle cores. A suite over its budget is marked
in the table at the end and fails nothing: the same commit has the same verdict on a slow machine.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

SUITE_SECONDS_MAX = {
    "unit": 330,
    "model": 30,
    "conformance": 480,
    "adapters": 170,
    "server": 120,
    "mcp": 45,
    "page": 60,
    "simulation": 160,
    "crash": 560,
    "postgres": 330,
    "powerloss": 160,
    "mutations": 360,
    "releases": 40,
    "load": 60,
    "docs": 90,
    "tidy": 60,
}

TOTAL_SECONDS_MAX = 12 * 60
"""From the first test to the last; setting up and `make check` take a minute more."""

HERE = Path(__file__).parent

IN_SOAK = os.environ.get("PERDURE_HYPOTHESIS") == "soak"

ABOVE_THE_STORE = frozenset(
    f"tests/conformance/test_{name}.py"
    for name in (
        "async", "attributes", "awaitables", "block_end", "branches", "child_processes", "code_changes",
        "context", "cost", "effects", "effects_in_doubt", "nesting", "parallel", "released_errors",
        "replay_check", "replay_check_limits", "replay_check_resume", "replay_differs", "running_bodies",
        "state_copies", "state_run", "steps", "unstorable_results", "values", "waiting", "workspace",
        "workspace_hostile", "workspace_progress", "wrong_arguments",
    )
)  # fmt: skip
"""Files about code without SQL of its own: it claims, appends and ends runs, as all tests on PostgreSQL do."""

POSTGRES_PARTS = 4


T = TypeVar("T")


def sample(cases: Sequence[T], parts: int) -> Sequence[T]:
    """Every `parts`-th case, the same ones on every day; `make soak` takes all of them."""
    return cases if IN_SOAK else cases[::parts]


def find_repeated_on_postgres(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Cases that `make test` runs on SQLite only. Of each file above the store, every fourth runs on PostgreSQL too."""
    files: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        file, _, case = item.nodeid.partition("::")
        if file in ABOVE_THE_STORE and "[postgres" in case:
            files[file].append(item)
    return [item for cases in files.values() for number, item in enumerate(cases) if number % POSTGRES_PARTS]


class Budget:
    """Adds up the seconds of each suite and prints them at the end."""

    def __init__(self, limits: Mapping[str, float], *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._clock = clock
        self._began = clock()

    @property
    def total(self) -> float:
        """By the clock: tests run side by side."""
        return self._clock() - self._began

    def suite_of(self, nodeid: str) -> str | None:
        """The folder under tests/ that a test belongs to."""
        parts = nodeid.partition("::")[0].split("/")
        return parts[1] if len(parts) > 2 and parts[0] == HERE.name else None

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        suite = self.suite_of(report.nodeid)
        if suite is not None:
            self.seconds[suite] += report.duration

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if len(self.seconds) < 2:
            return
        terminalreporter.section("time budgets")
        for suite, seconds in sorted(self.seconds.items()):
            limit = self.limits.get(suite, 0)
            late = "  OVER" if seconds > limit else ""
            terminalreporter.line(f"{suite:12} {seconds:7.1f} s of {limit:4g} s{late}")
        terminalreporter.line(f"{'by the clock':12} {self.total:7.1f} s of {TOTAL_SECONDS_MAX:4g} s")


def pytest_configure(config: pytest.Config) -> None:
    """Makes this module a plugin (`-p tests.budget`), which is how its own test runs it."""
    install(config)


def install(config: pytest.Config) -> None:
    """Measure this session; of the processes that share its tests, the one that hears of all."""
    if hasattr(config, "workerinput"):
        return
    config.pluginmanager.register(Budget(SUITE_SECONDS_MAX), "perdure-budget")
