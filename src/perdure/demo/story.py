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
from ..leases import lease_of
from ..objects import unpack
from ..run.ledger import Ledger
from ..runs import RunInfo, get_run
from ..store import Store, open_store
from .host import INNER_PID, command_on
from .stage import Stage

AGENT = "coder"
RUN = "pull-request-482"
CALLS = 50
KILLED_AT = 47

# Where each process dies; the last one lives. The 14th intent is that of call 47: thirteen comments came before.
# The second process makes up for call 47, so the second outcome that it wants to record is that of call 48.
KILLS = ("effect.intent:after#14", "effect.outcome:before#2", "")

LIFE_SECONDS_MAX = 120.0
LOOK_SECONDS = 0.03
LOOK_AT_LEASE_SECONDS = 0.1
LOOK_AT_DOUBT_SECONDS = 1.0


class Call(msgspec.Struct, frozen=True):
    """A tool call that was really executed: a line of calls.txt."""

    host: str
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
    hosts: tuple[str, ...] = ()
    """Where the processes were that had the run, one after the other."""


class Wait(msgspec.Struct, frozen=True):
    """Nobody can see from here that a process on another host is dead: its lease has to run out."""

    host: str
    seconds_left: float
    """By the clock of the server."""


class Life(msgspec.Struct, frozen=True):
    """One process, from its start to its end; while it lives, as far as it has come."""

    number: int
    host: str
    pid: int
    """As it sees itself; 0 before it is started."""
    remembered: int
    """Calls whose outcome the journal knew when it started."""
    adopted: int = 0
    """Calls that had happened before, unrecorded: the check finds them."""
    wait: Wait | None = None
    """What it has to wait for before it is started."""
    waited: float = 0.0
    asks: str = ""
    """The effect in doubt that it waits for, after its start: a process on another host might still be at it."""
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


def play(stage: Stage, watch: Callable[[Life], None]) -> list[Life]:
    """Start the agent, have it killed, start it again, until it is done."""
    lives: list[Life] = []
    for number, kill in enumerate(KILLS, start=1):
        for life in _live(stage, number, kill):
            watch(life)
        lives.append(life)
    return lives


def _live(stage: Stage, number: int, kill: str) -> Iterator[Life]:
    remembered = read_journal(stage).done
    adopted = len(read_calls(stage.folder)) - remembered
    life = Life(number, stage.hosts[number - 1] if stage.hosts else os.uname().nodename, 0, remembered, adopted)
    begun = time.monotonic()
    for wait in _waits(stage):
        yield msgspec.structs.replace(life, wait=wait)
        life = msgspec.structs.replace(life, waited=time.monotonic() - begun)
    begun = time.monotonic()
    with _process(stage, number, kill) as process:
        life = msgspec.structs.replace(life, pid=INNER_PID if stage.hosts else process.pid)
        yield from _progress(stage, life, process)
    yield msgspec.structs.replace(
        life,
        executed=_executed(stage, life),
        exit_code=process.returncode,
        seconds=time.monotonic() - begun,
        journal=read_journal(stage),
        outside=read_outside(stage.folder),
    )


def _progress(stage: Stage, life: Life, process: subprocess.Popen[bytes]) -> Iterator[Life]:
    until, asked = time.monotonic() + LIFE_SECONDS_MAX, time.monotonic()
    while process.poll() is None:
        if time.monotonic() > until:
            raise TimeoutError(f"process {process.pid} of the demo is still at work after {LIFE_SECONDS_MAX:g} s")
        executed = _executed(stage, life)
        if stage.hosts and not executed and time.monotonic() > asked + LOOK_AT_DOUBT_SECONDS:
            journal, asked = read_journal(stage), time.monotonic()
            doubt = journal.in_doubt if journal.status == "waiting" else ()
            life = msgspec.structs.replace(life, asks=", ".join(effect.task for effect in doubt))
        yield msgspec.structs.replace(life, executed=executed, asks="" if executed else life.asks)
        time.sleep(LOOK_SECONDS)


def _waits(stage: Stage) -> Iterator[Wait]:
    """Until the run can be taken over: at once, when the last holder can be seen to be dead, else by its lease."""
    if not _is_there(stage):
        return
    store = open_store(stage.store)
    try:
        while rows := store.read("get_run", (AGENT, RUN)):
            [row] = store.read("read_lease", (rows[0][0], store.clock.boot_ms()))
            lease = lease_of(row, store.one_host)
            if lease.process is None or not lease.alive():
                return
            yield Wait(lease.process.host, lease.left_ms / 1000)
            time.sleep(LOOK_AT_LEASE_SECONDS)
    finally:
        store.close()


@contextmanager
def _process(stage: Stage, number: int, kill: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the agent, which kills itself with SIGKILL where `kill` says."""
    command = [sys.executable, "-m", "perdure.demo.agent"]
    if stage.hosts:
        command = command_on(stage.hosts[number - 1], *command)
    with open(stage.folder / f"process-{number}.txt", "wb") as output:
        process = subprocess.Popen(command, cwd=stage.folder, env=stage.environment(kill), stdout=output, stderr=output)
        try:
            yield process
        finally:
            process.kill()  # does nothing to one that has ended; after Ctrl-C nothing stays behind
            process.wait()


def _executed(stage: Stage, life: Life) -> tuple[Call, ...]:
    return tuple(call for call in read_calls(stage.folder) if (call.host, call.pid) == (life.host, life.pid))


def read_calls(folder: Path) -> tuple[Call, ...]:
    """Every execution of a tool, in order."""
    rows = [line.split(" ", 3) for line in _lines(folder / "calls.txt")]
    return tuple(Call(host, int(pid), tool, task) for host, pid, tool, task in rows)


def read_outside(folder: Path) -> tuple[Effect, ...]:
    """Everything that happened outside, in order."""
    return tuple(Effect(*line.split(" ", 1)) for line in _lines(folder / "outside.txt"))


def _lines(file: Path) -> list[str]:
    """Whole lines only: the last one may be on its way."""
    if not file.exists():
        return []
    return [line[:-1] for line in file.read_text("utf-8").splitlines(keepends=True) if line.endswith("\n")]


def _is_there(stage: Stage) -> bool:
    """Whether there is a store: looking for a file must not make one."""
    return bool(stage.url) or (stage.folder / "coder.db").exists()


def read_journal(stage: Stage) -> Journal:
    """Ask the store, as any other process may."""
    if not _is_there(stage):
        return Journal()
    store = open_store(stage.store)
    try:
        return _journal_of(store, get_run(store, AGENT, RUN))
    except RunNotFound:
        return Journal()
    finally:
        store.close()


def _journal_of(store: Store, info: RunInfo) -> Journal:
    key_of = {e.seq: e.record.key for e in info.events if isinstance(e.record, r.EffectIntended)}
    records = [event.record for event in info.events]
    effects = [record for record in records if isinstance(record, r.EffectDone)]
    return Journal(
        status=info.status,
        done=sum(isinstance(record, r.StepDone | r.EffectDone) for record in records),
        effects=tuple(key_of[effect.intent] for effect in effects),
        # `info.in_doubt` would say that they are under way for as long as the lease lasts; but we have seen the death.
        in_doubt=tuple(Effect(it.key, unpack(store, it.arguments)["what"]) for it in Ledger(info.events).in_doubt()),
        begun_again=tuple(key_of[record.intent] for record in records if isinstance(record, r.EffectAgain)),
        adopted=tuple(key_of[effect.intent] for effect in effects if effect.how == "check"),
        hosts=tuple(record.holder.host for record in records if isinstance(record, r.RunStarted | r.RunResumed)),
    )
