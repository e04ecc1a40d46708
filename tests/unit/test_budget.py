"""The table of time budgets, and the fixed sample of long campaigns."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import budget as budgets
from tests.budget import HERE, SUITE_SECONDS_MAX, TOTAL_SECONDS_MAX, Budget, sample

Result = subprocess.CompletedProcess[str]


def session(folder: Path, seconds: float) -> Result:
    """Run pytest over two suites of one test each, which report that they took that long."""
    for suite in ("tidy", "model"):
        (folder / "tests" / suite).mkdir(parents=True)
        (folder / "tests" / suite / f"test_{suite}.py").write_text("def test_slow(): pass\n")
    (folder / "took.py").write_text(
        "import pytest\n"
        "@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_runtest_logreport(report):\n"
        f"    report.duration = {seconds} if report.when == 'call' else 0\n"
    )
    plugins = ["-p", "no:cacheprovider", "-p", "took", "-p", "tests.budget"]
    # The real tests package is found behind the folder's own, which has no __init__.py.
    environment = {"PYTHONPATH": f"{folder}:{HERE.parent}", "PATH": os.environ["PATH"]}
    command = [sys.executable, "-m", "pytest", *plugins, "--rootdir", str(folder), "tests"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_suite_over_its_budget_is_marked_and_fails_nothing(tmp_path: Path) -> None:
    result = session(tmp_path, 31)
    assert result.returncode == 0, result.stdout
    assert "model           31.0 s of   30 s  OVER" in result.stdout
    assert "tidy            31.0 s of   60 s\n" in result.stdout


def test_only_folders_of_tests_are_suites() -> None:
    budget = Budget({})
    assert budget.suite_of("tests/crash/deep/test_x.py::test_y[a/b]") == "crash"
    assert budget.suite_of("tests/test_x.py::test_y") is None


def test_every_suite_has_a_budget() -> None:
    suites = {path.name for path in HERE.iterdir() if any(path.glob("test_*.py"))}
    assert suites == set(SUITE_SECONDS_MAX)
    assert max(SUITE_SECONDS_MAX.values()) < TOTAL_SECONDS_MAX


def test_the_sample_is_fixed_and_soak_takes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "IN_SOAK", False)
    assert sample(range(10), 4) == range(0, 12, 4)
    monkeypatch.setattr(budgets, "IN_SOAK", True)
    assert sample(range(10), 4) == range(10)
