"""Runs `framework_suites.py` in a process of its own.

Importing the SDKs takes seconds and hundreds of megabytes. As a test file it would cost every worker that much while it
collects.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

SUITES = Path(__file__).with_name("framework_suites.py")


def test_our_stores_pass_the_suites_of_frameworks() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(SUITES)]
    ended = subprocess.run(command, cwd=SUITES.parents[2], env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    passed = re.search(r"(\d+) passed", ended.stdout)
    assert passed is not None and int(passed[1]) >= 33, ended.stdout
