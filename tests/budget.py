"""How long each suite may take, so that CI stays under 15 minutes for as long as the project lives.

A suite is a folder of tests/. Its time is the sum of setup, call and teardown of its tests, of which `make test` runs
two at a time. Budgets are for two cores of an ordinary CI machine. They are enforced when CI=true or PERDURE_BUDGET=1:
over budget is a failure like any other. On a slower machine PERDURE_BUDGET_FACTOR=2 doubles them all, which is what
`.ci/run` sets, whose machine has slow days. The whole session has a budget too, by the clock.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import date
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

TOTAL_SECONDS_MAX = 13.5 * 60
"""From the first test to the last, on a slow day; setting up and `make check` take a minute more."""

HERE = Path(__file__).parent


T = TypeVar("T")


def of_today(cases: Sequence[T], parts: int) -> Sequence[T]:
    """All of them; in CI, whose time is short, one in so many, and the others on the next days."""
    return cases[date.today().toordinal() % parts :: parts] if in_ci() else cases


def in_ci() -> bool:
    """Whether time is short."""
    return os.environ.get("CI") == "true"


def is_enforced(environment: Mapping[str, str]) -> bool:
    """Whether a suite over its budget fails the session."""
    return environment.get("CI") == "true" or environment.get("PERDURE_BUDGET") == "1"


def factor_of(environment: Mapping[str, str]) -> float:
    """By how much this machine is slower than the one that the budgets are for."""
    return float(environment.get("PERDURE_BUDGET_FACTOR") or 1)


class Budget:
    """Adds up the seconds of each suite; at the end prints them, and fails the suites that took too long."""

    def __init__(
        self,
        limits: Mapping[str, float],
        *,
        enforced: bool,
        factor: float = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = {suite: limit * factor for suite, limit in limits.items()}
        self.limit_of_all = TOTAL_SECONDS_MAX * factor
        self.enforced = enforced
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

    def over(self) -> list[str]:
        """The suites that took longer than they may."""
        return [suite for suite in sorted(self.seconds) if self.seconds[suite] > self.limits.get(suite, 0)]

    def complaints(self) -> dict[str, str]:
        """Why the session fails, by what took too long."""
        found = {f"tests/{suite}": self.complaint(suite) for suite in self.over()}
        if (total := self.total) > self.limit_of_all:
            found["tests"] = f"all tests took {total:.1f} s; their budget is {self.limit_of_all:g} s"
        return found

    def complaint(self, suite: str) -> str:
        """Why a suite fails."""
        if suite not in self.limits:
            return f"tests/{suite} has no time budget: give it one in tests/budget.py"
        return f"tests/{suite} took {self.seconds[suite]:.1f} s; its budget is {self.limits[suite]:g} s"

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        suite = self.suite_of(report.nodeid)
        if suite is not None:
            self.seconds[suite] += report.duration

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self.enforced:
            return
        for where, complaint in self.complaints().items():
            # As a report, so that pytest's closing line, its exit code and its XML all know of it.
            report = pytest.TestReport(
                nodeid=where,
                location=(where, None, "time budget"),
                keywords={},
                outcome="failed",
                longrepr=complaint,
                when="teardown",
            )
            session.config.hook.pytest_runtest_logreport(report=report)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if len(self.seconds) < 2 and not self.enforced:
            return
        terminalreporter.section("time budgets")
        for suite, seconds in sorted(self.seconds.items()):
            limit = self.limits.get(suite, 0)
            late = "  OVER" if seconds > limit else ""
            terminalreporter.line(f"{suite:12} {seconds:7.1f} s of {limit:4g} s{late}")
        terminalreporter.line(f"{'by the clock':12} {self.total:7.1f} s of {self.limit_of_all:4g} s")


def pytest_configure(config: pytest.Config) -> None:
    """Makes this module a plugin (`-p tests.budget`), which is how its own test runs it."""
    install(config)


def install(config: pytest.Config) -> None:
    """Measure this session; of the processes that share its tests, the one that hears of all."""
    if hasattr(config, "workerinput"):
        return
    budget = Budget(SUITE_SECONDS_MAX, enforced=is_enforced(os.environ), factor=factor_of(os.environ))
    config.pluginmanager.register(budget, "perdure-budget")
