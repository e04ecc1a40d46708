"""Bounds on the work that a file can cause, for readers of files that others have made.

The pages of a SQLite file form trees by reference. A file of some kilobytes whose pages refer to each other again and
again has a tree of more rows than anybody can read. So one statement may take work in proportion to the size of the
file: far more than any honest file needs, on any machine, and little enough to end.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator

import apsw

from ..errors import StoreTampered
from ..limits import (
    READ_ROW_BYTES_MIN,
    READ_ROWS_MIN,
    READ_SECOND_BYTES,
    READ_SECONDS_MIN,
    READ_STEPS_MIN,
    READ_STEPS_PER_BYTE,
)
from .base import Row

LOOK_STEPS = 1000
"""Steps of SQLite's machine between two looks at the bounds."""


class Bounds(threading.local):
    """What one statement of this thread may still do with a file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.begin()

    def begin(self) -> None:
        """A new statement: it may do as much as any other."""
        size = _bytes_of(self._path)
        self._looks = (READ_STEPS_MIN + READ_STEPS_PER_BYTE * size) // LOOK_STEPS
        self._rows = READ_ROWS_MIN + size // READ_ROW_BYTES_MIN
        self._until = time.thread_time() + READ_SECONDS_MIN + size / READ_SECOND_BYTES

    def watch(self, connection: apsw.Connection) -> None:
        """Stop statements of a connection that go too far, with an `apsw.InterruptError`."""
        connection.set_progress_handler(self._is_over, LOOK_STEPS)

    def counted(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Rows of a statement, as long as there are not too many: they may all be kept in memory."""
        for row in rows:
            self._rows -= 1
            if self._rows < 0:
                raise too_much(self._path)
            yield row

    def refuse_if_over(self) -> None:
        """Raise when the statement was stopped: SQLite goes on without statistics that it could not read."""
        if self._looks < 0:
            raise too_much(self._path)

    def _is_over(self) -> bool:
        self._looks -= 1
        if time.thread_time() > self._until:
            self._looks = -1
        return self._looks < 0


def too_much(path: str) -> StoreTampered:
    """The error for a file whose content goes on for ever."""
    return StoreTampered(
        f"{path}: one query found more than a file of this size can hold, and was stopped: its pages refer to each "
        "other in circles. Nothing was changed",
        hint="`perdure verify` says which pages; restore the store from a backup",
    )


def unwatch(connection: apsw.Connection) -> None:
    """Let statements of a connection take as long as they do."""
    connection.set_progress_handler(None)


def _bytes_of(path: str) -> int:
    """What a file and its log take on disk: holes in a file hold nothing."""
    total = 0
    for name in (path, f"{path}-wal"):
        try:
            found = os.stat(name)
        except OSError:
            continue
        total += min(found.st_size, found.st_blocks * 512)
    return total
