"""Whether a namespace of a million keys is as quick as one of ten thousand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter_ns, process_time_ns
from typing import Any

import apsw

from perdure import Agent

from ..workload import an_agent

BATCH = 10_000
_COPY = """
    WITH RECURSIVE numbers(n) AS (SELECT ? UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
    INSERT INTO agent_state SELECT owner, namespace, printf('key-%08d', n), value, version, revision, at, expires,
        created, lasts FROM numbers, (SELECT * FROM agent_state WHERE namespace = 'flat' LIMIT 1)
"""
Call = Callable[[int], object]
Clock = Callable[[], int]


def flat(folder: Path, small: int, large: int, calls: int, url: str | None = None) -> dict[str, Any]:
    """Median times of `get`, `set` and a page of `items`, with few keys and with many."""
    # A file is ours alone: in processor time a cost that grows cannot hide behind the syncs.
    clock = process_time_ns if url is None else perf_counter_ns
    with an_agent(folder, url) as agent:
        _fill(agent, 0, small)
        before = _times(agent, small, calls, clock)
        begun = perf_counter_ns()
        _fill(agent, small, large)
        took = (perf_counter_ns() - begun) / 1e9
        after = _times(agent, large, calls, clock)
    ratios = {name: after[name] / before[name] for name in before}
    return {"ratios": ratios, "us": after, "sets_per_second": (large - small) / took}


def flat_view(folder: Path, small: int, large: int, calls: int) -> dict[str, Any]:
    """The same in a file, where only the view gets the many keys: nothing else of them is read."""
    with an_agent(folder) as agent:
        _fill(agent, 0, small)
        before = _times(agent, small, calls, process_time_ns)
        base = apsw.Connection(str(folder / "perdure.db"))
        base.execute(_COPY, (small, large - 1))
        base.close()
        after = _times(agent, large, calls, process_time_ns)
    return {"ratios": {name: after[name] / before[name] for name in before}, "us": after}


def _fill(agent: Agent, start: int, end: int) -> None:
    for first in range(start, end, BATCH):
        with agent.state.transaction() as many:
            for number in range(first, min(first + BATCH, end)):
                many.set("flat", _key(number), {"number": number})


def _key(number: int) -> str:
    return f"key-{number:08}"


def _times(agent: Agent, keys: int, calls: int, clock: Clock) -> dict[str, float]:
    chosen = [_key(number * 7919 % keys) for number in range(calls)]
    measured: dict[str, Call] = {
        "get": lambda n: agent.state.get("flat", chosen[n]),
        "set": lambda n: agent.state.set("flat", chosen[n], n),
        "items": lambda n: agent.state.items("flat", after=chosen[n], limit=100),
    }
    return {name: _median_us(call, calls, clock) for name, call in measured.items()}


def _median_us(call: Call, calls: int, clock: Clock) -> float:
    taken = []
    for number in range(calls):
        begun = clock()
        call(number)
        taken.append(clock() - begun)
    return median(taken) / 1000
