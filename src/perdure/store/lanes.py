"""Order and threads for commits that each have a connection of their own.

Units of one stream build on each other, so they are committed one after the other; others go side by side.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from ..limits import LOCK_SECONDS_MAX
from .gate import Gate

T = TypeVar("T")


class Lanes:
    """A gate for one at a time in each lane that is in use."""

    def __init__(self) -> None:
        self._gates: dict[int, tuple[Gate, int]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def lane(self, lane: int) -> Iterator[None]:
        """Wait for the turn in this thread. Lane 0 is free for all."""
        if not lane:
            yield
            return
        gate = self._join(lane)
        try:
            # Whoever is before us has deadlines of its own.
            while not gate.enter(time.monotonic() + LOCK_SECONDS_MAX):
                pass
            try:
                yield
            finally:
                gate.leave()
        finally:
            self._part(lane)

    def when_free(self, lane: int, start: Callable[[], object]) -> None:
        """Call `start` at its turn; whoever was started must say `done`."""
        if not lane or self._join(lane).ask(start):
            start()

    def done(self, lane: int) -> None:
        """The next one's turn."""
        if lane:
            self._gates[lane][0].leave()
            self._part(lane)

    def _join(self, lane: int) -> Gate:
        with self._lock:
            gate, users = self._gates.get(lane) or (Gate(1), 0)
            self._gates[lane] = (gate, users + 1)
        return gate

    def _part(self, lane: int) -> None:
        with self._lock:
            gate, users = self._gates[lane]
            if users == 1:
                del self._gates[lane]
            else:
                self._gates[lane] = (gate, users - 1)


class Workers:
    """Threads that commit for event loops; made when they are first needed."""

    def __init__(self, lanes: Lanes, threads: int) -> None:
        self._lanes = lanes
        self._threads = threads
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None

    async def result_of(self, lane: int, work: Callable[[], T]) -> T:
        """Do the work at its turn. A caller that is cancelled still waits for its end."""
        import asyncio

        ours: Future[T] = Future()

        def task() -> None:
            try:
                result = work()
            except BaseException as error:  # it belongs to the caller, not to this thread
                self._lanes.done(lane)
                ours.set_exception(error)
            else:
                self._lanes.done(lane)
                ours.set_result(result)

        executor = self._running()
        self._lanes.when_free(lane, lambda: executor.submit(task))
        future = asyncio.wrap_future(ours)
        cancelled: asyncio.CancelledError | None = None
        while not future.done():
            try:
                await asyncio.shield(future)
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
        return future.result()

    def close(self) -> None:
        """End them, after what they are at."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()

    def _running(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="perdure-commit")
            return self._executor
