"""Worker processes seen from here: started, fed, killed, and asked what they take of the processor."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import clock_gettime_ns, monotonic, sleep, time_ns
from typing import Self

from perdure import Agent

from ..failures import MeasurementFailed
from ..lab import ROOT, clean_environment
from .program import ASYNC, COUNT, FOLDER, STORE, Notes, Tasks

READY_SECONDS_MAX = 60
LOOK_SECONDS = 0.002
_PROCESSOR_TIME = 2
"""In the number of a clock beside the process id (Linux): all threads of that process, also those that have ended."""


class Worker:
    """One process of `perdure worker`, ready when it is made."""

    def __init__(self, url: str, folder: Path, concurrency: int, *, loop: bool = False, count: bool = False) -> None:
        self._complaints = (folder / f"worker-{time_ns()}.txt").open("w+b")
        self._counted = folder / f"statements-{time_ns()}"
        environment = clean_environment() | {STORE: url, FOLDER: str(folder)}
        environment |= ({ASYNC: "1"} if loop else {}) | ({COUNT: str(self._counted)} if count else {})
        command = [sys.executable, "-m", "perdure.cli", "worker", "bench.workers.program:agent", "--json"]
        self._process = subprocess.Popen(
            [*command, "--concurrency", str(concurrency)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line or json.loads(line).get("worker") != "ready":
            raise self.failure("did not start")
        # What it says from now on nobody reads: a full pipe would stop it.
        self._drain = subprocess.Popen(["cat"], stdin=self._process.stdout, stdout=subprocess.DEVNULL)
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()
        self._drain.wait()
        self._complaints.close()

    def kill(self) -> int:
        """SIGKILL, and the moment before it."""
        at = time_ns()
        self._process.kill()
        self._process.wait()
        return at

    def stop(self) -> None:
        """In order."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(READY_SECONDS_MAX)

    def cpu_ns(self) -> int:
        """Processor time of all its threads, so far."""
        if self._process.poll() is not None:
            raise self.failure(f"ended with {self._process.returncode}")
        return clock_gettime_ns((~self._process.pid << 3) | _PROCESSOR_TIME)

    def memory_mb(self) -> float:
        """What it has in memory."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024

    def statements(self) -> int:
        """So far, on SQLite, of a worker that counts."""
        return int(self._counted.read_text() or 0)

    def failure(self, how: str) -> MeasurementFailed:
        """What it has complained of."""
        self._process.kill()
        self._process.wait()
        self._complaints.seek(0)
        said = self._complaints.read().decode(errors="replace").strip()
        return MeasurementFailed(f"a worker {how}:\n{said[-2000:]}")


class Client:
    """Who feeds the workers of a store, and sees what becomes of it."""

    def __init__(self, url: str, folder: Path) -> None:
        self.agent = Agent("bench", store=url)
        self.notes = Notes(folder)
        self.tasks = Tasks(self.agent, self.notes)

    def feed(self, count: int, start: Callable[[int], object], *, batch: int = 500) -> None:
        """Queue many runs, some hundred of them in one commit."""

        def queue(first: int) -> None:
            for number in range(first, min(count, first + batch)):
                start(number)

        for first in range(0, count, batch):
            with self.agent.run(f"feed-{time_ns()}") as run:
                run.step(queue, first)

    def count_left(self) -> int:
        """Runs that are queued or at work."""
        return sum(queue.queued + queue.running for queue in self.agent.queues.list())

    def count_dead(self) -> int:
        """Runs that have failed."""
        return sum(queue.dead for queue in self.agent.queues.list())

    def wait_until(
        self, ready: Callable[[], object], what: str, seconds: float = 120, every: float = LOOK_SECONDS
    ) -> None:
        """Look until something has come."""
        last = monotonic() + seconds
        while not ready():
            if monotonic() > last:
                raise MeasurementFailed(f"waited {seconds:g} s in vain for {what}: {self.agent.queues.list()}")
            sleep(every)


@contextmanager
def client(url: str, folder: Path) -> Iterator[Client]:
    """Closed at the end."""
    made = Client(url, folder)
    try:
        yield made
    finally:
        made.agent.close()


@contextmanager
def workers(count: int, url: str, folder: Path, concurrency: int, *, loop: bool = False) -> Iterator[list[Worker]]:
    """So many of them; killed at the end, if they are still there."""
    with ExitStack() as stack:
        yield [stack.enter_context(Worker(url, folder, concurrency, loop=loop)) for _ in range(count)]
