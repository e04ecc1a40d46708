"""Checkpoints of a conversation that grows: what they take on disk, and what they cost beside a bare commit."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from ..workload import an_agent, bare_commit, text


def checkpoints(folder: Path, count: int) -> dict[str, Any]:
    """So many checkpoints, 1 KB of text more each; then one key of 5,000, an edit and an insert."""
    commit = bare_commit(folder)
    beyond, messages = [], list[str]()
    with an_agent(folder) as agent:
        for number in range(count):
            messages.append(text(number))
            begun = perf_counter()
            agent.checkpoint.create("conversation", messages)
            took = perf_counter() - begun
            begun = perf_counter()
            commit(number)
            beyond.append((took - (perf_counter() - begun)) / len(messages))
        begun = perf_counter()
        for version in range(1, count, max(count // 20, 1)):
            agent.checkpoint.restore("conversation", version)
        restored = (perf_counter() - begun) / len(range(1, count, max(count // 20, 1)))
    return {
        "bytes": (folder / "perdure.db").stat().st_size,
        "us_per_element": median(beyond[count // 2 :]) * 1e6,
        "restore_ms": restored * 1000,
    }
