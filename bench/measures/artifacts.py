"""A large artifact in and out, beside a plain copy of the same file that is synced; and what a small edit adds."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from ..workload import an_agent

MEGABYTE = 1_000_000


def artifacts(folder: Path, megabytes: int) -> dict[str, Any]:
    """So many megabytes of noise: saved, saved again, edited, read; each as MB/s, by the clock and by the processor."""
    source, copy = folder / "source", folder / "copy"
    data = random.Random(1).randbytes(megabytes * MEGABYTE)
    source.write_bytes(data)
    with an_agent(folder) as agent:
        agent.artifacts.save("warm", b"x")
        plain = _rate(megabytes, lambda: _plain_copy(source, copy))
        into = _rate(megabytes, lambda: agent.artifacts.save("large", source))
        again = _rate(megabytes, lambda: agent.artifacts.save("large", source))
        out = _rate(megabytes, lambda: agent.artifacts.load("large", to=copy))
        middle = len(data) // 2
        agent.artifacts.save("large", data[:middle] + b"a few bytes more" + data[middle:])
        added = agent.artifacts.usage()[2].added
    return {"plain": plain, "in": into, "again": again, "out": out, "added": added}


def _rate(megabytes: int, call: Callable[[], object]) -> tuple[float, float]:
    begun, begun_cpu = perf_counter(), process_time()
    call()
    return megabytes / (perf_counter() - begun), megabytes / (process_time() - begun_cpu)


def _plain_copy(source: Path, target: Path) -> None:
    with source.open("rb") as file, target.open("wb") as out:
        while block := file.read(1 << 20):
            out.write(block)
        out.flush()
        os.fsync(out.fileno())
