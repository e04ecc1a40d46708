"""Limits the work that a foreign file can cause.

The pages of a SQLite file form trees by reference. In a forged file of some kilobytes, pages can refer to each other in
circles and form an endless table. So the work per statement is limited in proportion to the size of the file: far more
than a sound file needs, but finite.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator

import apsw

from perdure.errors import StoreTampered
from perdure.store.base import Row
from perdure.values.limits import (
    READ_ROW_BYTES_MIN,
    READ_ROWS_MIN,
    READ_SECOND_BYTES,
    READ_SECONDS_MIN,
    READ_STEPS_MIN,
    READ_STEPS_PER_BYTE,
)

LOOK_STEPS = 1000
"""Virtual machine steps of SQLite between two checks."""


class StatementBounds(threading.local):
    """The remaining work that one statement of this thread may do."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.begin()

    def begin(self) -> None:
        """Reset the limits for a new statement."""
        size = _bytes_of(self._path)
        self._looks = (READ_STEPS_MIN + READ_STEPS_PER_BYTE * size) // LOOK_STEPS
        self._rows = READ_ROWS_MIN + size // READ_ROW_BYTES_MIN
        self._until = time.thread_time() + READ_SECONDS_MIN + size / READ_SECOND_BYTES

    def watch(self, connection: apsw.Connection) -> None:
        """Stop statements of a connection that exceed the limits with an `apsw.InterruptError`."""
        connection.set_progress_handler(self._is_over, LOOK_STEPS)

    def count_rows(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows of a statement; raise if they are too many, as callers may keep them all in memory."""
        for row in rows:
            self._rows -= 1
            if self._rows < 0:
                raise endless_content_error(self._path)
            yield row

    def refuse_if_over(self) -> None:
        """Raise if a statement was stopped: SQLite itself ignores statistics that it could not read."""
        if self._looks < 0:
            raise endless_content_error(self._path)

    def _is_over(self) -> bool:
        self._looks -= 1
        if time.thread_time() > self._until:
            self._looks = -1
        return self._looks < 0


def endless_content_error(path: str) -> StoreTampered:
    """Return the error for a file with endless content."""
    return StoreTampered(
        f"{path}: one query returned more than a file of this size can hold and was stopped: pages refer to each "
        "other in a cycle. Nothing was changed",
        hint="`perdure verify` lists the pages; restore the store from a backup",
    )


def unwatch(connection: apsw.Connection) -> None:
    """Remove the limits of a connection."""
    connection.set_progress_handler(None)


def _bytes_of(path: str) -> int:
    """Return the disk usage of a file and its log, without holes."""
    total = 0
    for name in (path, f"{path}-wal"):
        try:
            found = os.stat(name)
        except OSError:
            continue
        total += min(found.st_size, found.st_blocks * 512)
    return total
