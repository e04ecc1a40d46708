"""`agent.state` in the open: one key after the other, many in one commit, and reading."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from perdure import Agent

from ..workload import Series, an_agent, figures, make_bare_commit, take_turns, text


def state(folder: Path, pairs: int, size: int, keys: int, reads: int) -> dict[str, Any]:
    """Sets of 1 KB beside bare commits; a transaction of many keys; gets in a namespace of that many keys."""
    texts = [text(number) for number in range(64)]
    with an_agent(folder) as agent:
        ours = Series(lambda number: agent.state.set("bench", f"key-{number % 64}", texts[number % 64]))
        floor = Series(make_bare_commit(folder))
        take_turns(ours, floor, pairs=pairs, size=size)
        per_second = _sets_per_second(agent, "many", keys)
        gets = []
        for number in range(reads):
            begun = perf_counter()
            agent.state.get("many", f"key-{number * 7919 % keys}")
            gets.append(perf_counter() - begun)
    return {**figures(ours, floor, size), "sets_per_second": per_second, "get_us": median(gets) * 1e6}


def many_sets(folder: Path, url: str, keys: int, rounds: int) -> dict[str, Any]:
    """The transaction of many keys on a server, some times over: its first one meets a cold session."""
    with an_agent(folder, url) as agent:
        found = [_sets_per_second(agent, f"many-{number}", keys) for number in range(rounds)]
    return {"sets_per_second": median(found)}


def _sets_per_second(agent: Agent, space: str, keys: int) -> float:
    begun = perf_counter()
    with agent.state.transaction() as many:
        for number in range(keys):
            many.set(space, f"key-{number}", number)
    return keys / (perf_counter() - begun)
