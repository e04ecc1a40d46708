"""One run, one call after the other: what most agents do most of the time."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from perdure import Run

from ..workload import Block, Series, an_agent, figures, make_bare_commit, make_bare_insert, operation, take_turns, text


def chain(folder: Path, kind: str, pairs: int, size: int, url: str | None = None) -> dict[str, Any]:
    """Steps or effects in a chain beside bare commits, on SQLite or on the server of that URL."""
    with an_agent(folder, url) as agent:
        ours, floor = Series(operation(agent, kind)), Series(make_bare_insert(url) if url else make_bare_commit(folder))
        with agent.run("chain"):
            take_turns(ours, floor, pairs=pairs, size=size)
    return figures(ours, floor, size)


def growth(folder: Path, kind: str, length: int, pairs: int, size: int) -> dict[str, float]:
    """Messages, steps or effects of a run that has `length` of them beside those of a run that has just begun."""
    with an_agent(folder) as agent:
        durable = operation(agent, kind) if kind != "message" else None

        def series(run: Run) -> Series:
            return Series(durable or (lambda number: run.messages.append(text(number % 64))))

        with agent.run("old") as old:
            late, wall, cpu = series(old), [], []
            late.run(length, keep=False)
            for pair in range(pairs):
                # Each in its own turn, not nested: a step belongs to the innermost run.
                before = _warm(late, size)
                with agent.run(f"young-{pair}") as young:
                    early = series(young)
                    block = _warm(early, size)
                after = _warm(late, size)
                wall.append(median(before.nanoseconds + after.nanoseconds) / median(block.nanoseconds))
                cpu.append((before.cpu_ns + after.cpu_ns) / 2 / block.cpu_ns)
    return {"ratio": median(wall), "cpu_ratio": median(cpu), "p50_ms": late.percentile_ms(0.5)}


def _warm(series: Series, size: int) -> Block:
    series.run(10, keep=False)
    return series.run(size)
