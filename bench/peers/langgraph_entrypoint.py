"""LangGraph's functional API as a contender: an entrypoint of tasks, `durability="sync"`, its strongest."""

from __future__ import annotations

import importlib.metadata
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langgraph.func import entrypoint, task

from .contender import Call, Contender, on_postgres, sqlite_path
from .settings import read_postgres_settings, read_sqlite_settings


class Entrypoint:
    """One thread of LangGraph with the saver of its store."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._saver: Any = _postgres_saver(url) if on_postgres(url) else _sqlite_saver(url)

    def durable(self, name: str, function: Call, *, effect: bool) -> Call:
        """A task whose result is waited for; LangGraph has no other kind for what happens outside."""
        named: Any = task(name=name)
        submit = named(function)
        return lambda number: str(submit(number).result())

    def run(self, name: str, body: Callable[[], None]) -> None:
        """Invoked with an input, or with None to resume: which of the two is left to the caller."""

        def work(_input: dict[str, int]) -> None:
            body()

        graph: Any = entrypoint(checkpointer=self._saver)(work)
        config = {"configurable": {"thread_id": name}}
        begun = self._saver.get_tuple(config) is not None
        graph.invoke(None if begun else {"start": 1}, config, durability="sync")

    def facts(self) -> dict[str, str]:
        """Read from the saver's connection."""
        durability = (
            read_postgres_settings(self._url)
            if on_postgres(self._url)
            else read_sqlite_settings(sqlite_path(self._url))
        )
        return {"version": importlib.metadata.version("langgraph"), "durability": durability}


def _sqlite_saver(url: str) -> Any:
    from langgraph.checkpoint.sqlite import SqliteSaver  # type: ignore[import-not-found]

    return SqliteSaver(sqlite3.connect(sqlite_path(url), check_same_thread=False))


def _postgres_saver(url: str) -> Any:
    import psycopg
    from langgraph.checkpoint.postgres import PostgresSaver  # type: ignore[import-not-found]
    from psycopg.rows import dict_row

    # The connection that PostgresSaver.from_conn_string makes.
    saver = PostgresSaver(psycopg.connect(url, autocommit=True, prepare_threshold=0, row_factory=dict_row))
    saver.setup()
    return saver


def contender(url: str, outside: Path | None = None) -> Contender:
    """The module's door."""
    return Entrypoint(url)
