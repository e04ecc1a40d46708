"""Starts processes through a fork server and waits for them."""

from __future__ import annotations

import atexit
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from perdure.testing.crashtest.messages import READY, LaunchOrder, ProcessNews

SLICE_SECONDS = 0.25
"""The polling interval for a process that takes long."""

READY_SECONDS_MAX = 60


class ProgramProcess:
    """A program that was started."""

    def __init__(self) -> None:
        self.code: int | None = None
        self._pid = 0
        self._started = threading.Event()
        self._stopped = threading.Event()
        self._ended = threading.Event()

    def handle_status(self, news: ProcessNews) -> None:
        """Handle a status message from the fork server."""
        if news.code is None:
            self._pid = news.pid
        else:
            self.code = news.code
            self._ended.set()
        if news.stopped or news.code is not None:
            self._stopped.set()
        self._started.set()

    def wait(
        self, seconds: float, give_up: Callable[[float], bool] = lambda passed: False, every: float = SLICE_SECONDS
    ) -> bool:
        """Wait for the process to end by itself. `give_up` is polled. Returns whether it ended."""
        began = time.monotonic()
        while not self._ended.wait(min(every, max(0.0, seconds))):
            passed = time.monotonic() - began
            if passed >= seconds or give_up(passed):
                return False
        return True

    def wait_until_stopped(self, seconds: float) -> bool:
        """Wait for the process to be stopped. Returns whether it was, and has not ended."""
        return self._stopped.wait(seconds) and not self._ended.is_set()

    def resume(self) -> None:
        """Continue a stopped process."""
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self._pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process group. It may already have ended."""
        self._started.wait(10)
        if not self._ended.is_set() and self._pid:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self._pid, signal.SIGKILL)
        self._ended.wait(10)


class ForkServerClient:
    """A client of the fork server in fork_server.py. `seed` sets the hash seed, as a real start would."""

    def __init__(self, seed: int) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "perdure.testing.crashtest.fork_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONDONTWRITEBYTECODE": "1"},
            start_new_session=True,
        )
        self._processes: dict[int, ProgramProcess] = {}
        self._numbers = itertools.count()
        self._ready = threading.Event()
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def start(self, order: LaunchOrder) -> ProgramProcess:
        """Start a program in a new process."""
        self._ready.wait(READY_SECONDS_MAX)  # so that the imports do not count as the program's time
        with self._lock:
            process, number = ProgramProcess(), next(self._numbers)
            self._processes[number] = process
            assert self._child.stdin is not None
            self._child.stdin.write(msgspec.json.encode(msgspec.structs.replace(order, id=number)) + b"\n")
            self._child.stdin.flush()
        return process

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    def close(self) -> None:
        """Kill all processes and the fork server."""
        for process in list(self._processes.values()):
            process.kill()
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        self._child.wait(10)
        self._reader.join(10)
        self._child.stdout.close()

    def _listen(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            news = msgspec.json.decode(line, type=ProcessNews)
            if news.id == READY:
                self._ready.set()
                continue
            self._processes[news.id].handle_status(news)
            if news.code is not None:
                del self._processes[news.id]


_fork_servers: dict[tuple[int, str], ForkServerClient] = {}
_making = threading.Lock()


def fork_server_of(seed: int) -> ForkServerClient:
    """Return a fork server, shared by all crash tests of this process, so that imports are paid once."""
    key = (seed, os.environ.get("PYTHONPATH", ""))
    with _making:
        if key not in _fork_servers or not _fork_servers[key].alive:
            _fork_servers[key] = ForkServerClient(seed)
        return _fork_servers[key]


@atexit.register
def _close_all() -> None:
    while _fork_servers:
        _fork_servers.popitem()[1].close()
