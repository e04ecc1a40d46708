"""Writes files atomically and durably.

A new file is written under a temporary name, synced, and renamed. A process that is killed anywhere leaves the old file
or the new one, and perhaps a temporary one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import RawIOBase
from typing import BinaryIO, NamedTuple

from perdure.platform.failpoints import RaceWindow, visit

PRIVATE = 0o600
ASIDE_SUFFIX = ".part"
CLOSED_SECONDS_MAX = 1.0
"""How long to wait for a writer that has the old file open."""
_ASIDE_BYTES_MAX = 100
_RENAME_EXCHANGE = 2


def make_folder(path: str) -> None:
    """Create a folder that only its owner can enter, with all missing parents, durably."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    make_folder(above)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return  # another process was faster
    sync_folder(above)


def sync_folder(path: str | os.PathLike[str], folder: int | None = None) -> None:
    """Sync the names in a folder to disk. A relative path starts at `folder`, if given."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def atomic_write(
    path: str | os.PathLike[str], *, mode: int = PRIVATE, new: bool = False, folder: int | None = None
) -> Iterator[BinaryIO]:
    """Write a file that appears, durably, only if the block succeeds.

    With `new`, raises FileExistsError instead of replacing a file. With an open `folder`, the path is a name in it, and
    no link is followed.
    """
    aside = temporary_name(path)
    try:
        with _create_synced(aside, mode, folder) as file:
            yield file
        _name(aside, path, new, folder)
    except OSError as error:
        if error.filename == aside:
            error.filename = os.fspath(path)  # not the temporary name
        raise
    finally:
        with suppress(FileNotFoundError):  # already renamed
            os.unlink(aside, dir_fd=folder)
    sync_folder(os.path.dirname(path) or ".", folder)


@contextmanager
def _create_synced(path: str, mode: int, folder: int | None) -> Iterator[BinaryIO]:
    """Create a file that is synced if the block succeeds."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, mode, dir_fd=folder), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def replace_file(
    path: str | os.PathLike[str], data: bytes, *, mode: int = PRIVATE, new: bool = False, folder: int | None = None
) -> None:
    """Write a small file atomically, replacing an existing one."""
    with atomic_write(path, mode=mode, new=new, folder=folder) as file:
        file.write(data)


def swap_file(name: str, data: bytes, folder: int, tag: str) -> str | None:
    """Replace a file and keep the old one; return the old file's new name, or None if there was none.

    The exchange is atomic, so whatever another program saved before is in the old file. Systems that cannot exchange
    rename the old file first: then only a file that is created in the microseconds in between is lost.
    """
    begun, aside = temporary_name(name), temporary_name(name, tag)
    try:
        with _create_synced(begun, PRIVATE, folder) as file:
            file.write(data)
    except OSError:  # no room for it
        with suppress(FileNotFoundError):
            os.unlink(begun, dir_fd=folder)
        raise
    # The tagged name is for whole files only, so that an unfinished file is not taken for a saved one.
    os.rename(begun, aside, src_dir_fd=folder, dst_dir_fd=folder)
    visit(RaceWindow.FILE_ASIDE)
    if not exchange(aside, name, folder):
        os.unlink(aside, dir_fd=folder)
        return None
    os.fsync(folder)
    return aside


def exchange(one: str, other: str, folder: int) -> bool:
    """Exchange two files; False if `other` does not exist."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    call = getattr(library, "renameat2", None) or getattr(library, "renameatx_np", None)  # Linux, macOS
    if call is not None:
        if call(folder, os.fsencode(one), folder, os.fsencode(other), _RENAME_EXCHANGE) == 0:
            return True
        if ctypes.get_errno() == errno.ENOENT:
            return False
    return _exchange_slowly(one, other, folder)


def _exchange_slowly(one: str, other: str, folder: int) -> bool:
    kept = f"{one}{ASIDE_SUFFIX}"
    try:
        os.link(other, kept, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    os.replace(one, other, src_dir_fd=folder, dst_dir_fd=folder)
    os.replace(kept, one, src_dir_fd=folder, dst_dir_fd=folder)
    return True


class StableContent(NamedTuple):
    """The content of a file while nobody was writing it."""

    data: bytes
    busy: bool
    """Whether a program still has it open for writing."""


def read_stable(descriptor: int, most: int = -1, *, wait: bool = True) -> StableContent:
    """Read an open file after waiting, up to a limit, for its writers: an editor empties a file before it writes."""
    until = time.monotonic() + (CLOSED_SECONDS_MAX if wait else 0)
    with open(descriptor, "rb", buffering=0, closefd=False) as file:
        while True:
            busy, late = _has_writer(descriptor), time.monotonic() >= until
            if not busy or late:
                before = _stamp(descriptor)
                os.lseek(descriptor, 0, os.SEEK_SET)
                data = _read_all(file, most)
                busy = busy or _has_writer(descriptor)
                if late or not (busy or _stamp(descriptor) != before):
                    return StableContent(data, busy)
            time.sleep(0.001)


def _read_all(file: RawIOBase, most: int) -> bytes:
    data = bytearray()
    while (most < 0 or len(data) < most) and (more := file.read(most - len(data) if most >= 0 else 1 << 20)):
        data += more
    return bytes(data)


def _stamp(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_mtime_ns, found.st_size


def _has_writer(descriptor: int) -> bool:
    """Whether a program has the file open for writing, so that a lease is refused; False if unknown."""
    if not hasattr(fcntl, "F_SETLEASE"):  # Linux only
        return False
    try:
        # If a program opens the file for writing during our lease, the kernel sends a signal. SIGIO, the default, would
        # end the process; SIGURG is ignored by default.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    return False


def move_into_place(aside: str | os.PathLike[str], path: str | os.PathLike[str], *, new: bool = False) -> None:
    """Sync a finished file and give it its final name."""
    descriptor = os.open(aside, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    _name(aside, path, new, None)
    sync_folder(os.path.dirname(path) or ".")


def temporary_name(path: str | os.PathLike[str], tag: str = "") -> str:
    """Return a unique name next to a file, within the length limit."""
    above, name = os.path.split(os.fspath(path))
    begins = os.fsdecode(os.fsencode(name)[:_ASIDE_BYTES_MAX]) + (f".{tag}" if tag else "")
    return os.path.join(above, f".{begins}.{os.getpid()}.{os.urandom(6).hex()}{ASIDE_SUFFIX}")


def _name(aside: str | os.PathLike[str], path: str | os.PathLike[str], new: bool, folder: int | None) -> None:
    if new and _create_link(aside, path, folder):
        return
    if new:  # reserve the name with an empty file, which the rename replaces
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, PRIVATE, dir_fd=folder))
    os.replace(aside, path, src_dir_fd=folder, dst_dir_fd=folder)


def _create_link(aside: str | os.PathLike[str], path: str | os.PathLike[str], folder: int | None) -> bool:
    """Create a hard link; False if the file system has none, as on most USB sticks."""
    try:
        os.link(aside, path, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            return False
        raise
    return True
