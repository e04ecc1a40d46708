"""A store behind `perdure serve`: what a remote step costs beside a local one, and what idle followers cost."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any
from urllib.parse import urlsplit

import msgspec

from perdure import Agent, AsyncAgent

from ..workload import Series, Texts, operation, take_turns

FOLLOW = "/v1/agents/bench/events:follow"
FOLLOWERS_OF_KEY = 100
"""Streams that a key may hold open."""


class ServerProcess:
    """A running server, and what the system says about its process."""

    def __init__(self, store: str, *options: str) -> None:
        command = [sys.executable, "-m", "perdure.cli", "serve", "--store", store, "--json", "--port", "0", *options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            text += (line := self._process.stdout.readline())
            assert line, "the server ended at its start"
        self.url: str = json.loads(text)["url"]

    def cpu_ns(self) -> int:
        """Processor time of all its threads."""
        tasks = Path(f"/proc/{self._process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text("ascii").split()[0]) for task in tasks)

    def memory_kb(self) -> int:
        """Its resident memory."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text("ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

    def close(self) -> None:
        """Stop it."""
        self._process.terminate()
        self._process.wait()


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[ServerProcess]:
    """A server on a store in this folder."""
    server = ServerProcess(f"sqlite:///{folder / 'served.db'}", *options)
    try:
        yield server
    finally:
        server.close()


def remote_chain(folder: Path, pairs: int, size: int) -> dict[str, Any]:
    """Steps of one run in a chain, beside bare requests to the same server and the same steps on a local store."""
    with serving(folder, "--no-auth") as server:
        with Agent("bench", store=server.url) as agent, agent.run("chain"):
            step, request = Series(operation(agent, "step")), Series(_bare_request(server.url))
            take_turns(step, request, pairs=pairs, size=size)
            cpu: list[float] = []
            for _ in range(pairs):
                before = server.cpu_ns()
                step.run(size, keep=False)
                cpu.append((server.cpu_ns() - before) / size / 1e6)
        with Agent("bench", store=f"sqlite:///{folder / 'local.db'}") as near, near.run("chain"):
            local = Series(operation(near, "step"))
            local.run(size, keep=False)
            store_ms = median(local.run(size).cpu_ns / size / 1e6 for _ in range(pairs))
        ratios = sorted(our.seconds / bare.seconds for our, bare in zip(step.blocks, request.blocks, strict=True))
        return {
            "cpu_ms": median(cpu),
            "beyond_ms": median(cpu) - store_ms,
            "ratio": median(ratios),
            "ratio_spread": ratios,
            "step_ms": step.percentile_ms(0.5),
            "request_ms": request.percentile_ms(0.5),
        }


def _bare_request(url: str) -> Any:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port)

    def get(number: int) -> None:
        connection.request("GET", "/healthz")
        connection.getresponse().read()

    return get


class Turn(msgspec.Struct, frozen=True):
    """One turn of all runs on a store."""

    per_second: float
    server_cpu_ms: float


def remote_load(folder: Path, runs: int, steps: int, rounds: int) -> dict[str, float]:
    """The same number of runs at once on the server's store and on a local one, in turns."""
    with serving(folder, "--no-auth") as server:
        return asyncio.run(_load(server, f"sqlite:///{folder / 'local.db'}", runs, steps, rounds))


async def _load(server: ServerProcess, local: str, runs: int, steps: int, rounds: int) -> dict[str, float]:
    ours, theirs = AsyncAgent("bench", store=server.url), AsyncAgent("bench", store=local)
    pairs = [
        [await _turn(agent, f"{number}", runs, steps, server) for agent in (ours, theirs)]
        for number in range(rounds + 1)  # the first warms up
    ]
    await ours.close()
    await theirs.close()
    return {
        "ratio": median(remote.per_second / near.per_second for remote, near in pairs[1:]),
        "per_second": median(remote.per_second for remote, _ in pairs[1:]),
        "local_per_second": median(near.per_second for _, near in pairs[1:]),
        "server_cpu_ms": median(remote.server_cpu_ms for remote, _ in pairs[1:]),
    }


async def _turn(agent: AsyncAgent, name: str, runs: int, steps: int, server: ServerProcess) -> Turn:
    texts, gate = Texts(), asyncio.Barrier(runs + 1)

    @agent.step
    async def think(number: int) -> str:
        return texts(number)

    async def work(number: int) -> None:
        async with agent.run(f"{name}-{number}"):
            await think(-1)
            await gate.wait()
            for nth in range(steps):
                await think(nth)
            await gate.wait()

    tasks = [asyncio.create_task(work(number)) for number in range(runs)]
    await gate.wait()
    cpu, begun = server.cpu_ns(), perf_counter()
    await gate.wait()
    seconds, cpu = perf_counter() - begun, server.cpu_ns() - cpu
    await asyncio.gather(*tasks)
    return Turn(runs * steps / seconds, cpu / (runs * steps) / 1e6)


def idle_followers(folder: Path, followers: int, seconds: float) -> dict[str, float]:
    """Streams of events that nothing is written to: processor time and memory of the server."""
    keys = [_make_key(folder, number) for number in range(-(-followers // FOLLOWERS_OF_KEY))]
    with serving(folder) as server, Agent("bench", store=server.url, api_key=keys[0]) as agent:
        agent.events.append("BEGUN", {})
        _follow(server.url, keys[0]).close()
        sleep(seconds / 2)
        idle, memory = _share(server, seconds), server.memory_kb()
        lines = [_follow(server.url, keys[number // FOLLOWERS_OF_KEY]) for number in range(followers)]
        sleep(seconds / 2)
        busy = _share(server, seconds)
        grown = server.memory_kb() - memory
        agent.events.append("GO", {})
        reached = sum(b"GO" in _receive(line) for line in lines)
        for line in lines:
            line.close()
    assert reached == followers, f"{reached} of {followers} followers got an event"
    return {"percent": (busy - idle) * 100, "kb": grown / followers, "idle_percent": idle * 100}


def _make_key(folder: Path, number: int) -> str:
    store = f"sqlite:///{folder / 'served.db'}"
    command = [sys.executable, "-m", "perdure.cli", "keys", "create", f"k{number}", "--store", store, "--json"]
    key: str = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["key"]
    return key


def _follow(url: str, key: str) -> socket.socket:
    """A stream whose headers have arrived."""
    address = urlsplit(url)
    line = socket.create_connection((address.hostname or "", address.port or 0), timeout=60)
    line.sendall(f"GET {FOLLOW} HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {key}\r\n\r\n".encode())
    head = b""
    while b"\r\n\r\n" not in head:
        head += line.recv(4096)
    assert head.startswith(b"HTTP/1.1 200"), head[:200]
    return line


def _receive(line: socket.socket) -> bytes:
    told = b""
    while b"GO" not in told and (more := line.recv(4096)):
        told += more
    return told


def _share(server: ServerProcess, seconds: float) -> float:
    """The share of a core that the server uses."""
    before, begun = server.cpu_ns(), perf_counter()
    sleep(seconds)
    return (server.cpu_ns() - before) / 1e9 / (perf_counter() - begun)
