"""Files that are there as a whole or not at all, and are still there after a power cut.

Whoever replaces a file writes it aside first: beside it, synced, and given its name by one rename. A process that is
killed anywhere leaves the old file or the new one, and perhaps one that nobody asks for.
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

from .failpoints import Gap, visit

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


def swap_file(name: str, data: bytes, folder: int, tag: str) -> str | None:
    """Write a file in place of another; returns how that is called now, or None when there was none.

    Both change places at one moment, so that whatever somebody else has saved before is in the old one. Where the
    system cannot do that, the old one gets its other name first: then only a file that takes its place in the
    microseconds in between is lost.
    """
    begun, aside = aside_of(name), aside_of(name, tag)
    try:
        with _synced(begun, PRIVATE, folder) as file:
            file.write(data)
    except OSError:  # no room for it
        with suppress(FileNotFoundError):
            os.unlink(begun, dir_fd=folder)
        raise
    # The name with the tag is for whole files only: nobody takes half of ours for what somebody has saved.
    os.rename(begun, aside, src_dir_fd=folder, dst_dir_fd=folder)
    visit(Gap.FILE_ASIDE)
    if not exchange(aside, name, folder):
        os.unlink(aside, dir_fd=folder)
        return None
    os.fsync(folder)
    return aside


def exchange(one: str, other: str, folder: int) -> bool:
    """Let two files change places; False when there is no other."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    call = getattr(library, "renameat2", None) or getattr(library, "renameatx_np", None)  # Linux, macOS
    if call is not None:
        if call(folder, os.fsencode(one), folder, os.fsencode(other), _RENAME_EXCHANGE) == 0:
            return True
        if ctypes.get_errno() == errno.ENOENT:
            return False
    return _exchanged_slowly(one, other, folder)


def _exchanged_slowly(one: str, other: str, folder: int) -> bool:
    kept = f"{one}{ASIDE_SUFFIX}"
    try:
        os.link(other, kept, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    os.replace(one, other, src_dir_fd=folder, dst_dir_fd=folder)
    os.replace(kept, one, src_dir_fd=folder, dst_dir_fd=folder)
    return True


class Settled(NamedTuple):
    """What was in a file when nobody was writing it."""

    data: bytes
    busy: bool
    """Whether somebody has it open all the same, and may still write."""


def read_settled(descriptor: int, most: int = -1, *, wait: bool = True) -> Settled:
    """What is in an open file, when nobody writes it, but not for ever: an editor empties it before it writes."""
    until = time.monotonic() + (CLOSED_SECONDS_MAX if wait else 0)
    with open(descriptor, "rb", buffering=0, closefd=False) as file:
        while True:
            busy, late = _has_writer(descriptor), time.monotonic() >= until
            if not busy or late:
                before = _stamp(descriptor)
                os.lseek(descriptor, 0, os.SEEK_SET)
                data = _all_of(file, most)
                busy = busy or _has_writer(descriptor)
                if late or not (busy or _stamp(descriptor) != before):
                    return Settled(data, busy)
            time.sleep(0.001)


def _all_of(file: RawIOBase, most: int) -> bytes:
    data = bytearray()
    while (most < 0 or len(data) < most) and (more := file.read(most - len(data) if most >= 0 else 1 << 20)):
        data += more
    return bytes(data)


def _stamp(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_mtime_ns, found.st_size


def _has_writer(descriptor: int) -> bool:
    """Whether somebody has the file open for writing; a lease on it is refused then. Nobody knows: no."""
    if not hasattr(fcntl, "F_SETLEASE"):  # Linux only
        return False
    try:
        # Whoever opens the file for writing while we have the lease has us told by a signal: SIGIO, which would end the
        # process. SIGURG does nothing unless somebody handles it.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
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


def aside_of(path: str | os.PathLike[str], tag: str = "") -> str:
    """A name beside a file that nobody else has; it is no longer than names may be."""
    above, name = os.path.split(os.fspath(path))
    begins = os.fsdecode(os.fsencode(name)[:_ASIDE_BYTES_MAX]) + (f".{tag}" if tag else "")
    return os.path.join(above, f".{begins}.{os.getpid()}.{os.urandom(6).hex()}{ASIDE_SUFFIX}")


def _name(aside: str | os.PathLike[str], path: str | os.PathLike[str], new: bool, folder: int | None) -> None:
    if new and _linked(aside, path, folder):
        return
    if new:  # the name is taken by an empty file, which nobody else can do then, and which this one replaces
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, PRIVATE, dir_fd=folder))
    os.replace(aside, path, src_dir_fd=folder, dst_dir_fd=folder)


def _linked(aside: str | os.PathLike[str], path: str | os.PathLike[str], folder: int | None) -> bool:
    """A second name; False where the file system has no such thing, as on most sticks."""
    try:
        os.link(aside, path, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            return False
        raise
    return True
