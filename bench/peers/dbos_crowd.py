"""DBOS with many workflows at a time: called in threads, or through one of its queues."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from typing import Any

from dbos import DBOS, SetWorkflowID  # type: ignore[import-not-found]

from .contender import on_postgres, sqlite_path
from .settings import read_postgres_settings, read_sqlite_settings

QUEUE = "crowd"
POLL_SECONDS = 0.05
"""Its own default is a second, for the queue and for results: with that it would be measured at its pauses."""


class Workflows:
    """One workflow, one queue."""

    def __init__(self, url: str, body: Callable[[int], str], steps: int, at_once: int) -> None:
        self._url, self._at_once = url, at_once
        DBOS(config={"name": "comparison", "system_database_url": url, "log_level": "CRITICAL"})

        def work(number: int) -> str:
            # A plain function: DBOS notes on it that it is a step.
            return body(number)

        step: Any = DBOS.step(name="think")(work)

        @DBOS.workflow(name="chain")  # type: ignore[untyped-decorator,unused-ignore]
        def chain() -> int:
            for number in range(steps):
                step(number)
            return steps

        self._workflow = chain
        DBOS.launch()
        DBOS.register_queue(QUEUE, worker_concurrency=at_once, polling_interval_sec=POLL_SECONDS)

    def call(self, name: str) -> None:
        """In the thread of the caller, which is the shortest way that it has."""
        with SetWorkflowID(name):
            self._workflow()

    def queue(self, names: Sequence[str]) -> None:
        """Each enqueued by itself."""
        handles = []
        for name in names:
            with SetWorkflowID(name):
                handles.append(DBOS.enqueue_workflow(QUEUE, self._workflow))
        for handle in handles:
            handle.get_result(polling_interval_sec=POLL_SECONDS)

    def facts(self) -> dict[str, str]:
        """Its defaults, but for the polling."""
        store = (
            read_postgres_settings(self._url)
            if on_postgres(self._url)
            else read_sqlite_settings(sqlite_path(self._url))
        )
        told = f"{store}, worker_concurrency={self._at_once}, polling_interval_sec={POLL_SECONDS} (default 1)"
        return {"version": importlib.metadata.version("dbos"), "set": told}

    def close(self) -> None:
        """Its threads are ended too."""
        DBOS.destroy()


def crowd(url: str, body: Callable[[int], str], steps: int, at_once: int) -> Workflows:
    """The module's door."""
    return Workflows(url, body, steps, at_once)
