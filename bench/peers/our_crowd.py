"""Perdure with many runs at a time: a task, called in threads or done by a worker of the same process."""

from __future__ import annotations

import importlib.metadata
import threading
from collections.abc import Callable, Sequence

from perdure import Agent

from .contender import on_postgres
from .settings import read_postgres_settings


class Tasks:
    """One task, one worker."""

    def __init__(self, url: str, body: Callable[[int], str], steps: int, at_once: int) -> None:
        self._url, self._at_once = url, at_once
        self._agent = Agent("bench", store=url)
        step = self._agent.step(name="think")(body)

        @self._agent.task
        def chain() -> int:
            for number in range(steps):
                step(number)
            return steps

        self._task = chain
        self._worker = self._agent.worker(concurrency=at_once)
        self._thread: threading.Thread | None = None

    def call(self, name: str) -> None:
        """In the thread of the caller."""
        self._task.run(name)

    def queue(self, names: Sequence[str]) -> None:
        """Each started by itself, as a program does that starts one now and then."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._worker.run)
            self._thread.start()
        for name in names:
            self._task.start(name)
        for name in names:
            self._task.result(name)

    def facts(self) -> dict[str, str]:
        """As it is when nobody sets anything."""
        store = read_postgres_settings(self._url) if on_postgres(self._url) else "journal_mode=wal, synchronous=full"
        return {"version": importlib.metadata.version("perdure"), "set": f"{store}, concurrency={self._at_once}"}

    def close(self) -> None:
        """The worker first."""
        self._worker.drain()
        if self._thread is not None:
            self._thread.join()
        self._agent.close()


def crowd(url: str, body: Callable[[int], str], steps: int, at_once: int) -> Tasks:
    """The module's door."""
    return Tasks(url, body, steps, at_once)
