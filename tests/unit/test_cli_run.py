"""`perdure run -- PROGRAM`: what crashes is started again, and goes on; what cannot go on is left alone."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import os, signal, sys
from perdure import Agent

agent = Agent("worker")

@agent.step
def work(number):
    with open("world.txt", "a") as world:
        world.write(f"{number} ")
    return number

with agent.run("job") as run:
    for number in range(6):
        work(number)
        if number == int(sys.argv[1]):
            raise ValueError("always here")
        if number in (2, 4) and not os.path.exists(f"killed-{number}"):
            open(f"killed-{number}", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
print("done")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(PROGRAM)
    return tmp_path


def command(folder: Path, *program: str, options: tuple[str, ...] = ()) -> list[str]:
    store = f"sqlite:///{folder / 'perdure.db'}"
    return [sys.executable, "-m", "perdure.cli", "run", "--store", store, "--backoff", "10ms", *options, "--", *program]


def run_supervised(folder: Path, *program: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    line = command(folder, *program, options=options)
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)


def test_a_program_that_is_killed_twice_ends_and_repeats_nothing(folder: Path) -> None:
    ended = run_supervised(folder, sys.executable, "agent.py", "-1", options=("--json",))
    assert ended.returncode == 0
    assert ended.stdout.splitlines()[0] == "done"
    assert json.loads(ended.stdout.partition("\n")[2])["starts"] == 3
    assert (folder / "world.txt").read_text() == "0 1 2 3 4 5 "
    assert ended.stderr.count("it was killed by SIGKILL; restart in 0.01 s, to continue job") == 2


def test_a_crash_that_comes_again_at_the_same_place_is_left_alone(folder: Path) -> None:
    ended = run_supervised(folder, sys.executable, "agent.py", "1")
    assert ended.returncode == 1
    assert ended.stderr.count("ValueError: always here\n") >= 3
    assert "given up: it has crashed 3 times at the same place" in ended.stderr
    assert "last done: step work -> 1" in ended.stderr
    assert "last entry: failed: ValueError: always here" in ended.stderr
    assert (folder / "world.txt").read_text() == "0 1 "


def test_restarts_can_be_limited(folder: Path) -> None:
    ended = run_supervised(folder, sys.executable, "agent.py", "-1", options=("--restarts", "1"))
    assert ended.returncode == 128 + signal.SIGKILL
    assert "given up: it was restarted 1 time" in ended.stderr


def test_what_cannot_be_started_is_told(folder: Path) -> None:
    ended = run_supervised(folder, "no-such-program")
    assert ended.returncode == 2
    assert "no-such-program cannot be started" in ended.stderr


def test_a_program_that_is_stopped_is_not_started_again(folder: Path) -> None:
    (folder / "agent.py").write_text("import time; print('up', flush=True); time.sleep(60)")
    child = subprocess.Popen(
        command(folder, sys.executable, "agent.py"),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None and child.stdout.readline() == "up\n"
    time.sleep(0.05)
    child.send_signal(signal.SIGTERM)
    _, told = child.communicate()
    assert child.returncode != 0
    assert "started again" not in told


def test_a_program_whose_run_is_paused_or_cancelled_is_left_alone(folder: Path) -> None:
    (folder / "agent.py").write_text(
        "import sys\nfrom perdure import Agent\nagent = Agent('worker')\n"
        "with agent.run('job') as run:\n"
        "    getattr(agent.runs, sys.argv[1])('job', by='ann')\n"
        "    run.step(print, sys.argv[1])\n"
    )
    for order, status in (("pause", "paused"), ("pause", "paused"), ("cancel", "cancelled")):
        if order == "cancel":
            subprocess.run([*command(folder)[:3], "resume", "job", *command(folder)[4:6]], cwd=folder, check=True)
        ended = run_supervised(folder, sys.executable, "agent.py", order)
        assert ended.returncode == 1
        assert f"perdure: run job of agent worker is {status} by ann: left alone" in ended.stderr
        assert "started again" not in ended.stderr
