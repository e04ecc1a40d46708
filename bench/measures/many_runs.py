"""Lists and counts in a store with a million runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import thread_time
from typing import Any

import apsw

from perdure.run.listing import list_runs, run_counts

from ..workload import an_agent

CALLS = 5
SHOWN = 50
STATUSES = ("finished",) * 94 + ("failed",) * 2 + ("paused",) * 3 + ("cancelled",)
BEGIN_MS = 1_760_000_000_000

_ADD = """INSERT INTO runs
    (stream, agent, id, status, input_digest, parent, started_at, changed_at, resumes, outcome, error)
VALUES (?, ?, ?, ?, x'', 0, ?, ?, 0, 1, '')"""


def many_runs(folder: Path, runs: int) -> dict[str, float]:
    """Milliseconds of processor time. Only the view has the runs: a list reads nothing else of them."""
    with an_agent(folder) as agent:
        with agent.run("first"):
            pass
        store = agent._engine.store
        _fill(folder / "perdure.db", runs)
        work: dict[str, Callable[[], Any]] = {
            "list": lambda: list_runs(store, limit=SHOWN),
            "filter": lambda: list_runs(store, "bench", "failed", limit=SHOWN),
            "count": lambda: run_counts(store),
            "doctor": lambda: list_runs(store, unfinished=True, limit=1000),
        }
        assert run_counts(store).total() == runs + 1
        return {"runs": runs + 1, **{name: _milliseconds(call) for name, call in work.items()}}


def _fill(path: Path, runs: int) -> None:
    base = apsw.Connection(str(path))
    with base:
        base.executemany(_ADD, _rows(runs))
    base.close()


def _rows(runs: int) -> Iterator[tuple[Any, ...]]:
    for number in range(runs):
        at = BEGIN_MS + 1000 * number
        agent, status = "bench" if number % 4 else "other", STATUSES[number % len(STATUSES)]
        yield 1000 + number, agent, f"run-{number}", status, at, at + 500


def _milliseconds(call: Callable[[], Any]) -> float:
    taken = []
    for _ in range(CALLS):
        begun = thread_time()
        call()
        taken.append(1000 * (thread_time() - begun))
    return median(taken)
