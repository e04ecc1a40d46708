"""A folder beneath which files are read and written, and nowhere else.

Every folder on the way is opened by its name in the one before, and none of them may be a link: who swaps a folder for
a link in the meantime makes the call fail, and never makes it go elsewhere.

A file that has a second name (a hard link) may be anybody's: `ln ~/.ssh/id_rsa SOUL.md`. Such a file is refused, as a
symbolic link is.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from ..errors import PathRefused, ValueTooLarge, WorkspaceNotFound
from ..failpoints import Gap, visit
from ..files import (
    ASIDE_SUFFIX,
    PRIVATE,
    aside_of,
    exchange,
    make_folder,
    read_settled,
    replace_file,
    swap_file,
)
from ..limits import WORKSPACE_FILE_BYTES_MAX

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Without waiting: a pipe in the place of a file would never answer."""

LINK_TRIES = 100
"""How often a file may be replaced while it is opened."""

_WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


class Displaced(msgspec.Struct, frozen=True):
    """What was in a file's place, under the name that it has now beside it."""

    path: str
    aside: str
    data: bytes
    busy: bool
    """Whether somebody has it open, and may still write to it."""


class Root:
    """The folder of a workspace. Paths are relative, their parts separated by `/`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # What leads to the folder is the user's own choice, links too; from here on there are none.
        self.path = os.path.realpath(os.path.expanduser(os.fspath(path)))

    def make(self) -> None:
        """Make the folder, if it is not there."""
        make_folder(self.path)

    def read(self, path: str, most: int = WORKSPACE_FILE_BYTES_MAX) -> bytes | None:
        """What is in a file, when nobody is writing it just now; None when it is not there."""
        with self._folder_of(path) as (folder, name):
            try:
                descriptor = self._open_alone(path, folder, name) if folder >= 0 else -1
            except FileNotFoundError:
                return None
            if descriptor < 0:
                return None
            try:
                data = read_settled(descriptor, most + 1).data
            finally:
                os.close(descriptor)
        if len(data) > most:
            size = f"{most // (1024 * 1024)} MB"
            raise ValueTooLarge(f"{self._shown(path)} is larger than {size}, the most a file of a workspace may have")
        return data

    def _open_alone(self, path: str, folder: int, name: str) -> int:
        """Open a regular file that has no other name."""
        for _ in range(LINK_TRIES):
            try:
                descriptor = os.open(name, _FILE, dir_fd=folder)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise self._refused(path, error) from error
            kept = False
            try:
                kept = self._is_alone(path, folder, name, descriptor)
            finally:
                if not kept:
                    os.close(descriptor)
            if kept:
                return descriptor
        raise PathRefused(f"{self._shown(path)} changes faster than it can be opened")

    def _is_alone(self, path: str, folder: int, name: str, descriptor: int) -> bool:
        """Whether the open file is the one with that name; one that is not regular or has other names is refused.

        The name is looked up after the file was opened, and one call tells both: its inode and the number of its
        links. A second name that is taken away in between leaves no name here that leads to the file.
        """
        opened = os.fstat(descriptor)
        if not stat.S_ISREG(opened.st_mode):
            raise PathRefused(f"{self._shown(path)} is no ordinary file")
        now = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if (now.st_dev, now.st_ino) != (opened.st_dev, opened.st_ino):
            return False
        if now.st_nlink > 1 and not self._drop_leftovers(now, folder):
            hint = f"copy it, then put the copy in its place: `cp {name} copy && mv copy {name}`"
            raise PathRefused(f"{self._shown(path)} has {now.st_nlink} links: the file has another name", hint=hint)
        return now.st_nlink <= 1

    def _drop_leftovers(self, file: os.stat_result, folder: int) -> bool:
        """Remove second names that a killed process has left beside a file; False when it has left none."""
        found = False
        for name in filter(_is_aside, os.listdir(folder)):
            with suppress(FileNotFoundError):
                if os.path.samestat(os.stat(name, dir_fd=folder, follow_symlinks=False), file):
                    os.unlink(name, dir_fd=folder)
                    found = True
        return found

    def append(self, path: str, data: bytes) -> None:
        """Add to the end of a file, which is made when it is not there."""
        with self._folder_of(path, make=True) as (folder, name):
            try:
                descriptor = self._open_for_more(path, folder, name)
            except FileNotFoundError:
                replace_file(name, data, folder=folder)
                return
            with open(descriptor, "ab", buffering=0) as file:
                file.write(data)

    def _open_for_more(self, path: str, folder: int, name: str) -> int:
        known = self._open_alone(path, folder, name)
        try:
            descriptor = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            if os.path.sameopenfile(known, descriptor):
                return descriptor
            os.close(descriptor)
            raise PathRefused(f"{self._shown(path)} changes faster than it can be opened")
        finally:
            os.close(known)

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        with self._folder_of(path) as (folder, name), suppress(FileNotFoundError):
            if folder >= 0:
                os.unlink(name, dir_fd=folder)

    def write(self, path: str, data: bytes) -> None:
        """Write a file as a whole; when this returns it is on disk."""
        with self._folder_of(path, make=True) as (folder, name):
            replace_file(name, data, folder=folder)

    def make_new(self, path: str, data: bytes, mode: int = PRIVATE) -> bool:
        """Write a file that is not there; False when it is."""
        with self._folder_of(path, make=True) as (folder, name):
            try:
                replace_file(name, data, mode=mode, folder=folder, new=True)
            except FileExistsError:
                return False
        return True

    def swap(self, path: str, data: bytes, tag: str) -> Displaced | None:
        """Write a file in place of the one that is there, which stays beside it; None when there is none.

        `tag` becomes part of the name that the old one has then.
        """
        with self._folder_of(path) as (folder, name):
            if folder < 0:
                return None
            visit(Gap.FILE_READ)
            aside = swap_file(name, data, folder, tag)
            if aside is None:
                return None
            visit(Gap.FILE_PLACED)
            found = self._beside(path, folder, aside)
            if found is None:  # a link or a folder that somebody has just put there: it goes back
                exchange(aside, name, folder)
                os.unlink(aside, dir_fd=folder)
                os.fsync(folder)
                raise PathRefused(f"{self._shown(path)} is no ordinary file")
            return found

    def displace(self, path: str, tag: str) -> Displaced | None:
        """Take a file out of its place; None when there is none."""
        with self._folder_of(path) as (folder, name):
            if folder < 0:
                return None
            aside = aside_of(name, tag)
            visit(Gap.FILE_READ)
            try:
                os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
            except FileNotFoundError:
                return None
            os.fsync(folder)
            visit(Gap.FILE_PLACED)
            found = self._beside(path, folder, aside)
            if found is None:
                os.rename(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
                raise PathRefused(f"{self._shown(path)} is no ordinary file")
            return found

    def beside(self, path: str, aside: str) -> Displaced | None:
        """What stands beside a file under that name; None when it is no file, or not there any more."""
        with self._folder_of(path) as (folder, _):
            return self._beside(path, folder, aside, wait=False) if folder >= 0 else None

    def _beside(self, path: str, folder: int, aside: str, *, wait: bool = True) -> Displaced | None:
        try:
            descriptor = os.open(aside, _FILE, dir_fd=folder)
        except OSError:
            return None
        try:
            now = os.stat(aside, dir_fd=folder, follow_symlinks=False)
            is_same = os.path.samestat(now, os.fstat(descriptor))
            if not is_same or not stat.S_ISREG(now.st_mode) or now.st_nlink > 1:
                return None
            return Displaced(path, aside, *read_settled(descriptor, wait=wait))
        finally:
            os.close(descriptor)

    def let_go(self, it: Displaced) -> None:
        """All that it had is elsewhere."""
        visit(Gap.FILE_KNOWN)
        with self._folder_of(it.path) as (folder, _):
            if folder >= 0:
                with suppress(FileNotFoundError):
                    os.unlink(it.aside, dir_fd=folder)
                    os.fsync(folder)

    def put_back(self, it: Displaced) -> bool:
        """Give it its old name; False when somebody has that now."""
        with self._folder_of(it.path, make=True) as (folder, name):
            try:
                os.link(it.aside, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            except FileExistsError:
                return False
            with suppress(FileNotFoundError):
                os.unlink(it.aside, dir_fd=folder)
            os.fsync(folder)
            return True

    def asides(self, path: str) -> list[str]:
        """What stands beside the files of a folder: what somebody writes just now, or was killed over."""
        with suppress(PathRefused):
            return list(filter(_is_aside, self.names(path)))
        return []

    def is_protected(self, path: str) -> bool:
        """Whether somebody has made a file read-only: then it is his."""
        return not self._mode(path) & _WRITABLE

    def is_executable(self, path: str) -> bool:
        """Whether its owner can run a file, as git sees it."""
        return bool(self._mode(path) & stat.S_IXUSR)

    def _mode(self, path: str) -> int:
        """Of a file that is not there, that of a new one."""
        with self._folder_of(path) as (folder, name):
            with suppress(FileNotFoundError):
                if folder >= 0:
                    return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            return PRIVATE

    def names(self, path: str = "") -> list[str]:
        """What is in a folder; nothing when it is not there."""
        with self._folder_of(f"{path}/." if path else ".") as (folder, _):
            return sorted(os.listdir(folder)) if folder >= 0 else []

    def drop_asides(self, path: str, before: float) -> None:
        """Remove from a folder what killed processes have left aside. Somebody may be writing the newest ones."""
        names = self.asides(path)
        if not names:
            return
        with self._folder_of(f"{path}/." if path else ".") as (folder, _):
            for name in names if folder >= 0 else ():
                with suppress(FileNotFoundError):
                    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    if stat.S_ISREG(found.st_mode) and found.st_mtime < before and not self._is_open(name, folder):
                        os.unlink(name, dir_fd=folder)

    def _is_open(self, name: str, folder: int) -> bool:
        """Whether somebody may still write to what has lost its place: then nobody has read all of it yet."""
        found = self._beside(name, folder, name, wait=False)
        return found is not None and found.busy

    def lock(self) -> int | None:
        """A descriptor: until it is closed, nobody else gets one. None when somebody else has it."""
        descriptor = self._open_top()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def _open_top(self) -> int:
        try:
            return os.open(self.path, _FOLDER)
        except FileNotFoundError as error:
            raise WorkspaceNotFound(f"there is no folder {self.path}") from error
        except OSError as error:
            raise self._refused("", error) from error

    @contextmanager
    def _folder_of(self, path: str, make: bool = False) -> Iterator[tuple[int, str]]:
        """The open folder of a path, and the name in it; -1 when there is no such folder."""
        *above, name = path.split("/")
        if name in ("", "..") or "\0" in path or any(part in ("", ".", "..") for part in above):
            raise PathRefused(f"{path!r} is no path in a workspace")
        folder = self._open_top()
        try:
            for part in above:
                inner = self._enter(folder, part, make)
                os.close(folder)
                folder = inner
                if folder < 0:
                    break
            yield folder, name
        finally:
            if folder >= 0:
                os.close(folder)

    def _enter(self, folder: int, part: str, make: bool) -> int:
        if make:
            with suppress(FileExistsError):
                os.mkdir(part, 0o700, dir_fd=folder)
                os.fsync(folder)
        try:
            return os.open(part, _FOLDER, dir_fd=folder)
        except FileNotFoundError:
            if make:
                raise
            return -1
        except OSError as error:
            raise self._refused(part, error) from error

    def _refused(self, path: str, error: OSError) -> Exception:
        """A link where there must be none is said to be one; other errors are what they are."""
        if error.errno == errno.ENXIO:  # a socket
            return PathRefused(f"{self._shown(path)} is no ordinary file")
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            return error
        hint = "put a file or a folder in its place: what is outside of a workspace is never read or written"
        return PathRefused(f"{self._shown(path)} is a link, or no folder", hint=hint)

    def _shown(self, path: str) -> str:
        return os.path.join(self.path, path)


def _is_aside(name: str) -> bool:
    return name.startswith(".") and name.endswith(ASIDE_SUFFIX)
