"""Reading from a SQLite file: connections beside the writer's, kept for the next reader."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import apsw

from . import sql
from .base import Row, Rows, Store
from .forking import within
from .sqlite_bounds import Bounds
from .sqlite_file import DRIVER_ERRORS, connect, connect_to_read, patiently, translate, translated
from .sqlite_reading import Reading

T = TypeVar("T")

TEXT = {name: sql.numbered(named, "?") for name, named in sql.load("sqlite").items()}
"""Every statement, with its parameters numbered as SQLite wants them."""

READER_CACHE_PAGES = 64
"""A reader reads most pages once, in order: a larger cache would only cost memory."""

BUSY_CACHE_PAGES, BUSY_READS = 512, 200
"""After this many reads, pages are likely to be read again, and each cache miss is a system call."""

WARM_CACHE_PAGES = 16_000
"""For readers that visit the whole file again and again: at most 64 MB per thread."""

REOPEN_SECONDS_MAX = 5.0
"""How long to wait for readers before the files are opened anew."""


class SqliteReaders(Store):
    """The half of a SQLite store that reads."""

    path: str
    durability: str
    _writer: apsw.Connection
    _one_connection: bool
    _vfs: str | None
    _reading: Reading | None
    _bounds: Bounds | None

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
        self._must_be_open()
        try:  # by hand: `with translate(...)` is a tenth of the time of a small read
            return within(self._scan, TEXT[name], args, consume)
        except DRIVER_ERRORS as error:
            raise translated(error, self.path) from error

    def _scan(self, text: str, args: tuple[Any, ...], consume: Callable[[Iterable[Row]], T]) -> T:
        if self._one_connection:
            with self._writer_lock:
                return _pass_by(self._writer.execute(text, args), consume)
        try:
            connection = self._readers.pop()
        except IndexError:  # all of them are reading, or were taken by a thread that asked at the same time
            connection = self._reader()
        self._reads += 1  # threads may miss some
        if self._reads % BUSY_READS == 0 and self._reader_pages < BUSY_CACHE_PAGES:
            connection.pragma("cache_size", BUSY_CACHE_PAGES)
        try:
            # SQLite can only say busy before the first row.
            if (bounds := self._bounds) is None:
                return _pass_by(patiently(connection.execute, text, args), consume)
            bounds.begin()
            cursor = patiently(connection.execute, text, args)
            return _pass_by(cursor, lambda rows: consume(bounds.counted(rows)))
        finally:
            self._readers.append(connection)

    def keep_warm(self) -> None:
        if self._reader_pages == WARM_CACHE_PAGES:
            return
        self._reader_pages = WARM_CACHE_PAGES
        with translate(self.path):
            within(self._warm_readers)

    def _warm_readers(self) -> None:
        idle, self._readers = self._readers, []
        for connection in idle:
            connection.pragma("cache_size", WARM_CACHE_PAGES)
            self._readers.append(connection)

    def watch(self, stream: int) -> Callable[[], bool]:
        seen = -1

        def changed() -> bool:
            nonlocal seen
            before, seen = seen, self.changes()
            return before != seen

        return changed

    def changes(self) -> int:
        """A number that moves when another process has committed; cheap enough to poll."""
        self._must_be_open()
        with translate(self.path):
            return within(self._changes)

    def _changes(self) -> int:
        if self._one_connection:
            with self._writer_lock:  # a connection that is at work in another thread cannot even be asked
                return self._writer.total_changes()
        with self._watch_lock:
            # data_version belongs to a connection and moves for the commits of all others: one must do the watching.
            if self._watcher is None:
                self._watcher = self._connect()
            return int(str(self._watcher.execute("PRAGMA data_version").fetchall()[0][0]))

    def _connect(self) -> apsw.Connection:
        with self._connecting:
            return self._kept()

    def _kept(self) -> apsw.Connection:
        connection = patiently(self._connected)
        self._opened.append(connection)
        if self._bounds is not None:
            self._bounds.watch(connection)
        return connection

    def _connected(self) -> apsw.Connection:
        if self._reading is not None:
            return connect_to_read(self._reading)
        return connect(self.path, self.durability, self._vfs)

    def _reader(self) -> apsw.Connection:
        connection = self._connect()
        connection.pragma("cache_size", self._reader_pages)
        return connection

    def _take_readers(self) -> bool:
        """Take every reader out of the pool, as they come back: a thread that wants one waits for a new one then."""
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
        cursor.close()  # one that was left half way would hold its old view of the file
