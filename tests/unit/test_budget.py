"""The time budgets of the suites bite."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.budget import HERE, SUITE_SECONDS_MAX, TOTAL_SECONDS_MAX, Budget, factor_of, is_enforced

Result = subprocess.CompletedProcess[str]


def session(folder: Path, seconds: float, suite: str = "tidy", **environment: str) -> Result:
    """Run pytest over one test that says it took that long."""
    (folder / "tests" / suite).mkdir(parents=True)
    (folder / "tests" / suite / "test_slow.py").write_text("def test_it(): pass\n")
    (folder / "took.py").write_text(
        "import pytest\n"
        "@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_runtest_logreport(report):\n"
        f"    report.duration = {seconds} if report.when == 'call' else 0\n"
    )
    plugins = ["-p", "no:cacheprovider", "-p", "took", "-p", "tests.budget"]
    # The real tests package is found behind the folder's own, which has no __init__.py.
    environment |= {"PYTHONPATH": f"{folder}:{HERE.parent}", "PATH": os.environ["PATH"]}
    command = [sys.executable, "-m", "pytest", *plugins, "--rootdir", str(folder), "tests"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_suite_over_its_budget_fails_the_session(tmp_path: Path) -> None:
    result = session(tmp_path, 61, CI="true")
    assert result.returncode == 1, result.stdout
    assert "tests/tidy took 61.0 s; its budget is 60 s" in result.stdout
    assert "tidy            61.0 s of   60 s  OVER" in result.stdout
    assert "1 passed" in result.stdout.splitlines()[-1]
    assert "1 error" in result.stdout.splitlines()[-1]


def test_a_suite_within_its_budget_passes(tmp_path: Path) -> None:
    result = session(tmp_path, 29, CI="true")
    assert result.returncode == 0, result.stdout
    assert "tidy            29.0 s of   60 s" in result.stdout
    assert "OVER" not in result.stdout


def test_a_slow_machine_has_a_factor(tmp_path: Path) -> None:
    assert session(tmp_path, 61, PERDURE_BUDGET="1", PERDURE_BUDGET_FACTOR="1.5").returncode == 0


def test_nobody_is_held_up_outside_of_ci(tmp_path: Path) -> None:
    assert session(tmp_path, 61).returncode == 0


def test_a_suite_without_a_budget_fails(tmp_path: Path) -> None:
    result = session(tmp_path, 0.1, suite="novel", CI="true")
    assert result.returncode == 1
    assert "tests/novel has no time budget" in result.stdout


@pytest.mark.parametrize(
    ("environment", "enforced", "factor"),
    [
        ({}, False, 1),
        ({"CI": "true"}, True, 1),
        ({"PERDURE_BUDGET": "1", "PERDURE_BUDGET_FACTOR": "2"}, True, 2),
    ],
)
def test_the_environment_decides(environment: dict[str, str], enforced: bool, factor: float) -> None:
    assert is_enforced(environment) is enforced
    assert factor_of(environment) == factor


def test_only_folders_of_tests_are_suites() -> None:
    budget = Budget({}, enforced=True)
    assert budget.suite_of("tests/crash/deep/test_x.py::test_y[a/b]") == "crash"
    assert budget.suite_of("tests/test_x.py::test_y") is None


def test_all_suites_together_leave_ci_under_fifteen_minutes() -> None:
    assert TOTAL_SECONDS_MAX < 14 * 60
    assert max(SUITE_SECONDS_MAX.values()) < TOTAL_SECONDS_MAX
    now = 100.0
    budget = Budget({"one": 900, "other": 900}, enforced=True, clock=lambda: now)
    budget.seconds.update(one=700, other=700)
    now += TOTAL_SECONDS_MAX
    assert budget.complaints() == {}, "side by side"
    now += 1
    assert budget.complaints() == {"tests": "all tests took 811.0 s; their budget is 810 s"}
