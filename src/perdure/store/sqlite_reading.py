"""Stores that cannot be written here: on read-only media, or without the permission to write.

SQLite needs to write beside a database in WAL mode even to read it. Where it cannot, there are three ways:

- Another process may be at work, `-wal` and `-shm` are there: SQLite can read the file with them.
- Nobody is, and there is no log: the file holds everything, and is read as one that does not change.
- The log holds commits that the file does not have: both are copied to a private folder, and read there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import apsw

from ..errors import StoreReadOnly, StoreUnavailable
from ..limits import READ_ONLY_COPY_BYTES_MAX

LOG_HEADER_BYTES = 32
"""A log of that size or less holds no commit."""

SIDE_FILES = ("-wal", "-shm", ".lock")
COPIES = ("", "-wal", "-journal")
COPY_TRIES = 5


class Reading:
    """How a store is opened that cannot be written."""

    def __init__(self, path: str, name: str, flags: int, folder: str = "") -> None:
        self.path = path
        self.name = name
        """What SQLite is told to open."""
        self.flags = flags
        self.note = f"{path} is read-only here" + (
            ": its log holds newer commits, so that a copy of both is read" if folder else ""
        )
        # A forked child must not remove what its parent reads.
        self._remove = weakref.finalize(self, _remove, folder, os.getpid())

    def close(self) -> None:
        """Remove the copy, if there is one."""
        self._remove()

    def refused(self, why: str = "") -> StoreReadOnly:
        """The error of whoever would write."""
        return StoreReadOnly(f"{self.path} is read-only here{why}; nothing was written")


def is_writable(path: str) -> bool:
    """Whether SQLite can write a file here, with the files beside it; one that is not there counts as writable."""
    if not os.path.exists(path):
        return True
    if not os.access(path, os.W_OK):
        return False
    sides = [path + suffix for suffix in SIDE_FILES]
    return os.access(os.path.dirname(path), os.W_OK) or all(os.access(side, os.W_OK) for side in sides)


def reading_of(path: str) -> Reading | None:
    """How to read a store that cannot be written here; None for one that can."""
    if is_writable(path) or not os.path.isfile(path):
        return None
    if not os.access(path, os.R_OK):
        raise StoreUnavailable(f"{path} cannot be read by this user", hint="ask its owner")
    if all(os.path.exists(path + suffix) for suffix in ("-wal", "-shm")):
        return Reading(path, path, apsw.SQLITE_OPEN_READONLY)
    if _size(f"{path}-wal") > LOG_HEADER_BYTES or _size(f"{path}-journal"):
        return _copied(path)
    uri = f"file:{quote(path)}?immutable=1"
    return Reading(path, uri, apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)


@contextmanager
def readable(path: str) -> Iterator[tuple[str, int]]:
    """What SQLite is told to open, and how, for a moment."""
    reading = reading_of(path)
    if reading is None:
        yield path, apsw.SQLITE_OPEN_READWRITE
        return
    try:
        yield reading.name, reading.flags
    finally:
        reading.close()


def _copied(path: str) -> Reading:
    size = sum(_size(path + suffix) for suffix in COPIES)
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if size > min(READ_ONLY_COPY_BYTES_MAX, free // 2):
        raise StoreReadOnly(
            f"{path} is read-only here, and its log holds commits that the file does not have: "
            f"both would have to be copied, and {size / 1e9:,.1f} GB are too much for {tempfile.gettempdir()}",
            hint=f"copy {path} and {path}-wal to a folder that can be written, and give --store that copy",
        )
    folder = tempfile.mkdtemp(prefix="perdure-")
    try:
        copy = _copy_settled(path, os.path.join(folder, "copy.db"))
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise StoreUnavailable(f"{path} cannot be copied: {error.strerror}", hint="ask its owner") from error
        raise
    return Reading(path, copy, apsw.SQLITE_OPEN_READWRITE, folder)


def _copy_settled(path: str, copy: str) -> str:
    """Copy a database with its log; anew when somebody who may write has done so meanwhile."""
    for _ in range(COPY_TRIES):
        before = _stamps(path)
        for suffix in COPIES:
            if os.path.exists(path + suffix):
                shutil.copyfile(path + suffix, copy + suffix)
                os.chmod(copy + suffix, 0o600)
        if _stamps(path) == before:
            return copy
    raise StoreReadOnly(f"{path} is read-only here, and somebody writes to it all the time", hint="try again later")


def _stamps(path: str) -> list[tuple[int, int] | None]:
    found: list[tuple[int, int] | None] = []
    for suffix in COPIES:
        try:
            status = os.stat(path + suffix)
        except FileNotFoundError:
            found.append(None)
        else:
            found.append((status.st_mtime_ns, status.st_size))
    return found


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0


def _remove(folder: str, owner: int) -> None:
    if folder and owner == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)
