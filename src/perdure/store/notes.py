"""Pairs of bytes on disk, for who sees more of them than fit into memory. Gone when it is closed."""

from __future__ import annotations

from .forking import connected, disconnect, inside

_TABLE = "CREATE TABLE notes (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
_PUT = "INSERT INTO notes (key, value) VALUES (?, ?) ON CONFLICT (key) DO NOTHING"
_GET = "SELECT value FROM notes WHERE key = ?"


class Notes:
    """A table in a temporary file of SQLite's own."""

    def __init__(self) -> None:
        with inside():
            self._connection = connected("")
            # No transaction stays open: a process that forks in the middle of one may not open files in its child.
            self._connection.execute("PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF").fetchall()
            self._connection.execute(_TABLE).fetchall()

    def put(self, key: bytes, value: bytes) -> None:
        """Note a pair; the first one counts."""
        with inside():
            self._connection.execute(_PUT, (key, value)).fetchall()

    def get(self, key: bytes) -> bytes | None:
        """What was noted."""
        with inside():
            rows = self._connection.execute(_GET, (key,)).fetchall()
        value = rows[0][0] if rows else None
        return value if isinstance(value, bytes) else None

    def close(self) -> None:
        """Let it go."""
        with inside():
            disconnect(self._connection)
