"""A large artifact in and out, in turns with a plain copy of the same file that is synced; and what a small edit adds.

A database with a log writes every byte twice, so the same blobs in rows of a bare SQLite table are a second floor.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import apsw

from perdure import Agent

from ..workload import an_agent

MEGABYTE = 1_000_000
BLOB, BATCH = 32 * 1024, 128
"""A usual chunk of an artifact, and how many of them Perdure commits at a time."""

Rates = dict[str, tuple[float, float]]
"""MB/s, by the clock and by the processor."""


def artifacts(folder: Path, megabytes: int, rounds: int) -> dict[str, Any]:
    """Save, save again, load and edit noise. All rates are medians of the rounds."""
    with an_agent(folder) as agent:
        agent.artifacts.save("warm", b"x")
        found = [_round(agent, folder, number, megabytes) for number in range(rounds)]
        data = (folder / "source").read_bytes()
        middle = len(data) // 2
        agent.artifacts.save("large", data[:middle] + b"a few bytes more" + data[middle:])
        added = [one.added for one in agent.artifacts.usage() if one.info.name == "large"][-1]
    rates = {name: [median(one[name][clock] for one in found) for clock in (0, 1)] for name in found[0]}
    return {**rates, "added": added}


def _round(agent: Agent, folder: Path, number: int, megabytes: int) -> Rates:
    source, copy = folder / "source", folder / "copy"
    source.write_bytes(random.Random(number).randbytes(megabytes * MEGABYTE))
    calls: dict[str, Callable[[], object]] = {
        "plain": lambda: _plain_copy(source, copy),
        "rows": lambda: _insert_rows(source, folder / f"rows-{number}.db"),
        "in": lambda: agent.artifacts.save("large", source),
        "again": lambda: agent.artifacts.save("large", source),
        "out": lambda: agent.artifacts.load("large", to=copy),
    }
    return {name: _rate(megabytes, call) for name, call in calls.items()}


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


def _insert_rows(source: Path, target: Path) -> None:
    base = apsw.Connection(str(target))
    for text in (
        "PRAGMA journal_mode = WAL",
        "PRAGMA synchronous = FULL",
        "CREATE TABLE blobs (id INTEGER, data BLOB)",
    ):
        base.execute(text).fetchall()
    with source.open("rb") as file:
        while batch := [(block,) for _ in range(BATCH) if (block := file.read(BLOB))]:
            with base:
                base.executemany("INSERT INTO blobs (data) VALUES (?)", batch)
    base.close()
    target.unlink()
