"""Tests see nothing of whoever runs them, and leave nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.testing.plugin import STORES

ROOT = Path(__file__).parents[2]


def test_home_is_empty_and_no_settings_leak(isolate_home: Path) -> None:
    assert Path.home() == isolate_home
    assert list(isolate_home.iterdir()) == []
    # Which model reads memories is said for all tests: loading one takes its time.
    assert [name for name in os.environ if name.startswith(("PERDURE_", "XDG_"))] == ["PERDURE_EMBEDDER"]


@pytest.mark.parametrize("turn", [1, 2])
def test_what_one_test_sets_the_next_does_not_see(turn: int) -> None:
    assert "PERDURE_URL" not in os.environ
    os.environ["PERDURE_URL"] = f"sqlite:///{turn}"
    (Path.home() / "left behind").touch()
    assert len(list(Path.home().iterdir())) == 1


@given(st.integers())
def test_isolation_goes_with_hypothesis(number: int) -> None:
    assert os.environ["HOME"] == str(Path.home())


def test_a_store_url_is_for_one_test(store_url: str, tmp_path: Path) -> None:
    assert list(STORES) == ["sqlite", "postgres"]
    if store_url.startswith("sqlite"):
        assert store_url == f"sqlite:///{tmp_path}/perdure.db"
    else:
        assert "schema=test_" in store_url


def session(folder: Path, test: str, *arguments: str, **environment: str) -> str:
    """Run pytest with our conftest over one test file, and return what it says."""
    (folder / "test_one.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    command += ["-p", "tests.conftest", "--rootdir", str(folder), *arguments, str(folder / "test_one.py")]
    result = subprocess.run(
        command,
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return result.stdout


def test_settings_of_the_caller_do_not_reach_a_test(tmp_path: Path) -> None:
    test = "import os\ndef test_it(): assert 'PERDURE_URL' not in os.environ\n"
    assert "1 passed" in session(tmp_path, test, PERDURE_URL="sqlite:///theirs.db")


def test_soak_tests_wait_for_make_soak(tmp_path: Path) -> None:
    test = "import pytest\n@pytest.mark.soak\ndef test_long(): pass\ndef test_short(): pass\n"
    assert "1 passed, 1 deselected" in session(tmp_path, test)
    assert "test_one.py::test_long PASSED" in session(tmp_path, test, "-v", "-m", "soak")


def test_strace_tests_say_why_they_are_skipped(tmp_path: Path) -> None:
    test = "def test_it(strace): pass\n"
    said = session(tmp_path, test, PATH=str(tmp_path), PERDURE_STRACE_MISSING="no apt-get on this machine")
    assert "strace is not installed (no apt-get on this machine)" in said
    (tmp_path / "strace").write_text("#!/bin/sh\necho ptrace: Operation not permitted >&2; exit 1\n")
    (tmp_path / "strace").chmod(0o755)
    assert "strace may not trace here: ptrace: Operation not permitted" in session(tmp_path, test, PATH=str(tmp_path))


def test_a_warning_fails_a_test(tmp_path: Path) -> None:
    assert "1 failed" in session(tmp_path, "import warnings\ndef test_it(): warnings.warn('x')\n")


@pytest.mark.parametrize(
    ("environment", "profile"),
    [({}, "ci"), ({"PERDURE_HYPOTHESIS": "dev"}, "dev"), ({"CI": "true", "PERDURE_HYPOTHESIS": "soak"}, "soak")],
)
def test_the_profile_of_hypothesis(tmp_path: Path, environment: dict[str, str], profile: str) -> None:
    wanted = {"dev": (100, False), "ci": (40, True), "soak": (5000, False)}[profile]
    test = (
        "from hypothesis import settings\n"
        f"def test_it(): assert (settings().max_examples, settings().derandomize) == {wanted}\n"
    )
    assert "1 passed" in session(tmp_path, test, **environment)
