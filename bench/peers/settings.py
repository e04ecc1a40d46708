"""What a peer has set to make data survive a power cut, and how many statements it sends.

Its connections are noticed where the driver makes them; nothing of a peer is patched.
"""

from __future__ import annotations

import sqlite3
from typing import Any

_LEVELS = {0: "off", 1: "normal", 2: "full", 3: "extra"}
_connections: list[sqlite3.Connection] = []
_statements = 0


def watch(*, count: bool) -> None:
    """Remember every SQLite connection of this process; with `count`, also how much they execute."""
    connect = sqlite3.connect

    def watched(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        _connections.append(connection)
        if count:
            connection.set_trace_callback(_trace)
        return connection

    # Under both of its names: SQLAlchemy asks for the second one.
    vars(sqlite3)["connect"] = vars(sqlite3.dbapi2)["connect"] = watched


def watch_apsw() -> None:
    """The same for the driver of Perdure and of the floor."""
    import apsw

    def trace(_cursor: apsw.Cursor, sql: str, _bindings: object) -> bool:
        _trace(sql)
        return True

    def hook(connection: apsw.Connection) -> None:
        connection.exec_trace = trace

    apsw.connection_hooks.append(hook)


def _trace(_statement: str) -> None:
    global _statements
    _statements += 1


def statements() -> int:
    """How many statements the watched connections have executed."""
    return _statements


def read_sqlite_settings(path: str) -> str:
    """The settings of the peer's own connection to that file: `synchronous` belongs to a connection."""
    for connection in reversed(_connections):
        try:
            files = [row[2] for row in connection.execute("PRAGMA database_list")]
            if path in files:
                [journal] = connection.execute("PRAGMA journal_mode").fetchone()
                [level] = connection.execute("PRAGMA synchronous").fetchone()
                return f"journal_mode={journal}, synchronous={_LEVELS[level]}"
        except sqlite3.ProgrammingError:
            # Closed, or made for one thread only.
            continue
    return "unknown"


def read_postgres_settings(url: str) -> str:
    """The settings that a session of this peer gets."""
    import psycopg

    names = ("fsync", "synchronous_commit")
    with psycopg.connect(url) as connection:
        found = [connection.execute("SELECT current_setting(%s)", (name,)).fetchone() for name in names]
    return ", ".join(f"{name}={row[0]}" for name, row in zip(names, found, strict=True) if row is not None)
