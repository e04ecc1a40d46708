"""The savers that are compared: how each is made, and the two ways to call one."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import Any, TypeVar

Value = TypeVar("Value")
POOL_MAX = 10
"""Connections for eight threads."""

_PRAGMAS = {"journal_mode": "PRAGMA journal_mode", "synchronous": "PRAGMA synchronous"}
_SETTINGS = ("fsync", "synchronous_commit")
_LEVELS = {"0": "off", "1": "normal", "2": "full", "3": "extra"}


class Saver:
    """One saver, called as its users call it: in a thread, or in an event loop."""

    def __init__(self, name: str, url: str, *, pooled: bool) -> None:
        self.name, self.url, self.pooled = name, url, pooled
        self.is_async = name.startswith("Async")
        self.it: Any = None
        self._runner = asyncio.Runner() if self.is_async else None
        self._open = AsyncExitStack()
        self.run(self._make())

    async def _make(self) -> None:
        self.it = await MAKERS[self.name](self.url, self._open, self.pooled)

    def run(self, work: Coroutine[Any, Any, Value]) -> Value:
        """In the saver's loop; of a blocking saver nothing ever waits for a loop, and none is paid for."""
        if self._runner is not None:
            return self._runner.run(work)
        try:
            work.send(None)
        except StopIteration as end:
            found: Value = end.value
            return found
        raise AssertionError("a blocking saver has waited for a loop")

    async def call(self, method: str, *arguments: Any) -> Any:
        """A method of the saver, in its colour."""
        if self.is_async:
            return await getattr(self.it, f"a{method}")(*arguments)
        return getattr(self.it, method)(*arguments)

    def facts(self) -> dict[str, str]:
        """Its version, and what it has set to make a commit survive a power cut."""
        package = PACKAGES[self.name]
        durability = self.run(self._durability())
        return {"version": f"{package} {version(package)}", "durability": durability}

    async def _durability(self) -> str:
        if self.name == "InMemorySaver":
            return "none"
        if self.url.startswith("postgres"):
            return _read_postgres_settings(self.url)
        if "Sqlite" not in self.name:
            return "journal_mode=wal, synchronous=full"  # Perdure reads them back, and refuses anything less
        told = []
        for name, sql in _PRAGMAS.items():
            cursor = self.it.conn.execute(sql)
            row = await (await cursor).fetchone() if self.is_async else cursor.fetchone()
            told.append(f"{name}={_LEVELS.get(str(row[0]), row[0])}")
        return ", ".join(told)

    def close(self) -> None:
        """Nothing is left open."""
        self.run(self._open.aclose())
        if self._runner is not None:
            self._runner.close()


async def _memory(_url: str, _open: AsyncExitStack, _pooled: bool) -> Any:
    from langgraph.checkpoint.memory import InMemorySaver

    return InMemorySaver()


async def _sqlite(url: str, stack: AsyncExitStack, _pooled: bool) -> Any:
    from langgraph.checkpoint.sqlite import SqliteSaver  # type: ignore[import-not-found]

    connection = sqlite3.connect(url.removeprefix("sqlite:///"), check_same_thread=False)
    stack.callback(connection.close)
    saver = SqliteSaver(connection)
    saver.setup()
    return saver


async def _async_sqlite(url: str, stack: AsyncExitStack, _pooled: bool) -> Any:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver  # type: ignore[import-not-found]

    saver = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(url.removeprefix("sqlite:///")))
    await saver.setup()
    return saver


async def _postgres(url: str, stack: AsyncExitStack, pooled: bool) -> Any:
    from langgraph.checkpoint.postgres import PostgresSaver  # type: ignore[import-not-found]
    from psycopg.rows import dict_row
    from psycopg_pool import ConnectionPool  # type: ignore[import-not-found]

    if pooled:
        options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        saver = PostgresSaver(stack.enter_context(ConnectionPool(url, max_size=POOL_MAX, kwargs=options)))
    else:
        saver = stack.enter_context(PostgresSaver.from_conn_string(url))
    saver.setup()
    return saver


async def _async_postgres(url: str, stack: AsyncExitStack, pooled: bool) -> Any:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver  # type: ignore[import-not-found]
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    if pooled:
        options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        pool = AsyncConnectionPool(url, max_size=POOL_MAX, kwargs=options, open=False)
        saver = AsyncPostgresSaver(await stack.enter_async_context(pool))
    else:
        saver = await stack.enter_async_context(AsyncPostgresSaver.from_conn_string(url))
    await saver.setup()
    return saver


async def _perdure(url: str, stack: AsyncExitStack, _pooled: bool) -> Any:
    from perdure import Agent
    from perdure.adapters.langgraph import PerdureSaver

    agent = Agent("bench", store=url)
    stack.callback(agent.close)
    return PerdureSaver(agent)


Maker = Callable[[str, AsyncExitStack, bool], Coroutine[Any, Any, Any]]
MAKERS: dict[str, Maker] = {
    "InMemorySaver": _memory,
    "SqliteSaver": _sqlite,
    "AsyncSqliteSaver": _async_sqlite,
    "PostgresSaver": _postgres,
    "AsyncPostgresSaver": _async_postgres,
    "PerdureSaver": _perdure,
    "Async PerdureSaver": _perdure,
}
PACKAGES = {
    "InMemorySaver": "langgraph-checkpoint",
    "SqliteSaver": "langgraph-checkpoint-sqlite",
    "AsyncSqliteSaver": "langgraph-checkpoint-sqlite",
    "PostgresSaver": "langgraph-checkpoint-postgres",
    "AsyncPostgresSaver": "langgraph-checkpoint-postgres",
    "PerdureSaver": "perdure",
    "Async PerdureSaver": "perdure",
}


def _read_postgres_settings(url: str) -> str:
    import psycopg

    with psycopg.connect(url) as connection:
        rows = [connection.execute("SELECT current_setting(%s)", (name,)).fetchone() for name in _SETTINGS]
    return ", ".join(f"{name}={row[0]}" for name, row in zip(_SETTINGS, rows, strict=True) if row is not None)
