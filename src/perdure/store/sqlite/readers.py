"""Reads from a SQLite file with a pool of connections separate from the writer's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import apsw

from perdure.store import sql
from perdure.store.base import Row, Rows, Statement, Store
from perdure.store.sqlite.file import DRIVER_ERRORS, connect, connect_to_read, retry_busy, translate, translate_error
from perdure.store.sqlite.fork_safety import call_outside_fork
from perdure.store.sqlite.read_only import ReadOnlyMode
from perdure.store.sqlite.work_limits import StatementBounds

T = TypeVar("T")

TEXT = {name: sql.number_parameters(named, "?") for name, named in sql.load("sqlite").items()}
"""Every statement, with numbered parameters."""

READER_CACHE_PAGES = 64
"""A reader reads most pages once: a larger cache would only cost memory."""

BUSY_CACHE_PAGES, BUSY_READS = 512, 200
"""After BUSY_READS reads, pages are likely to be read again, and each cache miss is a system call."""

WARM_CACHE_PAGES = 16_000
"""For readers that visit the whole file again and again: at most 64 MB per thread."""

REOPEN_SECONDS_MAX = 5.0
"""How long to wait for readers before the files are reopened."""


class SqliteReaders(Store):
    """The reading half of a SQLite store."""

    path: str
    durability: str
    _writer: apsw.Connection
    _one_connection: bool
    _vfs: str | None
    _reading: ReadOnlyMode | None
    _bounds: StatementBounds | None

    def _init_readers(self) -> None:
        self._opened: list[apsw.Connection] = []
        self._readers: list[apsw.Connection] = []
        self._reader_pages = READER_CACHE_PAGES
        self._reads = 0
        self._watcher: apsw.Connection | None = None
        self._watch_lock = threading.Lock()
        self._writer_lock = threading.Lock()
        self._connecting = threading.Lock()

    def read(self, name: str, args: tuple[Any, ...] = ()) -> Rows:
        return self.scan(name, args, list)

    def scan(self, name: str, args: tuple[Any, ...], consume: Callable[[Iterable[Row]], T]) -> T:
        self._check_open()
        try:  # not `with translate(...)`, which takes a tenth of a small read
            return call_outside_fork(self._scan, TEXT[name], args, consume)
        except DRIVER_ERRORS as error:
            raise translate_error(error, self.path) from error

    def _scan(self, text: str, args: tuple[Any, ...], consume: Callable[[Iterable[Row]], T]) -> T:
        if self._one_connection:
            with self._writer_lock:
                return _pass_by(self._writer.execute(text, args), consume)
        try:
            connection = self._readers.pop()
        except IndexError:  # all are in use
            connection = self._reader()
        self._reads += 1  # threads may miss some
        if self._reads % BUSY_READS == 0 and self._reader_pages < BUSY_CACHE_PAGES:
            connection.pragma("cache_size", BUSY_CACHE_PAGES)
        try:
            # SQLite can report busy only before the first row.
            if (bounds := self._bounds) is None:
                return _pass_by(retry_busy(connection.execute, text, args), consume)
            bounds.begin()
            cursor = retry_busy(connection.execute, text, args)
            return _pass_by(cursor, lambda rows: consume(bounds.count_rows(rows)))
        finally:
            self._readers.append(connection)

    def read_all(self, queries: Sequence[Statement]) -> list[Rows]:
        self._check_open()
        with translate(self.path):
            return call_outside_fork(self._read_snapshot, queries)

    def _read_snapshot(self, queries: Sequence[Statement]) -> list[Rows]:
        if self._one_connection:
            with self._writer_lock:
                return [self._fetch(self._writer, query) for query in queries]
        try:
            connection = self._readers.pop()
        except IndexError:
            connection = self._reader()
        try:
            connection.execute("BEGIN")
            return [self._fetch(connection, query) for query in queries]
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            self._readers.append(connection)

    def _fetch(self, connection: apsw.Connection, query: Statement) -> Rows:
        if (bounds := self._bounds) is None:
            return retry_busy(connection.execute, TEXT[query.name], query.args).fetchall()
        bounds.begin()
        return list(bounds.count_rows(retry_busy(connection.execute, TEXT[query.name], query.args)))

    def keep_warm(self) -> None:
        if self._reader_pages == WARM_CACHE_PAGES:
            return
        self._reader_pages = WARM_CACHE_PAGES
        with translate(self.path):
            call_outside_fork(self._warm_readers)

    def _warm_readers(self) -> None:
        idle, self._readers = self._readers, []
        for connection in idle:
            connection.pragma("cache_size", WARM_CACHE_PAGES)
            self._readers.append(connection)

    def watch(self, stream: int) -> Callable[[], bool]:
        seen = -1

        def has_changed() -> bool:
            nonlocal seen
            before, seen = seen, self.changes()
            return before != seen

        return has_changed

    def changes(self) -> int:
        """Return a number that changes when another process commits; cheap enough to poll."""
        self._check_open()
        with translate(self.path):
            return call_outside_fork(self._changes)

    def _changes(self) -> int:
        if self._one_connection:
            with self._writer_lock:  # a connection in use by another thread cannot be queried
                return self._writer.total_changes()
        with self._watch_lock:
            self._check_open()  # `close` may have had the lock
            # data_version changes for commits of other connections only, so one connection is reserved for it.
            if self._watcher is None:
                self._watcher = self._connect()
            return int(str(retry_busy(self._watcher.execute, "PRAGMA data_version").fetchall()[0][0]))

    def _connect(self) -> apsw.Connection:
        with self._connecting:
            return self._take_reader()

    def _take_reader(self) -> apsw.Connection:
        connection = retry_busy(self._open_connection)
        self._opened.append(connection)
        if self._bounds is not None:
            self._bounds.watch(connection)
        return connection

    def _open_connection(self) -> apsw.Connection:
        if self._reading is not None:
            return connect_to_read(self._reading)
        return connect(self.path, self.durability, self._vfs)

    def _reader(self) -> apsw.Connection:
        connection = self._connect()
        connection.pragma("cache_size", self._reader_pages)
        return connection

    def _take_readers(self) -> bool:
        """Take every reader out of the pool as it is returned; threads that need one then wait for a new one."""
        out = len(self._opened) - 1 - (self._watcher is not None)
        deadline = time.monotonic() + REOPEN_SECONDS_MAX
        while out and time.monotonic() < deadline:
            try:
                self._readers.pop()
                out -= 1
            except IndexError:
                time.sleep(0.001)
        return not out


def _pass_by(cursor: apsw.Cursor, consume: Callable[[Iterable[Row]], T]) -> T:
    try:
        return consume(cursor)
    finally:
        cursor.close()  # an unfinished cursor would keep its old snapshot open
