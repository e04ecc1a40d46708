"""Checks that the files of a SQLite store are still those that this process opened.

SQLite does not check the paths of its open files. If the write-ahead log is removed or the database replaced, a process
would commit into files that nobody can open again. `OpenStoreFiles` checks after every commit, before it is
acknowledged.

`FileGuard` prevents the most likely cause. POSIX locks belong to a process. When other code of the same process opens
and closes the database (the `sqlite3` of the standard library, `open(path).close()`), the kernel drops every lock that
SQLite holds. The next connection that closes believes that it is the last one, and deletes the log. Locks of an open
file description stay until their own descriptor is closed, and conflict with the POSIX locks of every process, this one
included. With one on the bytes that SQLite's own shared lock covers, no connection can be the last one.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import struct
import sys
import time
from contextlib import suppress
from enum import IntEnum

import apsw

from perdure.store.sqlite.fork_safety import stay_inside
from perdure.values.locks import call_after_fork, rlock

SHARED_FIRST, SHARED_BYTES = 0x40000002, 510
"""The bytes that an open WAL connection keeps locked (`SHARED_FIRST` in SQLite's os.h)."""

DEADMAN_BYTE = 128
"""Locked in the `-shm` file by every process that uses it (`UNIX_SHM_DMS`), so that SQLite does not reset it."""

WAL_FORMAT, ROLLBACK_FORMAT, WAL_FORMAT_AT = b"\x02\x02", b"\x01\x01", 18
USER_VERSION_AT = 60
"""Offsets in the database header: whether it has a write-ahead log, and its schema version."""

INDEX_BYTES = 4 * 32_768
"""The `-shm` file of a log of 64 MB; a quarter of it is the least that SQLite uses."""

LOG_HEADER_BYTES, FRAME_HEADER_BYTES = 32, 24
_FRAMES = struct.Struct("=HI")
FRAMES_AT = 14
"""In the `-shm` file: the size of a page and how many frames the log has (`szPage` and `mxFrame` of `WalIndexHdr`)."""

_unpack_frames, _FRAMES_BYTES = _FRAMES.unpack, _FRAMES.size
_pread, _lseek, _END = os.pread, os.lseek, os.SEEK_END
"""Looked up once: they are needed at every commit."""

BACKFILLED_AT = 96
"""Offset in the `-shm` file: how many frames of the log are in the database (`WalCkptInfo.nBackfill`)."""

FileIdentity = tuple[int, int]
"""Device and inode."""


SECOND_NS = 1_000_000_000
SETTLED_NS, SETTLED_COARSE_NS = SECOND_NS // 10, 3 * SECOND_NS
"""File times are coarse: a second change within one tick does not show. A tick is at most 10 ms, or two seconds if
times are whole seconds."""


class GuardState(IntEnum):
    """The result of a check of the files."""

    SAME = 0
    WRITTEN = 1
    """The same files, but the database was written: by a checkpoint, or by a copy over it."""
    GONE = 2
    """The database or its log is missing, or another file has its name."""


_SAME = GuardState.SAME
_stat = os.stat


class OpenStoreFiles:
    """The database and its log as this process opened them."""

    __slots__ = (
        "_descriptor",
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

    def __init__(self, path: str, descriptor: int | None) -> None:
        self.path, self.log, self.index = path, path + "-wal", path + "-shm"
        self._descriptor: int | str = path if descriptor is None else descriptor
        """What is asked for the database's time: a descriptor, if there is one, saves the walk along the path."""
        file, log = os.stat(self.path), os.stat(self.log)
        self._device, self._file, self._log = file.st_dev, file.st_ino, log.st_ino
        self._index = _number(self.index)
        self._written = file.st_mtime_ns
        self._folder = os.path.dirname(path) or "."
        self._names = (0, 0, 0)
        """The folder and the time of its last change, as of the last check of both names."""
        self._settled = False
        """Whether that change is old enough for any later one to show."""

    def check_files(self) -> GuardState:
        """Check the files after a commit with two calls of `stat`: of the folder, and of the open database.

        Renaming, removing or replacing a file changes the folder's time, which commits do not. Only then both names
        are looked up. The log's time is never read: from Linux 6.13 on, that makes its next sync write a new time.
        """
        try:
            folder = _stat(self._folder)
            names = (folder.st_mtime_ns, folder.st_ino, folder.st_dev)
            if names != self._names or not self._settled:
                self._names, self._settled = names, _is_settled(folder.st_mtime_ns)
                if (
                    _number(self.path) != (self._device, self._file)
                    or _stat(self.log).st_ino != self._log
                    or _number(self.index) != self._index
                ):
                    return GuardState.GONE
            written = _stat(self._descriptor).st_mtime_ns
        except OSError:
            return GuardState.GONE
        if written != self._written:
            self._written = written
            return GuardState.WRITTEN
        return _SAME

    def describe_loss(self) -> str:
        """Describe what has happened to the files."""
        if (file := _number(self.path)) is None:
            return "the database file was removed"
        if file != (self._device, self._file):
            return "the database file was replaced"
        log = _number(self.log)
        if log == (self._device, self._log):
            return "the index of its write-ahead log (-shm) was removed or replaced"
        return "its write-ahead log was removed" if log is None else "its write-ahead log was replaced"

    def is_index_replaced(self) -> bool:
        """Whether other processes use another index of the log, so that they do not see what this one writes."""
        return _number(self.index) not in (None, self._index)

    def can_checkpoint(self, *, guarded: bool) -> bool:
        """Whether this process may checkpoint its log: the database is the same, and no other log or index exists.

        An empty log may come from a connection of this process; another process would also have created a `-shm` file.
        Without a guard, that process could have ended and deleted both.
        """
        if _number(self.path) != (self._device, self._file) or self.is_index_replaced():
            return False
        if not guarded and os.stat(self.path).st_mtime_ns != self._written:
            return False
        try:
            log = os.stat(self.log)
            return log.st_size == 0 or log.st_ino == self._log
        except FileNotFoundError:
            return True


def _is_settled(changed_ns: int) -> bool:
    """Whether a folder's last change is so old that the next one gets another time."""
    return time.time_ns() - changed_ns > (SETTLED_NS if changed_ns % SECOND_NS else SETTLED_COARSE_NS)


def _number(path: str) -> FileIdentity | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class FileGuard:
    """Locks on the files of a store that other code of this process cannot drop. One per process and database."""

    def __init__(self, number: FileIdentity) -> None:
        self.number = number
        self.stores = 0
        self.files: list[tuple[int, int, int]] = []
        """Descriptors with the first byte and the count that each locks."""

        self.file: int | None = None
        """The descriptor of the database, for reading only; never close it."""
        self.index: int | None = None
        """The descriptor of the `-shm` file."""
        self._log: int | None = None

    def has_index(self) -> bool:
        """Whether the `-shm` file still has a name."""
        return self.index is None or os.fstat(self.index).st_nlink > 0

    def is_log_cut(self) -> bool:
        """Whether the log is shorter than its index says. Ask while this process may write: then neither changes."""
        if self.index is None or self._log is None:
            return False
        page: int
        frames: int
        page, frames = _unpack_frames(_pread(self.index, _FRAMES_BYTES, FRAMES_AT))
        # Not `stat`: that makes the next sync write a new time.
        return frames > 0 and _lseek(self._log, 0, _END) < LOG_HEADER_BYTES + frames * (FRAME_HEADER_BYTES + page)

    def lock_files(self, path: str) -> None:
        """Open and lock the database, its `-shm` file and its log."""
        self.file = self.watch(path, os.O_RDONLY, SHARED_FIRST, SHARED_BYTES)
        self.index = self.watch(path + "-shm", os.O_RDWR, DEADMAN_BYTE, 1)
        self._log = self.watch(path + "-wal", os.O_RDONLY, 0, 1)  # SQLite locks nothing in the log

    def watch(self, path: str, mode: int, first: int, count: int) -> int:
        """Lock bytes of a file; if the system cannot, `OpenStoreFiles` alone detects changes."""
        fd = os.open(path, mode | os.O_CLOEXEC)
        self.files.append((fd, first, count))
        with suppress(OSError):
            _lock(fd, fcntl.F_RDLCK, first, count)
        return fd

    def allocate_index(self) -> None:
        """Allocate the blocks of the `-shm` file where they are smaller than pages; OSError if the disk is full.

        SQLite writes one byte per page and then maps the file. A page fault in the hole that is left has no way to
        report a full disk: the kernel kills the process with SIGBUS.
        """
        if self.index is not None and os.fstatvfs(self.index).f_bsize < mmap.PAGESIZE:
            size = ctypes.c_int64(INDEX_BYTES)
            if _libc.fallocate(self.index, 0, ctypes.c_int64(0), size) and ctypes.get_errno() == errno.ENOSPC:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def loosen(self) -> None:
        """Unlock before the last store of this process closes, so that SQLite can clean up."""
        with stay_inside(), _registry:
            if self.stores <= 1:
                for fd, first, count in self.files:
                    with suppress(OSError):
                        _lock(fd, fcntl.F_UNLCK, first, count)

    def close_files(self) -> None:
        """Close the descriptors."""
        for fd, _, _ in self.files:
            os.close(fd)
        self.files.clear()
        self.file = self.index = self._log = None

    def release(self) -> None:
        """Close the descriptors, after the store's connections: closing one drops their locks."""
        with stay_inside(), _registry:
            self.stores -= 1
            if self.stores <= 0:
                self.close_files()
                if _guards.get(self.number) is self:
                    del _guards[self.number]


_libc = ctypes.CDLL(None, use_errno=True)
"""`os.posix_fallocate` would rewrite bytes where the file system cannot allocate, while others change them."""

_registry = rlock()
"""Taken inside, so that a fork waits for its holder. A child would otherwise close descriptors that a thread was just
closing, or find them closed and given to another file."""
_guards: dict[FileIdentity, FileGuard] = {}
"""By database: closing a second descriptor of a database would drop the locks of its connections."""


def guard(path: str) -> FileGuard | None:
    """Guard a store that was just opened; call `release` on the result. None if the system has no such locks."""
    if not hasattr(fcntl, "F_OFD_SETLK"):
        return None
    with stay_inside(), _registry:
        if (number := _number(path)) is None:
            return None
        held = _guards.get(number)
        if held is None:
            held = _guards[number] = FileGuard(number)
            held.lock_files(path)
        held.stores += 1
        return held


def has_log(file: int) -> bool:
    """Whether the database is in WAL mode according to its header. A fresh copy in its place is not."""
    return os.pread(file, 2, WAL_FORMAT_AT) == WAL_FORMAT


def is_without_log(path: str) -> bool:
    """Whether the database is not in WAL mode although there is a log, which then belongs to another database."""
    try:
        if os.stat(path + "-wal").st_size <= LOG_HEADER_BYTES or os.stat(path).st_size == 0:
            return False
        # Opened by SQLite, which never closes a descriptor while a connection of this process has locks on the file.
        file = apsw.VFSFile("", path, [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
    except (OSError, apsw.CantOpenError):
        return False
    try:
        return file.xRead(2, WAL_FORMAT_AT) == ROLLBACK_FORMAT
    finally:
        file.xClose()


def count_backfilled(index: int) -> int:
    """Return how many frames of the log the last checkpoint wrote to the database; 0 after the log restarted."""
    return int.from_bytes(os.pread(index, 4, BACKFILLED_AT), sys.byteorder)


def is_settled(file: int) -> bool:
    """Whether the database file itself, not only its log, has a schema."""
    return any(os.pread(file, 4, USER_VERSION_AT))


def _lock(fd: int, kind: int, first: int, count: int) -> None:
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi", kind, os.SEEK_SET, first, count, 0))


def _after_fork_in_child() -> None:
    for held in _guards.values():
        held.close_files()  # copies: the parent's locks stay
    _guards.clear()


call_after_fork(_after_fork_in_child)
