"""A session of the tests that leaves a process or a file behind fails, and names both."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.budget import HERE

TIDY = "import tempfile\ndef test_tidy():\n    with tempfile.TemporaryDirectory():\n        pass\n"
UNTIDY = """
import os, subprocess, sys, tempfile, time
def test_process():
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
def test_fork():
    if os.fork() == 0:
        time.sleep(600)
def test_file():
    tempfile.mkdtemp(prefix="mine-")
"""


def session(folder: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(tests)
    (folder / "plugin.py").write_text(
        "from tests import session\nfrom xdist.workermanage import NodeManager\n"
        "session.ENDING_SECONDS_MAX = NodeManager.EXIT_TIMEOUT = 0.1\npytest_configure = session.install\n"
    )
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "tmp").mkdir()
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{HERE.parent}", "TMPDIR": str(folder / "tmp")}
    command = [sys.executable, "-W", "ignore", "-m", "pytest", "-p", "plugin", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("options", [[], ["-n1"]], ids=["alone", "with a worker"])
def test_leftovers_are_named_and_fail_the_session(tmp_path: Path, options: list[str]) -> None:
    result = session(tmp_path, UNTIDY, *options)
    assert result.returncode == 1, result.stdout
    left = result.stdout.partition("left behind")[2]
    assert "of test_it.py::test_process (call): " in left
    assert left.count("\nprocess ") == 2 and left.count("/mine-") == 1
    pids = [line.split()[1] for line in left.splitlines() if line.startswith("process ")]
    assert not any(is_alive(pid) for pid in pids)


def is_alive(pid: str) -> bool:
    stat = Path("/proc", pid, "stat")
    return stat.exists() and " Z " not in stat.read_text()


def test_a_tidy_session_passes_and_removes_its_folder(tmp_path: Path) -> None:
    result = session(tmp_path, TIDY)
    assert result.returncode == 0, result.stdout
    assert not any((tmp_path / "tmp").iterdir())
