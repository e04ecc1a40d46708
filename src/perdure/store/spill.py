"""A temporary key-value table on disk, for more pairs than fit into memory."""

from __future__ import annotations

from perdure.store.sqlite.fork_safety import disconnect, open_connection, stay_inside

_TABLE = "CREATE TABLE notes (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
_PUT = "INSERT INTO notes (key, value) VALUES (?, ?) ON CONFLICT (key) DO NOTHING"
_GET = "SELECT value FROM notes WHERE key = ?"


class ScratchTable:
    """A table in a temporary SQLite file, deleted on close."""

    def __init__(self) -> None:
        with stay_inside():
            self._connection = open_connection("")
            # No transaction stays open: a child forked inside one could not open files.
            self._connection.execute("PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF").fetchall()
            self._connection.execute(_TABLE).fetchall()

    def put(self, key: bytes, value: bytes) -> None:
        """Store a pair; the first value of a key stays."""
        with stay_inside():
            self._connection.execute(_PUT, (key, value)).fetchall()

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        with stay_inside():
            rows = self._connection.execute(_GET, (key,)).fetchall()
        value = rows[0][0] if rows else None
        return value if isinstance(value, bytes) else None

    def close(self) -> None:
        """Delete the table."""
        with stay_inside():
            disconnect(self._connection)
