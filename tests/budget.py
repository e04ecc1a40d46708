"""How long each suite takes, and which part of a long campaign `make test` takes.

A suite is a folder of tests/. Its time is the sum of setup, call and teardown of its tests, of which `make test` runs
two at a time. Budgets are for two idle cores. A suite over its budget is marked in the table at the end and fails
nothing: the same commit has the same verdict on a slow machine.
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
    "adapters": 90,
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


T = TypeVar("T")


def sample(cases: Sequence[T], parts: int) -> Sequence[T]:
    """Every `parts`-th case, the same ones on every day; `make soak` takes all of them."""
    return cases if IN_SOAK else cases[::parts]


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
