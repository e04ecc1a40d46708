"""The rows about PostgreSQL under concurrency: runs and workers of one process that share commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from perdure.values.limits import POOL_CONNECTIONS

from .failures import NoServer
from .lab import Lab
from .rows import Bar, Row, at_least, at_most
from .sections import chain_rows
from .workers import measures

SECTION = "PostgreSQL under load"
RATIOS = {1: at_least(0.6), 8: at_least(0.7), 64: at_least(1.3, 1.0)}
"""By the number of runs: steps per second, in times of as many connections (at most 32) that only insert."""

STEPS = {1: 100, 8: 40, 64: 10}
CPU_MS = at_most(0.14, 0.18)
ALONE = at_most(1.3, 1.6)
"""The bar of a step on a server, blocking or not."""


def server_load(lab: Lab) -> Iterator[Row]:
    """1, 8 and 64 runs in one process on PostgreSQL, beside bare inserts of as many connections."""
    try:
        urls = [lab.server.url(lab.server.new_database()) for _ in range(len(RATIOS) + 2)]
    except NoServer as error:
        yield Row(SECTION, "runs", None, note=str(error))
        return
    for (runs, bar), url in zip(RATIOS.items(), urls, strict=False):
        yield from _runs(lab, url, runs, bar)
    measured = lab.measure("async_chain", url=urls[-2], pairs=lab.pairs, size=20)
    yield next(chain_rows(SECTION, "step of one run under asyncio", measured, ALONE))
    yield from _workers(lab, urls[-1])


def _runs(lab: Lab, url: str, runs: int, bar: Bar) -> Iterator[Row]:
    found = lab.measure("server_load", url=url, runs=runs, steps=STEPS[runs], pairs=lab.pairs)
    who = "1 run" if runs == 1 else f"{runs} runs"
    note = f"{found['per_second']:,.0f} steps per second; bare inserts {found['floor_per_second']:,.0f}"
    yield Row(SECTION, f"{who}: steps per second, in times of bare inserts", found["ratio"], "", bar, False, note)
    note = f"a bare insert takes {found['floor_cpu_ms']:.3f} ms"
    most = CPU_MS if runs == max(RATIOS) else None
    yield Row(SECTION, f"{who}: processor time of the client per step", found["cpu_ms"], "ms", most, False, note)
    if runs == max(RATIOS):
        note = "`pool_size` by default"
        yield Row(SECTION, f"{who}: connections", found["connections"], "", at_most(POOL_CONNECTIONS), True, note)


def _workers(lab: Lab, url: str) -> Iterator[Row]:
    """A worker with 64 runs at a time beside one with 8."""
    runs, rounds = (60, 1) if lab.quick else (400, 5)
    rates = {}
    for at_once in (8, 64):
        folder = lab.new_folder("workers")
        rates[at_once] = measures.rate(url, folder, count=1, concurrency=at_once, runs=runs, rounds=rounds)
    note = f"{rates[64].runs:,.0f} and {rates[8].runs:,.0f} runs per second"
    what = "a worker with 64 runs at a time, in times of one with 8"
    yield Row(SECTION, what, rates[64].runs / rates[8].runs, "", at_least(1.0), False, note)


SECTIONS: dict[str, Callable[[Lab], Iterator[Row]]] = {"server-load": server_load}
