"""One run, one call after the other: what most agents do most of the time."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from ..workload import Series, an_agent, bare_commit, figures, operation, take_turns, text


def chain(folder: Path, kind: str, pairs: int, size: int) -> dict[str, Any]:
    """Steps or effects in a chain beside bare commits."""
    with an_agent(folder) as agent:
        ours, floor = Series(operation(agent, kind)), Series(bare_commit(folder))
        with agent.run("chain"):
            take_turns(ours, floor, pairs=pairs, size=size)
    return figures(ours, floor, size)


def messages(folder: Path, length: int, pairs: int, size: int) -> dict[str, float]:
    """The appends to a conversation of `length` messages beside those to one that has just begun."""
    with an_agent(folder) as agent, agent.run("old") as old:
        for number in range(length):
            old.messages.append(text(number))
        late, ratios = Series(lambda number: old.messages.append(text(number % 64))), []
        for pair in range(pairs):
            with agent.run(f"young-{pair}") as young:
                early = Series(lambda number: young.messages.append(text(number % 64)))
                early.run(10)
                order = (early, late) if pair % 2 else (late, early)
                seconds = {series: series.run(size).seconds for series in order}
                ratios.append(seconds[late] / seconds[early])
    return {"ratio": median(ratios), "p50_ms": late.percentile_ms(0.5)}
