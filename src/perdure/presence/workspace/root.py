"""File access that is confined to one folder.

Every folder on a path is opened relative to its parent, and none may be a link. Swapping a folder for a link meanwhile
makes the call fail; it never leads elsewhere.

A file with a second name (a hard link) may belong to anybody: `ln ~/.ssh/id_rsa SOUL.md`. It is refused like a symbolic
link.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from perdure.errors import PathRefused, ValueTooLarge, WorkspaceNotFound
from perdure.platform.failpoints import RaceWindow, visit
from perdure.platform.files import (
    ASIDE_SUFFIX,
    PRIVATE,
    exchange,
    make_folder,
    read_stable,
    replace_file,
    swap_file,
    temporary_name,
)
from perdure.values.limits import WORKSPACE_FILE_BYTES_MAX

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Non-blocking: opening a pipe in place of a file would never return."""

LINK_TRIES = 100
"""How often a file may be replaced while it is opened."""

_WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


class DisplacedFile(msgspec.Struct, frozen=True):
    """A file that was replaced, under the name that it has now in the same folder."""

    path: str
    aside: str
    data: bytes
    busy: bool
    """Whether it is still open somewhere, and may be written to."""


class WorkspaceRoot:
    """The folder of a workspace. Paths are relative, with `/` as the separator."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # The user chose the path to the folder, links included. Below it, none are followed.
        self.path = os.path.realpath(os.path.expanduser(os.fspath(path)))

    def make(self) -> None:
        """Create the folder if it does not exist."""
        make_folder(self.path)

    def read(self, path: str, most: int = WORKSPACE_FILE_BYTES_MAX) -> bytes | None:
        """Return the contents of a file that is not being written; None if it does not exist."""
        with self._folder_of(path) as (folder, name):
            try:
                descriptor = self._open_alone(path, folder, name) if folder >= 0 else -1
            except FileNotFoundError:
                return None
            if descriptor < 0:
                return None
            try:
                data = read_stable(descriptor, most + 1).data
            finally:
                os.close(descriptor)
        if len(data) > most:
            size = f"{most // (1024 * 1024)} MB"
            raise ValueTooLarge(f"{self._format_path(path)} is larger than {size}, the limit for a workspace file")
        return data

    def _open_alone(self, path: str, folder: int, name: str) -> int:
        """Open a regular file that has no other name."""
        for _ in range(LINK_TRIES):
            try:
                descriptor = os.open(name, _FILE, dir_fd=folder)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise self._refusal_error(path, error) from error
            kept = False
            try:
                kept = self._is_alone(path, folder, name, descriptor)
            finally:
                if not kept:
                    os.close(descriptor)
            if kept:
                return descriptor
        raise PathRefused(f"{self._format_path(path)} changes faster than it can be opened")

    def _is_alone(self, path: str, folder: int, name: str, descriptor: int) -> bool:
        """Return whether the open file is the one with that name. Irregular files and hard links are refused.

        The name is looked up after opening, in one call that returns both inode and link count. If a second name was
        removed in between, this name no longer leads to the file.
        """
        opened = os.fstat(descriptor)
        if not stat.S_ISREG(opened.st_mode):
            raise PathRefused(f"{self._format_path(path)} is not a regular file")
        now = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if (now.st_dev, now.st_ino) != (opened.st_dev, opened.st_ino):
            return False
        if now.st_nlink > 1 and not self._drop_leftovers(now, folder):
            hint = f"copy it, then put the copy in its place: `cp {name} copy && mv copy {name}`"
            raise PathRefused(
                f"{self._format_path(path)} has {now.st_nlink} links: the file has another name", hint=hint
            )
        return now.st_nlink <= 1

    def _drop_leftovers(self, file: os.stat_result, folder: int) -> bool:
        """Remove second names that a killed process has left. Returns whether there were any."""
        found = False
        for name in filter(_is_aside, os.listdir(folder)):
            with suppress(FileNotFoundError):
                if os.path.samestat(os.stat(name, dir_fd=folder, follow_symlinks=False), file):
                    os.unlink(name, dir_fd=folder)
                    found = True
        return found

    def append(self, path: str, data: bytes) -> None:
        """Append to a file, which is created if necessary."""
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
            raise PathRefused(f"{self._format_path(path)} changes faster than it can be opened")
        finally:
            os.close(known)

    def remove(self, path: str) -> None:
        """Remove a file if it exists."""
        with self._folder_of(path) as (folder, name), suppress(FileNotFoundError):
            if folder >= 0:
                os.unlink(name, dir_fd=folder)

    def write(self, path: str, data: bytes) -> None:
        """Write a whole file, durably."""
        with self._folder_of(path, make=True) as (folder, name):
            replace_file(name, data, folder=folder)

    def make_new(self, path: str, data: bytes, mode: int = PRIVATE) -> bool:
        """Create a file. Returns False if it exists."""
        with self._folder_of(path, make=True) as (folder, name):
            try:
                replace_file(name, data, mode=mode, folder=folder, new=True)
            except FileExistsError:
                return False
        return True

    def swap(self, path: str, data: bytes, tag: str) -> DisplacedFile | None:
        """Replace a file and keep the old one in the same folder; None if it does not exist.

        `tag` becomes part of the name of the old one.
        """
        with self._folder_of(path) as (folder, name):
            if folder < 0:
                return None
            visit(RaceWindow.FILE_READ)
            aside = swap_file(name, data, folder, tag)
            if aside is None:
                return None
            visit(RaceWindow.FILE_PLACED)
            found = self._find_displaced(path, folder, aside)
            if found is None:  # a link or folder was just put there: restore it
                exchange(aside, name, folder)
                os.unlink(aside, dir_fd=folder)
                os.fsync(folder)
                raise PathRefused(f"{self._format_path(path)} is not a regular file")
            return found

    def displace(self, path: str, tag: str) -> DisplacedFile | None:
        """Move a file aside; None if it does not exist."""
        with self._folder_of(path) as (folder, name):
            if folder < 0:
                return None
            aside = temporary_name(name, tag)
            visit(RaceWindow.FILE_READ)
            try:
                os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
            except FileNotFoundError:
                return None
            os.fsync(folder)
            visit(RaceWindow.FILE_PLACED)
            found = self._find_displaced(path, folder, aside)
            if found is None:
                os.rename(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
                raise PathRefused(f"{self._format_path(path)} is not a regular file")
            return found

    def find_displaced(self, path: str, aside: str) -> DisplacedFile | None:
        """Return the displaced file of that name; None if it is gone or not a file."""
        with self._folder_of(path) as (folder, _):
            return self._find_displaced(path, folder, aside, wait=False) if folder >= 0 else None

    def _find_displaced(self, path: str, folder: int, aside: str, *, wait: bool = True) -> DisplacedFile | None:
        try:
            descriptor = os.open(aside, _FILE, dir_fd=folder)
        except OSError:
            return None
        try:
            now = os.stat(aside, dir_fd=folder, follow_symlinks=False)
            is_same = os.path.samestat(now, os.fstat(descriptor))
            if not is_same or not stat.S_ISREG(now.st_mode) or now.st_nlink > 1:
                return None
            return DisplacedFile(path, aside, *read_stable(descriptor, wait=wait))
        finally:
            os.close(descriptor)

    def drop_displaced(self, displaced: DisplacedFile) -> None:
        """Delete a displaced file after all of its contents are stored elsewhere."""
        visit(RaceWindow.FILE_KNOWN)
        with self._folder_of(displaced.path) as (folder, _):
            if folder >= 0:
                with suppress(FileNotFoundError):
                    os.unlink(displaced.aside, dir_fd=folder)
                    os.fsync(folder)

    def restore_displaced(self, displaced: DisplacedFile) -> bool:
        """Restore the old name of a displaced file. Returns False if that is taken."""
        with self._folder_of(displaced.path, make=True) as (folder, name):
            try:
                os.link(displaced.aside, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            except FileExistsError:
                return False
            with suppress(FileNotFoundError):
                os.unlink(displaced.aside, dir_fd=folder)
            os.fsync(folder)
            return True

    def asides(self, path: str) -> list[str]:
        """Return the displaced and temporary files of a folder."""
        with suppress(PathRefused):
            return list(filter(_is_aside, self.names(path)))
        return []

    def is_protected(self, path: str) -> bool:
        """Return whether a file is read-only: then it is left to its owner."""
        return not self._mode(path) & _WRITABLE

    def is_executable(self, path: str) -> bool:
        """Return whether the owner can execute a file, as git sees it."""
        return bool(self._mode(path) & stat.S_IXUSR)

    def _mode(self, path: str) -> int:
        """Return the mode of a file; that of a new one if it does not exist."""
        with self._folder_of(path) as (folder, name):
            with suppress(FileNotFoundError):
                if folder >= 0:
                    return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            return PRIVATE

    def names(self, path: str = "") -> list[str]:
        """Return the names in a folder; none if it does not exist."""
        with self._folder_of(f"{path}/." if path else ".") as (folder, _):
            return sorted(os.listdir(folder)) if folder >= 0 else []

    def drop_asides(self, path: str, before: float) -> None:
        """Remove old temporary files of killed processes. Newer ones may still be in use."""
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
        """Return whether a displaced file is still open and may change."""
        found = self._find_displaced(name, folder, name, wait=False)
        return found is not None and found.busy

    def lock(self) -> int | None:
        """Lock the folder. Returns a descriptor that holds the lock until it is closed; None if it is taken."""
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
            raise self._refusal_error("", error) from error

    @contextmanager
    def _folder_of(self, path: str, make: bool = False) -> Iterator[tuple[int, str]]:
        """Open the folder of a path. Returns it and the name within it; -1 if there is no such folder."""
        *above, name = path.split("/")
        if name in ("", "..") or "\0" in path or any(part in ("", ".", "..") for part in above):
            raise PathRefused(f"{path!r} is not a path in a workspace")
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
            raise self._refusal_error(part, error) from error

    def _refusal_error(self, path: str, error: OSError) -> Exception:
        """Return `PathRefused` for a link or socket; other errors are returned as they are."""
        if error.errno == errno.ENXIO:  # a socket
            return PathRefused(f"{self._format_path(path)} is not a regular file")
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            return error
        hint = "replace it by a file or a folder: nothing outside of a workspace is ever read or written"
        return PathRefused(f"{self._format_path(path)} is a link, or not a folder", hint=hint)

    def _format_path(self, path: str) -> str:
        return os.path.join(self.path, path)


def _is_aside(name: str) -> bool:
    return name.startswith(".") and name.endswith(ASIDE_SUFFIX)
