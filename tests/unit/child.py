"""Python in a process of its own, for what one process cannot show."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 200


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
    child.communicate()


BUSY = """
import sys
from perdure import Agent
agent = Agent("busy", store=sys.argv[1], durability="process")
print("ready", flush=True)
for number in range(1_000_000):
    with agent.run(f"run {number}") as run:
        run.state["large"] = f"{number}" * 2000
        run.state["number"] = number
"""


@contextmanager
def run_busy_agent(path: Path) -> Iterator[None]:
    """An agent in another process writes one run after the other, until the block ends."""
    writer = start(BUSY, path)
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        yield
    finally:
        end(writer)


def read_terminal(terminal: int) -> bytes:
    """Read a pseudo-terminal until every process has closed its side, then close ours."""
    pieces = []
    with suppress(OSError):  # how Linux says that the terminal was closed
        while piece := os.read(terminal, 65536):
            pieces.append(piece)
    os.close(terminal)
    return b"".join(pieces)
