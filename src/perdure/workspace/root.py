"""A folder beneath which files are read and written, and nowhere else.

Every folder on the way is opened by its name in the one before, and none of them may be a link: who swaps a folder for
a link in the meantime makes the call fail, and never makes it go elsewhere.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..errors import PathRefused, ValueTooLarge, WorkspaceNotFound
from ..files import ASIDE_SUFFIX, exchange_file, make_folder, replace_file, wait_for_writers
from ..limits import WORKSPACE_FILE_BYTES_MAX

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Without waiting: a pipe in the place of a file would never answer."""


class Root:
    """The folder of a workspace. Paths are relative, their parts separated by `/`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # What leads to the folder is the user's own choice, links too; from here on there are none.
        self.path = os.path.realpath(os.path.expanduser(os.fspath(path)))

    def make(self) -> None:
        """Make the folder, if it is not there."""
        make_folder(self.path)

    def read(self, path: str) -> bytes | None:
        """What is in a file, when nobody is writing it just now; None when it is not there."""
        with self._folder_of(path) as (folder, name):
            if folder < 0:
                return None
            try:
                descriptor = os.open(name, _FILE, dir_fd=folder)
            except FileNotFoundError:
                return None
            except OSError as error:
                raise self._refused(path, error) from error
            with os.fdopen(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise PathRefused(f"{self._shown(path)} is no ordinary file")
                wait_for_writers(descriptor)
                data = file.read(WORKSPACE_FILE_BYTES_MAX + 1)
        if len(data) > WORKSPACE_FILE_BYTES_MAX:
            most = WORKSPACE_FILE_BYTES_MAX // (1024 * 1024)
            raise ValueTooLarge(
                f"{self._shown(path)} is larger than {most} MB, the most a file of a workspace may have"
            )
        return data

    def write(self, path: str, data: bytes) -> None:
        """Write a file as a whole; when this returns it is on disk."""
        with self._folder_of(path, make=True) as (folder, name):
            replace_file(name, data, folder=folder)

    def make_new(self, path: str, data: bytes) -> bool:
        """Write a file that is not there; False when it is."""
        with self._folder_of(path, make=True) as (folder, name):
            try:
                replace_file(name, data, folder=folder, new=True)
            except FileExistsError:
                return False
        return True

    def exchange(self, path: str, data: bytes) -> bytes | None:
        """Write a file in place of the one that is there; returns what that had in it at that moment."""
        with self._folder_of(path, make=True) as (folder, name):
            return exchange_file(name, data, folder)

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        with self._folder_of(path) as (folder, name):
            if folder >= 0:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)
                    os.fsync(folder)

    def names(self, path: str = "") -> list[str]:
        """What is in a folder; nothing when it is not there."""
        with self._folder_of(f"{path}/." if path else ".") as (folder, _):
            return sorted(os.listdir(folder)) if folder >= 0 else []

    def drop_asides(self, path: str, before: float) -> None:
        """Remove from a folder what killed processes have left aside. Somebody may be writing the newest ones."""
        with self._folder_of(f"{path}/." if path else ".") as (folder, _):
            for name in os.listdir(folder) if folder >= 0 else ():
                if name.startswith(".") and name.endswith(ASIDE_SUFFIX):
                    with suppress(FileNotFoundError):
                        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                        if stat.S_ISREG(found.st_mode) and found.st_mtime < before:
                            os.unlink(name, dir_fd=folder)

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
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            return error
        hint = "put a file or a folder in its place: what is outside of a workspace is never read or written"
        return PathRefused(f"{self._shown(path)} is a link, or no folder", hint=hint)

    def _shown(self, path: str) -> str:
        return os.path.join(self.path, path)
