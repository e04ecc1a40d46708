"""What is measured: steps and effects with a result of 1 KB, beside bare commits of the same bytes."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter_ns, process_time_ns
from typing import Any

import apsw
import msgspec

from perdure import Agent

RESULT_BYTES = 1024
Operation = Callable[[int], object]


def text(number: int) -> str:
    """1 KB that does not compress, another one for each number."""
    source = random.Random(number)
    return "".join(source.choices(string.ascii_letters + string.digits, k=RESULT_BYTES))


class Texts:
    """Made before anything is measured, and used in turn."""

    def __init__(self, count: int = 64) -> None:
        self._texts = [text(number) for number in range(count)]

    def __call__(self, number: int) -> str:
        return self._texts[number % len(self._texts)]


def make_bare_insert(url: str) -> Operation:
    """The floor on PostgreSQL: the same, committed by the server before the one round trip ends."""
    import psycopg

    connection = psycopg.connect(url, autocommit=True)
    connection.execute("CREATE TABLE floor (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, data bytea NOT NULL)")
    rows = [value.encode() for value in (text(number) for number in range(64))]

    def commit(number: int) -> None:
        connection.execute("INSERT INTO floor (data) VALUES (%s)", (rows[number % 64],), prepare=True)

    return commit


def make_bare_commit(folder: Path) -> Operation:
    """The floor: one row of the same bytes, inserted with a prepared statement, on disk when it returns."""
    connection = apsw.Connection(str(folder / "floor.db"))
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", 2)
    connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT")
    rows = [value.encode() for value in (text(number) for number in range(64))]

    def commit(number: int) -> None:
        connection.execute("INSERT INTO rows (data) VALUES (?)", (rows[number % 64],))

    return commit


@contextmanager
def an_agent(folder: Path, url: str | None = None) -> Iterator[Agent]:
    """An agent whose store is in this folder, or on a server."""
    agent = Agent("bench", store=url or f"sqlite:///{folder / 'perdure.db'}")
    yield agent
    agent.close()


def operation(agent: Agent, kind: str) -> Operation:
    """A step or an effect that does nothing but return 1 KB."""
    texts = Texts()
    if kind == "effect":

        @agent.effect
        def act(number: int) -> str:
            return texts(number)

        return act

    @agent.step
    def think(number: int) -> str:
        return texts(number)

    return think


class Block(msgspec.Struct, frozen=True):
    """Some calls in a row: how long each took, and the processor time of all."""

    nanoseconds: list[int]
    cpu_ns: int

    @property
    def seconds(self) -> float:
        return sum(self.nanoseconds) / 1e9


class Series:
    """Calls an operation with ever new numbers, block by block."""

    def __init__(self, call: Operation) -> None:
        self._call = call
        self._next = 0
        self.blocks: list[Block] = []

    def run(self, size: int, *, keep: bool = True) -> Block:
        """One block of `size` calls."""
        taken, call = [], self._call
        cpu = process_time_ns()
        for number in range(self._next, self._next + size):
            begun = perf_counter_ns()
            call(number)
            taken.append(perf_counter_ns() - begun)
        block = Block(taken, process_time_ns() - cpu)
        self._next += size
        if keep:
            self.blocks.append(block)
        return block

    def percentile_ms(self, share: float) -> float:
        """The time that this share of the calls did not exceed."""
        taken = sorted(ns for block in self.blocks for ns in block.nanoseconds)
        return taken[min(len(taken) - 1, int(len(taken) * share))] / 1e6

    def per_second(self) -> float:
        """Calls per second, of the median block."""
        return 1 / median(block.seconds / len(block.nanoseconds) for block in self.blocks)


def take_turns(first: Series, second: Series, *, pairs: int, size: int) -> None:
    """Blocks of both, in changing order, so that what disturbs one disturbs the other."""
    for series in (first, second):
        series.run(size, keep=False)
    for pair in range(pairs):
        for series in (first, second) if pair % 2 else (second, first):
            series.run(size)


def figures(ours: Series, floor: Series, size: int) -> dict[str, Any]:
    """What a chain comes to beside its floor."""
    pairs = list(zip(ours.blocks, floor.blocks, strict=True))
    return {
        "ratio": median(our.seconds / bare.seconds for our, bare in pairs),
        "ratio_spread": sorted(our.seconds / bare.seconds for our, bare in pairs),
        "cpu_extra_ms": median((our.cpu_ns - bare.cpu_ns) / size / 1e6 for our, bare in pairs),
        "cpu_floor_ms": median(bare.cpu_ns / size / 1e6 for _, bare in pairs),
        "per_second": ours.per_second(),
        "p50_ms": ours.percentile_ms(0.5),
        "p99_ms": ours.percentile_ms(0.99),
        "floor_p50_ms": floor.percentile_ms(0.5),
        "floor_p99_ms": floor.percentile_ms(0.99),
    }
