"""The processes of the demo: each lives until it is killed or done, and is watched through the files it writes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from .. import records as r
from ..errors import RunNotFound
from ..sync import Agent

AGENT = "coder"
RUN = "pull-request-482"
CALLS = 50
KILLED_AT = 47

# Where each process dies; the last one lives. The 14th intent is that of call 47: thirteen comments came before.
# The second process makes up for call 47, so the second outcome that it wants to record is that of call 48.
KILLS = ("effect.intent:after#14", "effect.outcome:before#2", "")

LIFE_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.03


class Call(msgspec.Struct, frozen=True):
    """A tool call that was really executed: a line of calls.txt."""

    pid: int
    tool: str
    task: str


class Effect(msgspec.Struct, frozen=True):
    """A change of the world: a line of outside.txt."""

    key: str
    task: str


class Journal(msgspec.Struct, frozen=True):
    """What the store knows of the run. Its keys are those of the lines in outside.txt."""

    status: str = "not started"
    done: int = 0
    """Calls whose outcome is recorded."""
    effects: tuple[str, ...] = ()
    """Keys of the effects among them."""
    in_doubt: tuple[Effect, ...] = ()
    """Effects that were begun, and of which nothing else is recorded."""
    begun_again: tuple[str, ...] = ()
    """Keys of effects in doubt that ran, because their check said that they had not happened."""
    adopted: tuple[str, ...] = ()
    """Keys of effects in doubt that did not run, because their check said that they had happened."""


class Life(msgspec.Struct, frozen=True):
    """One process, from its start to its end; while it lives, as far as it has come."""

    number: int
    pid: int
    remembered: int
    """Calls whose outcome the journal knew when it started."""
    adopted: int = 0
    """Calls that had happened before, unrecorded: the check finds them."""
    executed: tuple[Call, ...] = ()
    exit_code: int | None = None
    seconds: float = 0.0
    journal: Journal = Journal()
    """As it stood when the process had ended."""
    outside: tuple[Effect, ...] = ()
    """The same for the world."""

    @property
    def killed(self) -> bool:
        """Whether SIGKILL ended it."""
        return self.exit_code == -signal.SIGKILL

    @property
    def died_in(self) -> str:
        """The call that it was in."""
        return ", ".join(effect.task for effect in self.journal.in_doubt)

    @property
    def before(self) -> int:
        """Calls that it has no need to execute."""
        return self.remembered + self.adopted

    @property
    def position(self) -> int:
        """The number of the call that it executes now, or executed last."""
        return self.before + len(self.executed)


def play(folder: Path, watch: Callable[[Life], None]) -> list[Life]:
    """Start the agent, have it killed, start it again, until it is done."""
    lives: list[Life] = []
    for number, kill in enumerate(KILLS, start=1):
        for life in _live(folder, number, kill):
            watch(life)
        lives.append(life)
    return lives


def _live(folder: Path, number: int, kill: str) -> Iterator[Life]:
    remembered = read_journal(folder).done
    adopted = len(read_calls(folder)) - remembered
    begun = time.monotonic()
    with _process(folder, number, kill) as process:
        life = Life(number, process.pid, remembered, adopted)
        while process.poll() is None:
            if time.monotonic() - begun > LIFE_SECONDS_MAX:
                raise TimeoutError(f"process {process.pid} of the demo is still at work after {LIFE_SECONDS_MAX:g} s")
            yield msgspec.structs.replace(life, executed=_executed(folder, process.pid))
            time.sleep(LOOK_SECONDS)
    yield msgspec.structs.replace(
        life,
        executed=_executed(folder, process.pid),
        exit_code=process.returncode,
        seconds=time.monotonic() - begun,
        journal=read_journal(folder),
        outside=read_outside(folder),
    )


@contextmanager
def _process(folder: Path, number: int, kill: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the agent, which kills itself with SIGKILL where `kill` says."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
    if kill:
        environment["PERDURE_FAILPOINT"] = kill
    command = [sys.executable, "-m", "perdure.demo.agent"]
    with open(folder / f"process-{number}.txt", "wb") as output:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output)
        try:
            yield process
        finally:
            process.kill()  # does nothing to one that has ended; after Ctrl-C nothing stays behind
            process.wait()


def _executed(folder: Path, pid: int) -> tuple[Call, ...]:
    return tuple(call for call in read_calls(folder) if call.pid == pid)


def read_calls(folder: Path) -> tuple[Call, ...]:
    """Every execution of a tool, in order."""
    rows = [line.split(" ", 2) for line in _lines(folder / "calls.txt")]
    return tuple(Call(int(pid), tool, task) for pid, tool, task in rows)


def read_outside(folder: Path) -> tuple[Effect, ...]:
    """Everything that happened outside, in order."""
    return tuple(Effect(*line.split(" ", 1)) for line in _lines(folder / "outside.txt"))


def _lines(file: Path) -> list[str]:
    """Whole lines only: the last one may be on its way."""
    if not file.exists():
        return []
    return [line[:-1] for line in file.read_text("utf-8").splitlines(keepends=True) if line.endswith("\n")]


def read_journal(folder: Path) -> Journal:
    """Ask the store, as any other process may."""
    if not (folder / "coder.db").exists():
        return Journal()
    agent = Agent(AGENT, store=folder / "coder.db")
    try:
        info = agent.runs.get(RUN)
    except RunNotFound:
        return Journal()
    finally:
        agent.close()
    key_of = {e.seq: e.record.key for e in info.events if isinstance(e.record, r.EffectIntended)}
    records = [event.record for event in info.events]
    effects = [record for record in records if isinstance(record, r.EffectDone)]
    return Journal(
        status=info.status,
        done=sum(isinstance(record, r.StepDone | r.EffectDone) for record in records),
        effects=tuple(key_of[effect.intent] for effect in effects),
        in_doubt=tuple(Effect(effect.key, effect.arguments["what"]) for effect in info.in_doubt),
        begun_again=tuple(key_of[record.intent] for record in records if isinstance(record, r.EffectAgain)),
        adopted=tuple(key_of[effect.intent] for effect in effects if effect.how == "check"),
    )
