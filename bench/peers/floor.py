"""A bare commit as a contender: one row of the same bytes, on disk when the call returns, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw

from .contender import Call, Contender, on_postgres, sqlite_path
from .settings import read_postgres_settings


class Floor:
    """It remembers nothing that could be resumed."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._insert = _postgres_insert(url) if on_postgres(url) else _sqlite_insert(sqlite_path(url))

    def durable(self, name: str, function: Call, *, effect: bool) -> Call:
        """Calls the function, and keeps what it returns."""

        def call(number: int) -> str:
            result = function(number)
            self._insert(result.encode())
            return result

        return call

    def run(self, name: str, body: Callable[[], None]) -> None:
        """There is nothing to open and nothing to end."""
        body()

    def facts(self) -> dict[str, str]:
        """The settings of the floor."""
        durability = (
            read_postgres_settings(self._url) if on_postgres(self._url) else "journal_mode=wal, synchronous=full"
        )
        return {"version": "", "durability": durability}


def _sqlite_insert(path: str) -> Callable[[bytes], object]:
    connection = apsw.Connection(path)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", 2)
    connection.execute("CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT")
    return lambda data: connection.execute("INSERT INTO rows (data) VALUES (?)", (data,))


def _postgres_insert(url: str) -> Callable[[bytes], object]:
    import psycopg

    connection = psycopg.connect(url, autocommit=True)
    connection.execute(
        "CREATE TABLE IF NOT EXISTS rows (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, data bytea NOT NULL)"
    )
    return lambda data: connection.execute("INSERT INTO rows (data) VALUES (%s)", (data,), prepare=True)


def contender(url: str, outside: Path | None = None) -> Contender:
    """The module's door."""
    return Floor(url)
