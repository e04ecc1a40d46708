"""Opens stores that are read-only here: on read-only media, or without write permission.

SQLite must write next to a database in WAL mode even to read it. Where it cannot, there are three cases:

- `-wal` and `-shm` exist, as while another process works: SQLite can read the file with them.
- There is no log: the file has everything, and is opened as immutable.
- The log has commits that the file lacks: both are copied to a private folder and read there.
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

from perdure.errors import StoreReadOnly, StoreUnavailable
from perdure.values.limits import READ_ONLY_COPY_BYTES_MAX

LOG_HEADER_BYTES = 32
"""A log of at most this size has no commit."""

SIDE_FILES = ("-wal", "-shm", ".lock")
COPIES = ("", "-wal", "-journal")
COPY_TRIES = 5


class ReadOnlyMode:
    """How a read-only store is opened."""

    def __init__(self, path: str, name: str, flags: int, folder: str = "") -> None:
        self.path = path
        self.name = name
        """The file name or URI for SQLite."""
        self.flags = flags
        self.note = f"{path} is read-only here" + (
            ": its log has newer commits, so a copy of both files is read" if folder else ""
        )
        # A forked child must not remove the copy that its parent reads.
        self._remove = weakref.finalize(self, _remove, folder, os.getpid())

    def close(self) -> None:
        """Remove the copy, if there is one."""
        self._remove()

    def refusal_error(self, why: str = "") -> StoreReadOnly:
        """Return the error for an attempt to write."""
        return StoreReadOnly(f"{self.path} is read-only here{why}; nothing was written")


def is_writable(path: str) -> bool:
    """Whether SQLite can write a file and its side files; a missing file counts as writable."""
    if not os.path.exists(path):
        return True
    if not os.access(path, os.W_OK):
        return False
    sides = [path + suffix for suffix in SIDE_FILES]
    return os.access(os.path.dirname(path), os.W_OK) or all(os.access(side, os.W_OK) for side in sides)


def find_read_mode(path: str) -> ReadOnlyMode | None:
    """Return how to read a read-only store; None for a writable one."""
    if is_writable(path) or not os.path.isfile(path):
        return None
    if not os.access(path, os.R_OK):
        raise StoreUnavailable(f"{path} cannot be read by this user", hint="ask its owner")
    if all(os.path.exists(path + suffix) for suffix in ("-wal", "-shm")):
        return ReadOnlyMode(path, path, apsw.SQLITE_OPEN_READONLY)
    if _size(f"{path}-wal") > LOG_HEADER_BYTES or _size(f"{path}-journal"):
        return _copy_store(path)
    uri = f"file:{quote(path)}?immutable=1"
    return ReadOnlyMode(path, uri, apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)


@contextmanager
def readable(path: str) -> Iterator[tuple[str, int]]:
    """Provide the file name and flags for a short read."""
    reading = find_read_mode(path)
    if reading is None:
        yield path, apsw.SQLITE_OPEN_READWRITE
        return
    try:
        yield reading.name, reading.flags
    finally:
        reading.close()


def _copy_store(path: str) -> ReadOnlyMode:
    size = sum(_size(path + suffix) for suffix in COPIES)
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if size > min(READ_ONLY_COPY_BYTES_MAX, free // 2):
        raise StoreReadOnly(
            f"{path} is read-only here, and its log has newer commits than the file: "
            f"reading needs a copy of both, and {size / 1e9:,.1f} GB are too much for {tempfile.gettempdir()}",
            hint=f"copy {path} and {path}-wal to a writable folder, and pass the copy to --store",
        )
    folder = tempfile.mkdtemp(prefix="perdure-")
    try:
        copy = _copy_settled(path, os.path.join(folder, "copy.db"))
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise StoreUnavailable(f"{path} cannot be copied: {error.strerror}", hint="ask its owner") from error
        raise
    return ReadOnlyMode(path, copy, apsw.SQLITE_OPEN_READWRITE, folder)


def _copy_settled(path: str, copy: str) -> str:
    """Copy a database with its log; retry if another process writes meanwhile."""
    for _ in range(COPY_TRIES):
        before = _stamps(path)
        for suffix in COPIES:
            if os.path.exists(path + suffix):
                shutil.copyfile(path + suffix, copy + suffix)
                os.chmod(copy + suffix, 0o600)
        if _stamps(path) == before:
            return copy
    raise StoreReadOnly(f"{path} is read-only here, and another process keeps writing to it", hint="try again later")


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
