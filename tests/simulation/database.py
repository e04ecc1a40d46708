"""A small PostgreSQL in memory: rows, row locks and transactions, as READ COMMITTED has them.

Each statement sees what was committed when it began. To change a row it waits for whoever has it locked, and
looks at the row again after the wait. A key that another transaction has inserted and not committed makes the
second one wait, too. A statement that has to wait yields the transaction that it waits for.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from tests.simulation.world import Signal

Value = tuple[Any, ...]
Waiting = Generator["Transaction", None, Any]


class Duplicate(Exception):
    """A key is there already."""


class Row:
    """The committed version, and at most one that is not committed yet."""

    __slots__ = ("keepers", "key", "pending", "sharers", "value", "writer")

    def __init__(self, key: Any) -> None:
        self.key = key
        self.value: Value | None = None
        self.pending: Value | None = None
        self.writer: Transaction | None = None
        self.sharers: list[Transaction] = []
        self.keepers: list[Transaction] = []


class Database:
    """The tables: what a server keeps."""

    def __init__(self) -> None:
        names = ("streams", "stream_count", "journal", "holders", "leases", "runs", "run_names", "savings")
        self.tables: dict[str, dict[Any, Row]] = {name: {} for name in names}
        count = self.tables["stream_count"][0] = Row(0)
        count.value = (0,)

    def read_committed(self, table: str, key: Any) -> Value | None:
        """What a transaction that begins now would see."""
        row = self.tables[table].get(key)
        return row.value if row is not None else None


class Transaction:
    """One transaction: what it has locked and written."""

    __slots__ = ("_rows", "_shared", "database", "ended")

    def __init__(self, database: Database) -> None:
        self.database = database
        self.ended = Signal()
        self._rows: list[tuple[dict[Any, Row], Row]] = []
        self._shared: list[list[Transaction]] = []

    # -- seeing -------------------------------------------------------------------------------------------------

    def read_visible(self, row: Row | None) -> Value | None:
        """The version of a row that a statement of this transaction sees."""
        if row is None:
            return None
        return row.pending if row.writer is self else row.value

    def get(self, table: str, key: Any) -> Value | None:
        """The same by key."""
        return self.read_visible(self.database.tables[table].get(key))

    def rows(self, table: str) -> Iterator[tuple[Any, Value]]:
        """Every row that this transaction sees."""
        for key, row in list(self.database.tables[table].items()):
            value = self.read_visible(row)
            if value is not None:
                yield key, value

    # -- locking ------------------------------------------------------------------------------------------------

    def lock(self, row: Row, *, delete: bool = False) -> Waiting:
        """FOR NO KEY UPDATE, or FOR UPDATE to delete: alone."""
        while True:
            if row.writer is not None and row.writer is not self:
                yield row.writer
                continue
            others = row.sharers + row.keepers if delete else row.sharers
            other = next((sharer for sharer in others if sharer is not self), None)
            if other is None:
                return
            yield other

    def share(self, row: Row) -> Waiting:
        """FOR SHARE: beside others who only share."""
        while row.writer is not None and row.writer is not self:
            yield row.writer
        self._join(row.sharers)

    def keep(self, row: Row) -> Waiting:
        """FOR KEY SHARE: beside everybody who does not delete it."""
        while row.writer is not None and row.writer is not self and row.pending is None:
            yield row.writer
        self._join(row.keepers)

    def _join(self, holders: list[Transaction]) -> None:
        if self not in holders:
            holders.append(self)
            self._shared.append(holders)

    # -- writing ------------------------------------------------------------------------------------------------

    def put(self, table: str, row: Row, value: Value | None) -> None:
        """A new version of a row that is locked; None deletes it."""
        if row.writer is None:
            row.writer = self
            self._rows.append((self.database.tables[table], row))
        row.pending = value

    def insert(self, table: str, key: Any, value: Value) -> Waiting:
        """A new row; waits for another transaction that has inserted or deleted the same key."""
        rows = self.database.tables[table]
        while True:
            row = rows.get(key)
            if row is None:
                row = rows[key] = Row(key)
            if row.writer is not None and row.writer is not self:
                yield row.writer
                continue
            if self.read_visible(row) is not None:
                raise Duplicate(table, key)
            self.put(table, row, value)
            return

    # -- the end ------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Everything at one moment."""
        self._end(kept=True)

    def abort(self) -> None:
        """Nothing."""
        self._end(kept=False)

    def iterate_written(self, table: str) -> Iterator[tuple[Any, Value | None]]:
        """What a commit would change in a table."""
        rows = self.database.tables[table]
        for owner, row in self._rows:
            if owner is rows:
                yield row.key, row.pending

    def _end(self, *, kept: bool) -> None:
        for rows, row in self._rows:
            if kept:
                row.value = row.pending
            row.pending = row.writer = None
            if row.value is None and rows.get(row.key) is row:
                del rows[row.key]
        for holders in self._shared:
            holders.remove(self)
