"""`agent.events`: appending and reading with few events and with many, which must make no difference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

from perdure import Agent

from ..workload import Series, an_agent, figures, make_bare_commit, take_turns, text

KINDS = 20
BULK = 5000


def events(folder: Path, pairs: int, size: int, few: int, many: int, reads: int) -> dict[str, Any]:
    """Appends of 1 KB beside bare commits; then processor time of each operation with few and with many events."""
    texts = [text(number) for number in range(64)]
    with an_agent(folder) as agent:
        ours = Series(lambda number: agent.events.append("APPENDED", texts[number % 64]))
        take_turns(ours, floor := Series(make_bare_commit(folder)), pairs=pairs, size=size)
        _fill(agent, 0, few)
        before = _costs(agent, reads)
        begun = perf_counter()
        _fill(agent, few, many)
        took = perf_counter() - begun
        after = _costs(agent, reads)
    growth = {name: after[name] / before[name] for name in before}
    per_page_ms = after["last"] * 1000
    return {**figures(ours, floor, size), "per_second": (many - few) / took, "growth": growth, "page_ms": per_page_ms}


def _fill(agent: Agent, begin: int, end: int) -> None:
    for start in range(begin, end, BULK):
        numbers = range(start, min(start + BULK, end))
        agent.events.append_many([(f"KIND_{number % KINDS}", {"number": number}) for number in numbers])


def _costs(agent: Agent, reads: int) -> dict[str, float]:
    """Seconds of the processor for each."""
    first, *_, newest = [next(agent.events.read()), *agent.events.read(last=1)]
    operations: dict[str, Callable[[], object]] = {
        "append": lambda: agent.events.append("ONE", 1),
        "limit": lambda: list(agent.events.read(limit=100)),
        "last": lambda: list(agent.events.read(last=100)),
        "kind": lambda: list(agent.events.read("KIND_7", since=first, limit=100)),
        "follow": lambda: list(agent.events.follow("KIND_7", since=newest, timeout=0)),
    }
    return {name: _seconds(operation, reads) for name, operation in operations.items()}


def _seconds(operation: Callable[[], object], reads: int) -> float:
    taken = []
    for _ in range(reads):
        begun = process_time()
        operation()
        taken.append(process_time() - begun)
    return median(taken)
