"""Whether a SQLite store is still the files that this process opened.

SQLite never looks again at the names of its files. When somebody removes the write-ahead log, or puts another database
in its place, a process would go on committing into files that nobody can find any more. `Presence` looks after every
commit, before it is acknowledged.

`Guard` prevents the most likely cause. POSIX locks belong to a process. When other code of the same process opens and
closes the database (the `sqlite3` of the standard library, `open(path).close()`), the kernel drops every lock that
SQLite holds. The next connection that closes believes that it is the last one, and deletes the log. Locks of an open
file description stay until their own descriptor is closed, and conflict with the POSIX locks of every process, this one
included. With one on the bytes that SQLite's own shared lock covers, no connection can be the last one.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import time
from contextlib import suppress
from enum import IntEnum

from ..locks import rlock

SHARED_FIRST, SHARED_BYTES = 0x40000002, 510
"""What a connection of a database in WAL mode locks for as long as it is open (`SHARED_FIRST` in SQLite's os.h)."""

DEADMAN_BYTE = 128
"""Locked in the `-shm` file by every process that uses it (`UNIX_SHM_DMS`): nobody takes its content for a leftover."""

WAL_FORMAT, WAL_FORMAT_AT = b"\x02\x02", 18
USER_VERSION_AT = 60
"""Where the header of a database says that it has a write-ahead log, and which schema it has."""

BACKFILLED_AT = 96
"""Where the `-shm` file says how many frames of the log are in the database (`WalCkptInfo.nBackfill`)."""

FileNumber = tuple[int, int]
"""Device and inode."""


SECOND_NS = 1_000_000_000
SETTLED_NS, SETTLED_COARSE_NS = SECOND_NS // 10, 3 * SECOND_NS
"""File systems count time in steps, and a second change within a step does not show. A step is a hundredth of a second
at most; two seconds where times are whole seconds."""


class Sight(IntEnum):
    """What a look at the files has shown."""

    SAME = 0
    WRITTEN = 1
    """The same files, and somebody has written to the database: a checkpoint, or a copy over it."""
    GONE = 2
    """The database or its log is missing, or another file has its name."""


class Presence:
    """The database and its log, as this process opened them."""

    __slots__ = (
        "_device",
        "_file",
        "_folder",
        "_index",
        "_log",
        "_names",
        "_settled",
        "_written",
        "index",
        "log",
        "path",
    )

    def __init__(self, path: str) -> None:
        self.path, self.log, self.index = path, path + "-wal", path + "-shm"
        file, log = os.stat(self.path), os.stat(self.log)
        self._device, self._file, self._log = file.st_dev, file.st_ino, log.st_ino
        self._index = _number(self.index)
        self._written = file.st_mtime_ns
        self._folder = os.path.dirname(path) or "."
        self._names = (0, 0, 0)
        """The folder and when a name in it last changed, as of the last look at the log."""
        self._settled = False
        """Whether that was so long before that any later change shows."""

    def look(self) -> Sight:
        """Two calls of `stat`, after every commit.

        Neither is of the log. On Linux from 6.13 on, a file whose times were asked for gets a new time with its next
        write, and every sync of the log would have to write that as well. A log that is renamed or removed changes its
        folder, whose times no commit changes.
        """
        try:
            file, folder = os.stat(self.path), os.stat(self._folder)
            names = (folder.st_mtime_ns, folder.st_ino, folder.st_dev)
            if names != self._names or not self._settled:
                self._names, self._settled = names, _is_settled(folder.st_mtime_ns)
                if os.stat(self.log).st_ino != self._log:
                    return Sight.GONE
        except OSError:
            return Sight.GONE
        if file.st_ino != self._file or file.st_dev != self._device:
            return Sight.GONE
        if file.st_mtime_ns != self._written:
            self._written = file.st_mtime_ns
            return Sight.WRITTEN
        return Sight.SAME

    def lost(self) -> str:
        """What is not as it was, in words."""
        if (file := _number(self.path)) is None:
            return "the database file was removed"
        if file != (self._device, self._file):
            return "another file has taken the place of the database"
        return "its log was removed" if _number(self.log) is None else "another file has taken the place of its log"

    def can_be_saved(self, *, guarded: bool) -> bool:
        """Whether this process may still write its log into the database: it is ours, and nobody has begun another log.

        A connection of this very process may have made an empty one. Another process would have made an index as well.
        Without a guard it could have ended since, and have deleted both.
        """
        if _number(self.path) != (self._device, self._file) or _number(self.index) not in (None, self._index):
            return False
        if not guarded and os.stat(self.path).st_mtime_ns != self._written:
            return False
        try:
            return os.stat(self.log).st_size == 0
        except FileNotFoundError:
            return True


def _is_settled(changed_ns: int) -> bool:
    """Whether a change of a folder is so old that the next one gets another time."""
    return time.time_ns() - changed_ns > (SETTLED_NS if changed_ns % SECOND_NS else SETTLED_COARSE_NS)


def _number(path: str) -> FileNumber | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Guard:
    """Locks on the files of a store which no other code of this process can drop. One per process and database."""

    def __init__(self, number: FileNumber) -> None:
        self.number = number
        self.stores = 0
        self.files: list[tuple[int, int, int]] = []
        """Descriptors, and the bytes that each of them locks."""

    @property
    def file(self) -> int | None:
        """The descriptor of the database, to read from; never close it."""
        return self.files[0][0] if self.files else None

    @property
    def index(self) -> int | None:
        """The descriptor of the `-shm` file."""
        return self.files[1][0] if len(self.files) > 1 else None

    def watch(self, path: str, first: int, count: int) -> None:
        """Lock some bytes of a file; where the system cannot, `Presence` alone has to notice."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.files.append((fd, first, count))
        with suppress(OSError):
            _lock(fd, fcntl.F_RDLCK, first, count)

    def loosen(self) -> None:
        """The last store of this process is about to close: SQLite may be the last one now, and clear up."""
        with _registry:
            if self.stores <= 1:
                for fd, first, count in self.files:
                    with suppress(OSError):
                        _lock(fd, fcntl.F_UNLCK, first, count)

    def release(self) -> None:
        """Called after the store's connections are closed: closing a descriptor drops their locks."""
        with _registry:
            self.stores -= 1
            if self.stores <= 0:
                for fd, _, _ in self.files:
                    os.close(fd)
                self.files.clear()
                if _guards.get(self.number) is self:
                    del _guards[self.number]


_registry = rlock()
_guards: dict[FileNumber, Guard] = {}
"""By database. A second descriptor of one must never be closed while a connection is open: it would drop its locks."""


def guard(path: str) -> Guard | None:
    """Guard a store that was just opened; give it to `release`. None where the system has no such locks."""
    if not hasattr(fcntl, "F_OFD_SETLK"):
        return None
    with _registry:
        if (number := _number(path)) is None:
            return None
        held = _guards.get(number)
        if held is None:
            held = _guards[number] = Guard(number)
            held.watch(path, SHARED_FIRST, SHARED_BYTES)
            held.watch(path + "-shm", DEADMAN_BYTE, 1)
        held.stores += 1
        return held


def has_log(file: int) -> bool:
    """Whether the header of a database says that it has a log. A fresh copy put in its place says otherwise."""
    return os.pread(file, 2, WAL_FORMAT_AT) == WAL_FORMAT


def backfilled(index: int) -> int:
    """How many frames of the log the last checkpoint has written to the database; 0 since the log began anew."""
    return int.from_bytes(os.pread(index, 4, BACKFILLED_AT), sys.byteorder)


def is_settled(file: int) -> bool:
    """Whether a database itself has a schema, and not only its log."""
    return any(os.pread(file, 4, USER_VERSION_AT))


def _lock(fd: int, kind: int, first: int, count: int) -> None:
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi", kind, os.SEEK_SET, first, count, 0))


def _after_fork_in_child() -> None:
    for held in _guards.values():
        for fd, _, _ in held.files:
            os.close(fd)  # a copy: the parent's lock stays
        held.files.clear()
    _guards.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
