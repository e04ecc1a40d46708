"""Python in a process of its own, for what one process cannot show."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 40


def environment(**more: str) -> dict[str, str]:
    """The variables of a child: Perdure can be imported there."""
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", **more}


def command(code: str, *args: object) -> list[str]:
    """The words that run a program."""
    return [sys.executable, "-c", textwrap.dedent(code), *map(str, args)]


def run(code: str, *args: object, cwd: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, whatever that is."""
    return subprocess.run(
        command(code, *args),
        cwd=cwd,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def output(code: str, *args: object, cwd: Path | None = None, **more: str) -> str:
    """What a program prints that must end well."""
    done = run(code, *args, cwd=cwd, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def start(code: str, *args: object) -> subprocess.Popen[str]:
    """Begin a program; talk to it by its pipes, and end it."""
    return subprocess.Popen(
        command(code, *args), env=environment(), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def end(child: subprocess.Popen[str]) -> None:
    """Kill it if it still runs, and give its pipes back."""
    child.kill()
    child.communicate(timeout=SECONDS_MAX)
