"""Files that are there as a whole or not at all, and are still there after a power cut.

Whoever replaces a file writes it aside first: beside it, synced, and given its name by one rename. A process that is
killed anywhere leaves the old file or the new one, and perhaps one that nobody asks for.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

PRIVATE = 0o600
ASIDE_SUFFIX = ".part"
CLOSED_SECONDS_MAX = 1.0
"""How long somebody who has an old file open is waited for."""
_ASIDE_BYTES_MAX = 100
_RENAME_EXCHANGE = 2


def make_folder(path: str) -> None:
    """Make a folder that only its owner can enter, with every folder above it that is missing; all of it durable."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    make_folder(above)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return  # another process was quicker
    sync_folder(above)


def sync_folder(path: str | os.PathLike[str], folder: int | None = None) -> None:
    """Wait until the names in a folder are on disk. A relative one is looked for in `folder`, if that is given."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def written_aside(
    path: str | os.PathLike[str], *, mode: int = PRIVATE, new: bool = False, folder: int | None = None
) -> Iterator[BinaryIO]:
    """A file that gets its name when the block has ended well, and is on disk then; else there is nothing of it.

    With `new` it takes nobody's place: FileExistsError. In an open `folder` the path is a name, which follows no link.
    """
    aside = aside_of(path)
    try:
        with _synced(aside, mode, folder) as file:
            yield file
        _name(aside, path, new, folder)
    except OSError as error:
        if error.filename == aside:
            error.filename = os.fspath(path)  # the name that people know
        raise
    finally:
        with suppress(FileNotFoundError):  # as it should be
            os.unlink(aside, dir_fd=folder)
    sync_folder(os.path.dirname(path) or ".", folder)


@contextmanager
def _synced(path: str, mode: int, folder: int | None) -> Iterator[BinaryIO]:
    """A new file that is on disk when the block has ended well."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, mode, dir_fd=folder), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def replace_file(
    path: str | os.PathLike[str], data: bytes, *, mode: int = PRIVATE, new: bool = False, folder: int | None = None
) -> None:
    """Write a small file, in place of the one that is there, if any."""
    with written_aside(path, mode=mode, new=new, folder=folder) as file:
        file.write(data)


def exchange_file(name: str, data: bytes, folder: int) -> bytes | None:
    """Write a file in place of another; returns what that had in it then, or None when there was no file any more.

    Both change places at one moment, so whatever somebody else has saved before is in what is returned. Who still has
    the old file open for writing is waited for. Where the system cannot do that, it is a look and a rename.
    """
    aside = aside_of(name)
    try:
        with _synced(aside, PRIVATE, folder) as file:
            file.write(data)
        if _exchanged(aside, name, folder):
            return _read_when_closed(aside, folder)
        found = _read_when_closed(name, folder, seconds=0)
        os.replace(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
        return found
    finally:
        with suppress(FileNotFoundError):
            os.unlink(aside, dir_fd=folder)
        os.fsync(folder)


def _exchanged(one: str, other: str, folder: int) -> bool:
    """Let two files change places; False where that is not possible, or one of them is not there."""
    import ctypes

    call = getattr(ctypes.CDLL(None), "renameat2", None)
    if call is None:
        return False
    return bool(call(folder, os.fsencode(one), folder, os.fsencode(other), _RENAME_EXCHANGE) == 0)


def _read_when_closed(name: str, folder: int, seconds: float = CLOSED_SECONDS_MAX) -> bytes | None:
    """What is in a file that nobody else can find any more, when nobody writes to it any more either."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None  # a link, or gone: nobody has written anything there
    with os.fdopen(descriptor, "rb") as file:
        wait_for_writers(descriptor, seconds)
        return file.read() if stat.S_ISREG(os.fstat(descriptor).st_mode) else None


def wait_for_writers(descriptor: int, seconds: float = CLOSED_SECONDS_MAX) -> None:
    """Wait until nobody has a file open for writing, but not for ever: an editor empties it before it writes."""
    until = time.monotonic() + seconds
    while _has_writer(descriptor) and time.monotonic() < until:
        time.sleep(0.001)


def _has_writer(descriptor: int) -> bool:
    """Whether somebody has the file open for writing; a lease on it is refused then. Nobody knows: no."""
    if not hasattr(fcntl, "F_SETLEASE"):  # Linux only
        return False
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    return False


def put_in_place(aside: str | os.PathLike[str], path: str | os.PathLike[str], *, new: bool = False) -> None:
    """Give a file its name that somebody else has written whole, when it is on disk."""
    descriptor = os.open(aside, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    _name(aside, path, new, None)
    sync_folder(os.path.dirname(path) or ".")


def aside_of(path: str | os.PathLike[str]) -> str:
    """A name beside a file that nobody else has; it is no longer than names may be."""
    above, name = os.path.split(os.fspath(path))
    begins = os.fsdecode(os.fsencode(name)[:_ASIDE_BYTES_MAX])
    return os.path.join(above, f".{begins}.{os.getpid()}.{os.urandom(6).hex()}{ASIDE_SUFFIX}")


def _name(aside: str | os.PathLike[str], path: str | os.PathLike[str], new: bool, folder: int | None) -> None:
    if new:
        os.link(aside, path, src_dir_fd=folder, dst_dir_fd=folder)
    else:
        os.replace(aside, path, src_dir_fd=folder, dst_dir_fd=folder)
