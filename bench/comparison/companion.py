"""A process of `bench.peers.child` seen from here: started, told what to do, killed."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import tempfile
from time import monotonic, time_ns
from types import TracebackType
from typing import Any, Self

import msgspec

from ..failures import MeasurementFailed
from ..lab import ROOT, clean_environment

ANSWER_SECONDS_MAX = 120


class Block(msgspec.Struct, frozen=True):
    """Some calls in a row: how long each took, the processor time of all, and how many reached the function."""

    nanoseconds: list[int]
    cpu_ns: int
    bodies: int
    statements: int
    syncs: int | None

    @property
    def seconds(self) -> float:
        return sum(self.nanoseconds) / 1e9


class Opening(msgspec.Struct, frozen=True):
    """When the process began, had imported its system, and had opened the run, by the clock of the machine."""

    begun_ns: int
    imported_ns: int
    opened_ns: int


class Companion:
    """One process with one open run. Use it as a context: it is killed at the end unless it has ended by itself."""

    def __init__(
        self,
        python: str,
        spec: dict[str, Any],
        environment: dict[str, str] | None = None,
        module: str = "bench.peers.child",
    ) -> None:
        self._spec, self._next = spec, 0
        # A file, not a pipe: nobody reads while it works, and a system may have much to say.
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [python, "-m", module, json.dumps(spec)],
            cwd=ROOT,
            env=clean_environment() | (environment or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            start_new_session=True,
        )
        self._heard = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self.kill()

    def wait_opened(self) -> Opening:
        """Wait until the run is open."""
        return msgspec.convert(self.hear(), Opening)

    def order(self, **order: Any) -> None:
        """Tell it what to do; it does it when it comes to it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure("ended") from None

    def facts(self) -> dict[str, str]:
        """The version of the system and its settings."""
        self.order(facts=True)
        return {name: str(value) for name, value in self.hear().items()}

    def calls(self, size: int) -> Block:
        """The next calls."""
        self.order(first=self._next, size=size)
        self._next += size
        return self.answer()

    def answer(self) -> Block:
        """What it says to an order for calls."""
        return msgspec.convert(self.hear(), Block)

    def end(self) -> None:
        """No more orders: the run ends as it should, and the process with it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(ANSWER_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise self._failure("does not end") from None
        if code != 0:
            raise self._failure(f"ended with {code}")

    def kill(self) -> int:
        """SIGKILL, and the moment when it was dead."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        dead = time_ns()
        for pipe in (self._process.stdin, self._process.stdout, self._complaints):
            if pipe is not None:
                pipe.close()
        return dead

    def hear(self) -> dict[str, Any]:
        """The next thing that it says."""
        assert self._process.stdout is not None
        last = monotonic() + ANSWER_SECONDS_MAX
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._heard:
                if not selector.select(max(last - monotonic(), 0)):
                    raise self._failure("does not answer")
                data = os.read(self._process.stdout.fileno(), 65536)
                if not data:
                    raise self._failure("ended")
                self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _failure(self, how: str) -> MeasurementFailed:
        self._process.kill()
        self._process.wait()
        self._complaints.seek(0)
        said = self._complaints.read().decode(errors="replace").strip()
        return MeasurementFailed(f"{self._spec['system']} on {self._spec['url']} {how}:\n{said[-2000:]}")
