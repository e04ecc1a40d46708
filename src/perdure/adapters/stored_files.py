"""A tree of files in `agent.state`: versioned, exported and recovered with the agent. The machine has no such files.

Sizes are in one namespace and contents in another, so that a listing reads no contents. A change is one commit, made
only if the tree is still as it was read.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from perdure.data import state
from perdure.errors import VersionConflict
from perdure.journal.agent_writes import RequireRevision, SetKey
from perdure.kernel.engine import Engine
from perdure.kernel.protocol import Protocol, Read, drive_sync

T = TypeVar("T")


class StoredEntry(msgspec.Struct, frozen=True):
    """A file or a folder of the tree."""

    path: str
    size: int
    is_dir: bool


class FileTree:
    """The tree as it was read, with the changes of one operation. Paths are absolute and normalized."""

    def __init__(self, engine: Engine, space: str, sizes: dict[str, int]) -> None:
        self._engine, self._space = engine, space
        self._sizes = {"/": -1, **sizes}
        """Sizes of files; -1 for a folder."""
        self._contents: dict[str, bytes] = {}
        self._changed: dict[str, None] = {}

    def exists(self, path: str) -> bool:
        """Whether there is a file or a folder."""
        return path in self._sizes

    def is_dir(self, path: str) -> bool:
        """Whether there is a folder."""
        return self._sizes.get(path) == -1

    def stat(self, path: str) -> StoredEntry:
        """Return a file or folder. Raises `FileNotFoundError`."""
        if path not in self._sizes:
            raise FileNotFoundError(path)
        return StoredEntry(path, max(0, self._sizes[path]), self.is_dir(path))

    def children(self, path: str) -> Iterator[StoredEntry]:
        """Yield the entries of a folder, sorted by name. Raises `NotADirectoryError`."""
        if not self.stat(path).is_dir:
            raise NotADirectoryError(path)
        for inner in sorted(self._sizes):
            if inner != "/" and posixpath.dirname(inner) == path:
                yield self.stat(inner)

    def below(self, path: str) -> list[str]:
        """Return a path and everything below it."""
        return [inner for inner in self._sizes if inner == path or inner.startswith(path.rstrip("/") + "/")]

    def read(self, path: str) -> bytes:
        """Return the content of a file. Raises `IsADirectoryError`."""
        if self.stat(path).is_dir:
            raise IsADirectoryError(path)
        if path not in self._contents:
            found = drive_sync(self._engine.store, state.get(self._engine, f"{self._space}:data", path, b""))
            self._contents[path] = found
        return self._contents[path]

    def write(self, path: str, content: bytes) -> None:
        """Set the content of a file, and make the folders above it."""
        if self.is_dir(path):
            raise IsADirectoryError(path)
        self._make_parent(path)
        self._sizes[path], self._contents[path] = len(content), content
        self._changed[path] = None

    def make_dir(self, path: str) -> None:
        """Make a folder and those above it. Raises `FileExistsError` or `NotADirectoryError`."""
        if path in self._sizes and not self.is_dir(path):
            raise FileExistsError(path)
        if path not in self._sizes:
            self._make_parent(path)
            self._sizes[path] = -1
            self._changed[path] = None

    def _make_parent(self, path: str) -> None:
        try:
            self.make_dir(posixpath.dirname(path))
        except FileExistsError as error:
            raise NotADirectoryError(posixpath.dirname(path)) from error

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with everything below it."""
        self.stat(path)
        for inner in self.below(path):
            del self._sizes[inner]
            self._contents.pop(inner, None)
            self._changed[inner] = None

    def rename(self, old: str, new: str) -> None:
        """Move a file or a folder."""
        moved = [(inner, None if self.is_dir(inner) else self.read(inner)) for inner in self.below(old)]
        self.remove(old)
        for inner, content in moved:
            target = new + inner[len(old) :]
            if content is None:
                self.make_dir(target)
            else:
                self.write(target, content)

    def writes(self) -> list[SetKey]:
        """Return the changes as writes of `agent.state`."""
        return [ask for path in self._changed for ask in self._ask(path)]

    def _ask(self, path: str) -> Iterator[SetKey]:
        sizes, data = (state.place(self._engine, space, path) for space in (self._space, f"{self._space}:data"))
        if path not in self._sizes:
            yield state.ask_delete(sizes, None)
            yield state.ask_delete(data, None)
            return
        yield state.ask_set(self._engine, sizes, self._sizes[path], None, None)
        if path in self._contents:
            yield state.ask_set(self._engine, data, self._contents[path], None, None)


class StoredFiles:
    """The files of one namespace."""

    def __init__(self, engine: Engine, space: str) -> None:
        self._engine, self._space = engine, space

    def apply(self, operation: Callable[[FileTree], T]) -> Protocol[T]:
        """Execute an operation on the tree, and commit what it changes. It may be called again after a conflict."""
        while True:
            result, asks, guard = yield Read(self._try, (operation,))
            try:
                if asks:
                    yield from state.change(self._engine, asks, [guard])
            except VersionConflict:
                continue
            done: T = result
            return done

    def _try(self, operation: Callable[[FileTree], Any]) -> tuple[Any, list[SetKey], RequireRevision]:
        guard = state.make_unchanged_guard(self._engine, self._space)
        sizes = dict(drive_sync(self._engine.store, state.items(self._engine, self._space, None, None)))
        tree = FileTree(self._engine, self._space, sizes)
        return operation(tree), tree.writes(), guard


def normalize(path: str, start: str = "/") -> str:
    """Return an absolute path without `.` and `..`."""
    return posixpath.normpath(posixpath.join(start, path)).replace("//", "/")
