"""`perdure demo`: kills an agent of 50 tool calls twice with SIGKILL, resumes it, and counts every call.

`agent.py` is the agent. This module starts its processes and removes what they leave; `evidence.py` checks the claims.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
import msgspec

from perdure.demo.evidence import CALLS, DemoProcess, count, examine, look

KILLS = ("effect.intent:after#14", "effect.outcome:before#2", "")
"""Where each process dies. The 14th intent is call 47: 13 comments precede it. The last process finishes."""
LIFE_SECONDS_MAX = 120.0


def run_demo(*, json: bool, plain: bool, folder: Path | None) -> int:
    """Play the demo. Returns 0 if every claim holds, 1 if one does not, 2 if `folder` is not empty.

    The files are removed at the end, unless a folder was given or a claim does not hold.
    """
    if folder is not None and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        print(f"error: {folder} is not an empty folder; the demo needs one", file=sys.stderr)
        return 2
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    place = folder.absolute() if folder is not None else Path(tempfile.mkdtemp(prefix="perdure-demo-"))
    screen, ok = Screen(json, plain), True  # an exception, such as Ctrl-C, leaves nothing behind
    try:
        ok = _report(place, screen, play(place, screen), kept=folder is not None)
    finally:
        if ok and folder is None:
            shutil.rmtree(place)
    return 0 if ok else 1


class Screen(msgspec.Struct, frozen=True):
    """Prints lines for people, coloured in a terminal."""

    silent: bool = False
    plain: bool = True

    def show(self, text: str, color: str | None = None) -> None:
        """Print a line."""
        if not self.silent:
            click.secho(text, fg=color, bold=color is not None, color=False if self.plain else None)
            sys.stdout.flush()


def play(folder: Path, screen: Screen) -> list[DemoProcess]:
    """Start one process after the other. Each continues where the one before was killed."""
    screen.show(f"An agent of {CALLS} tool calls is killed twice with SIGKILL, and continues.")
    lives: list[DemoProcess] = []
    for number, kill in enumerate(KILLS, 1):
        remembered = lives[-1].journal.done if lives else 0
        # The agent must not see PERDURE_* variables of the user's shell.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
        environment |= {"PERDURE_FAILPOINT": kill} if kill else {}
        output = subprocess.DEVNULL if screen.silent else None  # the agent prints its calls
        command = [sys.executable, "-m", "perdure.demo.agent"]
        with subprocess.Popen(command, cwd=folder, env=environment, stdout=output) as process:
            try:
                screen.show(f"process {number} (pid {process.pid}): {remembered} calls in the journal", "cyan")
                code = process.wait(LIFE_SECONDS_MAX)
            finally:
                process.kill()  # Ctrl-C must leave no process behind
                process.wait()
        life = look(folder, DemoProcess(number, process.pid, remembered, code))
        lives.append(life)
        told = f"SIGKILL in call {life.journal.done + 1}: {life.died_in}" if life.killed else f"exit code {code}"
        screen.show(f"  {told}", "red" if code else "green")
    return lives


def _report(folder: Path, screen: Screen, lives: list[DemoProcess], kept: bool) -> bool:
    claims, counts = examine(folder, lives), count(folder, lives)
    ok = all(claims.values())
    screen.show("")
    for claim, holds in claims.items():
        screen.show(f"{'ok  ' if holds else 'FAIL'} {claim}", None if holds else "red")
    again = "A restart from zero after each death would have repeated {calls} calls and {effects} effects."
    screen.show(f"     {again.format_map(counts['spared'])}")
    verdict = "Every claim was verified by counting" if ok else "A claim does not hold"
    place = f"; the files are in {folder}" if kept or not ok else ""
    screen.show(f"\n{verdict}{place}.", "green" if ok else "red")
    if screen.silent:
        facts: dict[str, Any] = {"ok": ok, **counts, "folder": str(folder) if place else None, "lives": lives}
        facts["claims"] = [{"claim": claim, "holds": holds} for claim, holds in claims.items()]
        print(msgspec.json.format(msgspec.json.encode(facts)).decode())
    return ok
