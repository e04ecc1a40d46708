"""A run of a million entries: how long opening it takes, and what it needs in memory."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import apsw
import msgspec

from perdure import Agent
from perdure.journal import chain
from perdure.records import KIND_OF, CallIdentity, StepDone

REPLAYED = 1000
SALT = b"\x00" * 16

_ADD = "INSERT INTO journal (id, kind, at, body, chain) VALUES (?, ?, ?, ?, ?)"
_LAST = "SELECT id >> 32, id & 4294967295, at, body, chain FROM journal WHERE kind = ? ORDER BY id DESC LIMIT 1"


def prepare_long(folder: Path, entries: int) -> dict[str, int]:
    """Make a run with so many steps, left as a killed process leaves it. One step is real, the others are like it."""
    agent, think = _declare(folder)
    with agent.run("long"):
        think(0)
        base = apsw.Connection(str(folder / "perdure.db"))
        with base:
            base.executemany(_ADD, _steps(base, think.definition, entries))
        base.close()
        print(json.dumps({"entries": entries}), flush=True)
        os._exit(0)


def open_long(folder: Path, entries: int) -> dict[str, float]:
    """Open it in a new process, and replay some of its calls."""
    agent, think = _declare(folder)
    agent.runs.list()
    begun, cpu = perf_counter(), process_time()
    with agent.run("long"):
        opened, opened_cpu = perf_counter() - begun, process_time() - cpu
        cpu = process_time()
        for number in range(REPLAYED):
            assert think(number) == "done", "a finished step was not remembered"
        replayed = process_time() - cpu
        figures = {"seconds": opened, "cpu": opened_cpu, "replay_us": replayed / REPLAYED * 1e6, "megabytes": _peak()}
        print(json.dumps(figures), flush=True)
        os._exit(0)


def _declare(folder: Path) -> tuple[Agent, Any]:
    agent = Agent("bench", store=f"sqlite:///{folder / 'perdure.db'}")

    @agent.step
    def think(number: int) -> str:
        return "done" if number == 0 else "again"

    return agent, think


def _steps(base: apsw.Connection, definition: Any, entries: int) -> Iterator[tuple[Any, ...]]:
    """Rows like that of the first step, chained as the journal chains them."""
    kind, encode = KIND_OF[StepDone], msgspec.msgpack.Encoder().encode
    last: tuple[Any, ...] = base.execute(_LAST, (kind,)).fetchall()[0]
    stream, seq, at, body, link = last
    first = msgspec.msgpack.decode(body[len(SALT) :], type=StepDone)
    for number in range(1, entries):
        ident = definition.ident({"number": number}, definition.options)
        step = StepDone(CallIdentity("", first.call.name, ident, 0), seq, first.took_us, first.result)
        seq += 1
        body = SALT + encode(step)
        link = chain.link(link, stream, seq, kind, at, chain.body_digest(body))
        yield (stream << 32) | seq, kind, at, body, link


def _peak() -> float:
    """The most memory that this process has had, in MB; what `getrusage` says begins with what its parent had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else 0.0
