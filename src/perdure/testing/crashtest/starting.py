"""Starting processes and waiting for them: the crash test's end of the zygotes."""

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

from .orders import READY, News, Order

SLICE_SECONDS = 0.25
"""How often somebody looks at a process that takes long."""

READY_SECONDS_MAX = 60


class Process:
    """A program that was started."""

    def __init__(self) -> None:
        self.code: int | None = None
        self._pid = 0
        self._started = threading.Event()
        self._stopped = threading.Event()
        self._ended = threading.Event()

    def hear(self, news: News) -> None:
        """News from its nurse."""
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
        """Whether it has ended by itself in that time; `give_up` is asked now and then."""
        began = time.monotonic()
        while not self._ended.wait(min(every, max(0.0, seconds))):
            passed = time.monotonic() - began
            if passed >= seconds or give_up(passed):
                return False
        return True

    def wait_until_stopped(self, seconds: float) -> bool:
        """Whether it was paused in that time, and has not ended."""
        return self._stopped.wait(seconds) and not self._ended.is_set()

    def go_on(self) -> None:
        """After a pause."""
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self._pid, signal.SIGCONT)

    def kill(self) -> None:
        """Together with what it has started; too late is fine."""
        self._started.wait(10)
        if not self._ended.is_set() and self._pid:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self._pid, signal.SIGKILL)
        self._ended.wait(10)


class Zygote:
    """The other end of zygote.py. What sets and dicts of text look like is decided by `seed`, as in a real start."""

    def __init__(self, seed: int) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "perdure.testing.crashtest.zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONDONTWRITEBYTECODE": "1"},
            start_new_session=True,
        )
        self._processes: dict[int, Process] = {}
        self._numbers = itertools.count()
        self._ready = threading.Event()
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def start(self, order: Order) -> Process:
        """The program, in a new process."""
        self._ready.wait(READY_SECONDS_MAX)  # so that its own time is measured, and not that of the imports
        with self._lock:
            process, number = Process(), next(self._numbers)
            self._processes[number] = process
            assert self._child.stdin is not None
            self._child.stdin.write(msgspec.json.encode(msgspec.structs.replace(order, id=number)) + b"\n")
            self._child.stdin.flush()
        return process

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    def close(self) -> None:
        """Leave nobody behind."""
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
            news = msgspec.json.decode(line, type=News)
            if news.id == READY:
                self._ready.set()
                continue
            self._processes[news.id].hear(news)
            if news.code is not None:
                del self._processes[news.id]


_zygotes: dict[tuple[int, str], Zygote] = {}
_making = threading.Lock()


def zygote_of(seed: int) -> Zygote:
    """One for all crash tests of this process: a suite has many, and each would wait for the imports."""
    key = (seed, os.environ.get("PYTHONPATH", ""))
    with _making:
        if key not in _zygotes or not _zygotes[key].alive:
            _zygotes[key] = Zygote(seed)
        return _zygotes[key]


@atexit.register
def _close_all() -> None:
    while _zygotes:
        _zygotes.popitem()[1].close()
