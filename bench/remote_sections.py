"""The rows about `perdure serve`: steps over the network beside bare requests, commits and local runs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .lab import Lab
from .rows import Row, at_least, at_most
from .sections import MEMORY_DISK

SECTION = "remote store"
RUNS = 64
FOLLOWERS = 1000


def remote(lab: Lab) -> Iterator[Row]:
    """Steps on a store behind a server on the same machine, and idle followers of events."""
    size = {"pairs": lab.pairs, "size": 20}
    yield from _chain("a step", lab.measure("remote_chain", **size))
    if MEMORY_DISK.is_dir():
        with tempfile.TemporaryDirectory(dir=MEMORY_DISK) as folder:
            yield from _chain("a step on a RAM disk", lab.measure_in(Path(folder), "remote_chain", **size))
    yield from _load(lab)
    yield from _followers(lab)


def _chain(what: str, found: dict[str, Any]) -> Iterator[Row]:
    spread = found["ratio_spread"]
    note = f"{found['cpu_ms']:.3f} ms in all"
    beyond = f"{what}: processor time of the server beyond a local step's"
    yield Row(SECTION, beyond, found["beyond_ms"], "ms", at_most(0.6), False, note)
    note = f"middle half of {len(spread)} pairs: {spread[len(spread) // 4]:.2f} to {spread[-len(spread) // 4]:.2f}; "
    note += f"{found['step_ms']:.2f} and {found['request_ms']:.2f} ms"
    yield Row(SECTION, f"{what}, in times of GET /healthz", found["ratio"], "", at_most(2.5), False, note)


def _load(lab: Lab) -> Iterator[Row]:
    found = lab.measure("remote_load", runs=RUNS, steps=10, rounds=3 if lab.quick else 12)
    note = f"{found['per_second']:,.0f} and {found['local_per_second']:,.0f} steps per second; "
    note += f"{found['server_cpu_ms']:.3f} ms of the server's processor time for a step"
    what = f"{RUNS} runs at once: steps per second, in times of as many local runs"
    yield Row(SECTION, what, found["ratio"], "", at_least(0.45), False, note)


def _followers(lab: Lab) -> Iterator[Row]:
    count = 100 if lab.quick else FOLLOWERS
    found = lab.measure("idle_followers", followers=count, seconds=2 if lab.quick else 10)
    what, note = f"{count:,} idle followers of events", f"the server alone: {found['idle_percent']:.2f}%"
    yield Row(SECTION, f"{what}: share of a core", found["percent"], "%", at_most(1), False, note)
    yield Row(SECTION, f"{what}: memory of each", found["kb"], "KB", at_most(40), False)


SECTIONS: dict[str, Callable[[Lab], Iterator[Row]]] = {"remote": remote}
