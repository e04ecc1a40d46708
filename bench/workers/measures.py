"""What is measured of workers, on one store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, sleep, time_ns

import msgspec

from .fleet import Client, Worker, client, workers
from .program import STEPS

QUIET_SECONDS = 1.5
"""Until a worker that has just started has nothing to do any more."""


PARKING_SECONDS_MAX = 3600


class Rate(msgspec.Struct, frozen=True):
    """How many runs a second, in the median of some rounds, and what one takes of the workers' processors."""

    runs: float
    cpu_ms: float

    @property
    def steps(self) -> float:
        return self.runs * STEPS


class Idle(msgspec.Struct, frozen=True):
    """A worker with nothing to do, for a second."""

    cpu_ms: float
    statements: float
    memory_mb: float


def rate(url: str, folder: Path, *, count: int, concurrency: int, runs: int, rounds: int, loop: bool = False) -> Rate:
    """Runs of ten steps that are queued while nobody works; from the first worker's turn to the end of the last run."""
    with client(url, folder) as made, workers(count, url, folder, concurrency, loop=loop) as crew:
        found = [_round(made, crew, runs) for _ in range(rounds + 1)][1:]
    return Rate(median(one.runs for one in found), median(one.cpu_ms for one in found))


def _round(made: Client, crew: list[Worker], runs: int) -> Rate:
    made.agent.queues.pause("default")
    name = time_ns()
    made.feed(runs, lambda number: made.tasks.chain.start(f"{name}-{number}", STEPS))
    assert made.count_left() == runs
    cpu, begun = sum(worker.cpu_ns() for worker in crew), perf_counter()
    made.agent.queues.resume("default")
    made.wait_until(lambda: not made.count_left(), "the runs")
    seconds, used = perf_counter() - begun, sum(worker.cpu_ns() for worker in crew) - cpu
    return Rate(runs / seconds, used / runs / 1e6)


def takeovers(url: str, folder: Path, times: int) -> list[float]:
    """From SIGKILL of a worker to the first resumed step in another one, which was waiting, in milliseconds."""
    found = []
    with client(url, folder) as made, ExitStack() as stack:
        crew = [stack.enter_context(Worker(url, folder, 1))]
        for number in range(times):
            name = f"dies-{number}"
            made.tasks.dies.start(name, name, STEPS)
            made.wait_until(partial(made.notes.read_time, "begun", name), "the first worker")
            crew.append(stack.enter_context(Worker(url, folder, 1)))
            sleep(QUIET_SECONDS)
            at = crew[-2].kill()
            made.wait_until(partial(made.notes.read_time, "resumed", name), "the second worker")
            found.append((made.notes.read_time("resumed", name) - at) / 1e6)
            made.wait_until(lambda: not made.count_left(), "its end")
    return found


def wakings(url: str, folder: Path, times: int) -> list[float]:
    """From the call that answers a parked run to its next line of code, in milliseconds."""
    found = []
    with client(url, folder) as made, Worker(url, folder, 4):
        for number in range(times):
            name = f"asks-{number}"
            made.tasks.asks.start(name, name)
            made.wait_until(lambda: parked(made) == 1, "the run to be parked")
            at = time_ns()
            made.agent.runs.answer(name, "yes")
            made.wait_until(partial(made.notes.read_time, "woken", name), "the run to be woken")
            found.append((made.notes.read_time("woken", name) - at) / 1e6)
            made.wait_until(lambda: not made.count_left() and not parked(made), "its end")
    return found


def parked(made: Client) -> int:
    """Runs that wait and are in nobody's memory."""
    return sum(queue.parked for queue in made.agent.queues.list())


def park(url: str, folder: Path, runs: int) -> float:
    """Leave so many runs parked; how many a second."""
    with client(url, folder) as made, workers(2, url, folder, 32):
        begun = perf_counter()
        made.feed(runs, lambda n: made.tasks.asks.start(f"parked-{n}", f"parked-{n}"))
        # Counting them takes its time, too: not too often.
        made.wait_until(lambda: parked(made) == runs, "all to be parked", PARKING_SECONDS_MAX, every=0.5)
        return runs / (perf_counter() - begun)


def wakings_among(url: str, folder: Path, runs: int, times: int) -> list[float]:
    """The same for some of those that `park` has left, all over them."""
    found = []
    with client(url, folder) as made, Worker(url, folder, 4):
        sleep(QUIET_SECONDS)
        for number in range(0, runs, -(-runs // times)):
            name = f"parked-{number}"
            at = time_ns()
            made.agent.runs.answer(name, "yes")
            made.wait_until(partial(made.notes.read_time, "woken", name), "the run to be woken")
            found.append((made.notes.read_time("woken", name) - at) / 1e6)
            made.wait_until(partial(_is_over, made, name), "its end")
    return found


def _is_over(made: Client, run: str) -> bool:
    return made.agent.runs.get(run).finished


def idle(url: str, folder: Path, seconds: float, statements: Callable[[], int] | None = None) -> Idle:
    """What a worker takes that has nothing to do. Statements are its own, or those that somebody else counts."""
    with Worker(url, folder, 16, count=statements is None) as worker:
        said = statements or worker.statements
        sleep(QUIET_SECONDS)
        cpu, before, begun = worker.cpu_ns(), said(), perf_counter()
        sleep(seconds)
        took = perf_counter() - begun
        return Idle((worker.cpu_ns() - cpu) / took / 1e6, (said() - before) / took, worker.memory_mb())
