"""The agent of the workers that are measured: `perdure worker bench.workers.program:agent`.

What a run has to tell goes to a file, one line each, with the time by the clock of the machine.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import apsw

from perdure import Agent, AsyncAgent

from ..workload import Texts

STORE, FOLDER, ASYNC, COUNT = "BENCH_STORE", "BENCH_FOLDER", "BENCH_ASYNC", "BENCH_COUNT"
LONG_SECONDS = 60.0
STEPS = 10


class Notes:
    """A file that workers append to, and that whoever measures reads."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "notes.txt"

    def say(self, *words: object) -> None:
        """One line, with the time in front."""
        fd = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        os.write(fd, f"{time.time_ns()} {' '.join(map(str, words))}\n".encode())
        os.close(fd)

    def read_time(self, *words: object) -> int:
        """The time of a line, in nanoseconds; 0 when it is not there."""
        wanted, lines = " ".join(map(str, words)), self._path.read_text() if self._path.exists() else ""
        return next((int(at) for at, _, said in map(_split_line, lines.splitlines()) if said == wanted), 0)


def _split_line(line: str) -> tuple[str, str, str]:
    return line.partition(" ")


class Tasks:
    """The tasks of a blocking agent; a client and a worker declare the same."""

    def __init__(self, agent: Agent, notes: Notes) -> None:
        texts = Texts()

        @agent.step
        def think(number: int) -> str:
            return texts(number)

        @agent.step
        def last(run: str) -> None:
            """The step at which the first worker dies, and with which the second one goes on."""
            begun = bool(notes.read_time("begun", run))
            notes.say("resumed" if begun else "begun", run)
            time.sleep(0 if begun else LONG_SECONDS)

        @agent.task
        def chain(steps: int) -> int:
            for number in range(steps):
                think(number)
            return steps

        @agent.task
        def dies(name: str, steps: int) -> None:
            for number in range(steps):
                think(number)
            last(name)

        @agent.task
        def asks(name: str, run: Any) -> None:
            run.ask("go on?")
            notes.say("woken", name)

        self.chain, self.dies, self.asks = chain, dies, asks


def declare_async(agent: AsyncAgent) -> None:
    """The task of an asynchronous worker."""
    texts = Texts()

    @agent.step
    async def think(number: int) -> str:
        return texts(number)

    @agent.task
    async def chain(steps: int) -> int:
        for number in range(steps):
            await think(number)
        return steps


def _count_statements(file: Path) -> None:
    """Of this process on SQLite, written down now and then."""
    counts = [0]

    def trace(_cursor: apsw.Cursor, _sql: str, _bindings: object) -> bool:
        counts[0] += 1
        return True

    def hook(connection: apsw.Connection) -> None:
        connection.exec_trace = trace

    def tell() -> None:
        while True:
            file.write_text(str(counts[0]))
            time.sleep(0.2)

    apsw.connection_hooks.append(hook)
    threading.Thread(target=tell, daemon=True).start()


agent: Agent | AsyncAgent
if STORE in os.environ:
    if COUNT in os.environ:
        _count_statements(Path(os.environ[COUNT]))
    if ASYNC in os.environ:
        agent = AsyncAgent("bench", store=os.environ[STORE])
        declare_async(agent)
    else:
        agent = Agent("bench", store=os.environ[STORE])
        Tasks(agent, Notes(Path(os.environ[FOLDER])))
