"""Checkpoints of a conversation that grows: what they take on disk, and what they cost beside a bare commit."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from ..workload import an_agent, make_bare_commit, text


def checkpoints(folder: Path, count: int, names: int = 1) -> dict[str, Any]:
    """Save a conversation that grows by 1 KB of text each time, under so many names in turn; then restore some."""
    commit = make_bare_commit(folder)
    beyond, messages = [], list[str]()
    with an_agent(folder) as agent:
        for number in range(count):
            messages.append(text(number))
            begun = perf_counter()
            agent.checkpoint.create(f"c{number % names}", messages)
            took = perf_counter() - begun
            begun = perf_counter()
            commit(number)
            beyond.append((took - (perf_counter() - begun)) / len(messages))
        begun = perf_counter()
        some = range(0, count, max(count // 20, 1))
        for number in some:
            agent.checkpoint.restore(f"c{number % names}", number // names + 1)
        restored = (perf_counter() - begun) / len(some)
    return {
        "bytes": (folder / "perdure.db").stat().st_size,
        "us_per_element": median(beyond[count // 2 :]) * 1e6,
        "restore_ms": restored * 1000,
    }
