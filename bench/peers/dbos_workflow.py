"""DBOS as a contender: a workflow of steps, with the configuration that its documentation starts with."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dbos import DBOS, SetWorkflowID  # type: ignore[import-not-found]

from .contender import Call, Contender, on_postgres, sqlite_path
from .settings import read_postgres_settings, read_sqlite_settings


class Workflow:
    """One workflow. DBOS is one object per process: it is made here, and launched by `run`."""

    def __init__(self, url: str) -> None:
        self._url = url
        DBOS(config={"name": "comparison", "system_database_url": url, "log_level": "CRITICAL"})

    def durable(self, name: str, function: Call, *, effect: bool) -> Call:
        """A step; DBOS has no other kind for what happens outside of its database."""

        def work(number: int) -> str:
            # A plain function: DBOS notes on it that it is a step, and methods take no notes.
            return function(number)

        step: Any = DBOS.step(name=name)(work)
        return lambda number: str(step(number))

    def run(self, name: str, body: Callable[[], None]) -> None:
        """Started, or recovered by the launch; the second start of an id attaches to the first."""
        workflow = DBOS.workflow(name="run")(body)
        DBOS.launch()
        with SetWorkflowID(name):
            handle = DBOS.start_workflow(workflow)
        handle.get_result()
        DBOS.destroy()

    def facts(self) -> dict[str, str]:
        """Read from its database and, for SQLite, from its connections."""
        durability = (
            read_postgres_settings(self._url)
            if on_postgres(self._url)
            else read_sqlite_settings(sqlite_path(self._url))
        )
        return {"version": importlib.metadata.version("dbos"), "durability": durability}


def contender(url: str, outside: Path | None = None) -> Contender:
    """The module's door."""
    return Workflow(url)
