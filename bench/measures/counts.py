"""Syncs, statements and pages of single operations: the same on every machine."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median_low
from types import FrameType
from typing import Any

import apsw

import perdure
from perdure import Agent, Run

from ..syncs import counter
from ..workload import an_agent, make_bare_commit, operation, text

PACKAGE = os.path.dirname(perdure.__file__)
HEART = "perdure-heartbeat"
"""What its thread does now and then belongs to no operation."""

WAL_HEADER_BYTES = 32
WAL_FRAME_BYTES = 4096 + 24


class Tally:
    """Counts what single operations cost. Made before the store is opened: it watches every connection."""

    def __init__(self, folder: Path) -> None:
        self._wal = folder / "perdure.db-wal"
        self._syncs = counter()
        self._statements: list[str] = []
        self.operations: dict[str, list[dict[str, Any]]] = {}
        apsw.connection_hooks.append(self._watch)

    def _watch(self, connection: apsw.Connection) -> None:
        def trace(_cursor: apsw.Cursor, sql: str, _bindings: object) -> bool:
            if threading.current_thread().name != HEART:
                self._statements.append(sql.split(None, 1)[0].upper())
            return True

        connection.exec_trace = trace

    @contextmanager
    def count(self, name: str) -> Iterator[None]:
        """Note what happens inside as one operation of that name."""
        self._statements.clear()
        syncs, frames = self._syncs() if self._syncs else 0, self._frames()
        yield
        noted = {
            "syncs": self._syncs() - syncs if self._syncs else None,
            "statements": list(self._statements),
            "pages": self._frames() - frames,
        }
        self.operations.setdefault(name, []).append(noted)

    def _frames(self) -> int:
        size = self._wal.stat().st_size if self._wal.exists() else 0
        return max(size - WAL_HEADER_BYTES, 0) // WAL_FRAME_BYTES


def single_operations(folder: Path, calls: int) -> dict[str, Any]:
    """What one of each costs, `calls` times: few enough that no checkpoint of the log falls in between."""
    tally = Tally(folder)
    with an_agent(folder) as agent:
        step, effect = operation(agent, "step"), operation(agent, "effect")
        _count_runs(tally, agent, step)
        with agent.run("chain") as run:
            _repeat(tally, "step", calls, step)
            _repeat(tally, "effect", calls, effect)
            _repeat(tally, "message", calls, lambda number: run.messages.append(text(number)))
            _repeat(tally, "state in the open", calls, lambda number: run.state.__setitem__("seen", number))
            _count_items(tally, run, calls)
        agent.state.set("bench", "key", -1)
        _repeat(tally, "state of the agent", calls, lambda number: agent.state.set("bench", "key", number))
    return {name: _summary(noted) for name, noted in tally.operations.items()}


def _repeat(tally: Tally, name: str, calls: int, call: Callable[[int], object]) -> None:
    for number in range(calls):
        with tally.count(name):
            call(number)


def _count_runs(tally: Tally, agent: Agent, step: Callable[[int], object]) -> None:
    """Opening and closing: the first run also makes the store, the agent and its key."""
    for number in range(4):
        run = agent.run(f"run-{number}")
        with tally.count("run opened" if number else "first run opened"):
            run.__enter__()
        step(number)
        with tally.count("run closed" if number else "first run closed"):
            run.__exit__(None, None, None)
    for _ in range(3):
        with tally.count("finished run replayed"), agent.run("run-1"):
            step(1)


def _count_items(tally: Tally, run: Run, calls: int) -> None:
    """An item of `run.each` with a write of state: one commit for both, when the loop asks for the next item."""
    items = iter(run.each(range(calls + 1)))
    next(items)
    for number in range(calls):
        run.state["seen"] = number
        with tally.count("item"):
            next(items)


def _summary(noted: list[dict[str, Any]]) -> dict[str, Any]:
    """The distinct values: one of each, when an operation always costs the same."""
    statements = sorted({" ".join(one["statements"]) for one in noted})
    return {
        "syncs": sorted({one["syncs"] for one in noted}) if noted[0]["syncs"] is not None else None,
        "statements": statements,
        "pages": sum(one["pages"] for one in noted) / len(noted),
    }


def python_calls(folder: Path, calls: int) -> dict[str, int]:
    """How many Python functions run for a step, an effect and a replayed step, without the body."""
    with an_agent(folder) as agent:
        step, effect = operation(agent, "step"), operation(agent, "effect")
        with agent.run("chain"):
            made = {"step": _python_calls(step, calls), "effect": _python_calls(effect, calls)}
        with agent.run("chain"):
            made["replayed step"] = _python_calls(step, calls)
    return made


def _python_calls(call: Callable[[int], object], calls: int) -> int:
    found, counted = list[int](), 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal counted
        counted += event == "call" and frame.f_code.co_filename.startswith(PACKAGE)

    for number in range(calls):
        counted = 0
        sys.setprofile(count)
        try:
            call(number)
        finally:
            sys.setprofile(None)
        found.append(counted)
    return median_low(found)


def bytes_per_step(folder: Path, steps: int) -> dict[str, float]:
    """What a step with an incompressible result of 1 KB adds to the file, everything counted."""
    sizes = []
    for name, count in (("empty", 0), ("full", steps)):
        place = folder / name
        place.mkdir()
        with an_agent(place) as agent:

            @agent.step
            def think(number: int) -> str:
                return text(number)

            with agent.run("chain"):
                for number in range(count):
                    think(number)
        sizes.append(sum(os.path.getsize(file) for file in place.iterdir() if file.is_file()))
    return {"bytes": (sizes[1] - sizes[0]) / steps}


def pages_of_a_bare_commit(folder: Path, calls: int) -> dict[str, float]:
    """The floor in pages of the log."""
    commit, wal = make_bare_commit(folder), folder / "floor.db-wal"
    commit(0)
    before = wal.stat().st_size
    for number in range(calls):
        commit(number)
    return {"pages": (wal.stat().st_size - before) / WAL_FRAME_BYTES / calls}
