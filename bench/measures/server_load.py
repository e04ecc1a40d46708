"""Many runs at once in one process on a server, beside as many connections that only insert."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from time import perf_counter, perf_counter_ns, process_time, process_time_ns
from typing import Any

import msgspec
import psycopg

from perdure import AsyncAgent

from ..workload import Block, Series, Texts, figures, make_bare_insert

CONNECTIONS_MAX = 32
"""Connections of the floor; more of them insert no faster."""

_TABLE = "CREATE TABLE floor (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, data bytea NOT NULL)"
_CONNECTIONS = """
    SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND datname = current_database()
"""
_INSERT = "INSERT INTO floor (data) VALUES (%s)"


class Turn(msgspec.Struct, frozen=True):
    """One turn of the runs or of the floor."""

    per_second: float
    cpu_ms: float


class Floor:
    """Asyncio connections in this process, each with one bare insert of 1 KB after the other."""

    def __init__(self, url: str, count: int) -> None:
        self._url, self._count = url, min(count, CONNECTIONS_MAX)
        self._rows = [text.encode() for text in map(Texts(), range(64))]
        self._connections: list[psycopg.AsyncConnection[Any]] = []

    async def open(self) -> None:
        """Connect all of them."""
        for _ in range(self._count):
            self._connections.append(await psycopg.AsyncConnection.connect(self._url, autocommit=True))
        await self._connections[0].execute(_TABLE)

    async def turn(self, inserts: int) -> Turn:
        """Insert this many rows, shared by the connections."""
        each = inserts // self._count

        async def insert(connection: psycopg.AsyncConnection[Any]) -> None:
            for number in range(each):
                await connection.execute(_INSERT, (self._rows[number % 64],), prepare=True)

        cpu, begun = process_time(), perf_counter()
        await asyncio.gather(*map(insert, self._connections))
        return _turn(each * self._count, begun, cpu)

    async def connections_of(self, program: str) -> int:
        """How many connections to this database are open under that name."""
        cursor = await self._connections[0].execute(_CONNECTIONS, (program,))
        found = await cursor.fetchone()
        return int(found[0]) if found is not None else 0

    async def close(self) -> None:
        """Disconnect."""
        for connection in self._connections:
            await connection.close()


def _turn(count: int, begun: float, cpu: float) -> Turn:
    return Turn(count / (perf_counter() - begun), (process_time() - cpu) / count * 1000)


class Runs:
    """Runs in tasks; in each turn every run makes the same number of steps."""

    def __init__(self, url: str, count: int, steps: int) -> None:
        self._agent = AsyncAgent("bench", store=url)
        self._count, self._steps = count, steps
        self._gate = asyncio.Barrier(count + 1)
        self._ended = False

    async def open(self) -> None:
        """Open the runs, which then wait for the first turn."""
        texts = Texts()

        @self._agent.step
        async def think(number: int) -> str:
            return texts(number)

        async def work(name: str) -> None:
            async with self._agent.run(name):
                number = 0
                while True:
                    await self._gate.wait()
                    if self._ended:
                        return
                    for _ in range(self._steps):
                        await think(number)
                        number += 1
                    await self._gate.wait()

        self._tasks = [asyncio.create_task(work(f"run-{number}")) for number in range(self._count)]

    async def turn(self) -> Turn:
        """Let every run make its steps."""
        await self._gate.wait()
        cpu, begun = process_time(), perf_counter()
        await self._gate.wait()
        return _turn(self._count * self._steps, begun, cpu)

    async def close(self) -> None:
        """End the runs."""
        self._ended = True
        await self._gate.wait()
        await asyncio.gather(*self._tasks)
        await self._agent.close()


def server_load(folder: Path, url: str, runs: int, steps: int, pairs: int) -> dict[str, float]:
    """Medians of turns of the runs and of the floor, in alternation; the first pair warms up and does not count."""
    return asyncio.run(_alternate(url, runs, steps, pairs))


def async_chain(folder: Path, url: str, pairs: int, size: int) -> dict[str, Any]:
    """Steps of one run under asyncio beside bare commits of a plain connection, as `chain` has them of a plain run."""
    return asyncio.run(_chain(url, pairs, size))


async def _chain(url: str, pairs: int, size: int) -> dict[str, Any]:
    agent, texts, numbers = AsyncAgent("bench", store=url), Texts(), iter(range((pairs + 1) * size))
    ours, floor = Series(lambda _: None), Series(make_bare_insert(url))

    @agent.step
    async def think(number: int) -> str:
        return texts(number)

    async with agent.run("chain"):
        for pair in range(pairs + 1):
            floor.run(size, keep=pair > 0)
            block = await _steps(think, [next(numbers) for _ in range(size)])
            ours.blocks += [block] if pair else []
    await agent.close()
    return figures(ours, floor, size)


async def _steps(think: Callable[[int], Awaitable[object]], numbers: list[int]) -> Block:
    taken, cpu = [], process_time_ns()
    for number in numbers:
        begun = perf_counter_ns()
        await think(number)
        taken.append(perf_counter_ns() - begun)
    return Block(taken, process_time_ns() - cpu)


async def _alternate(url: str, runs: int, steps: int, pairs: int) -> dict[str, float]:
    floor, ours = Floor(url, runs), Runs(url, runs, steps)
    await floor.open()
    connections = []
    await ours.open()
    found = []
    for pair in range(pairs + 1):
        if pair % 2:
            first = await floor.turn(runs * steps)
            second = await ours.turn()
        else:
            second = await ours.turn()
            first = await floor.turn(runs * steps)
        found.append((second, first))
        connections.append(await floor.connections_of("perdure"))
    await ours.close()
    await floor.close()
    kept = found[1:]
    return {
        "ratio": median(our.per_second / bare.per_second for our, bare in kept),
        "per_second": median(our.per_second for our, _ in kept),
        "cpu_ms": median(our.cpu_ms for our, _ in kept),
        "floor_per_second": median(bare.per_second for _, bare in kept),
        "floor_cpu_ms": median(bare.cpu_ms for _, bare in kept),
        "connections": max(connections),
    }
