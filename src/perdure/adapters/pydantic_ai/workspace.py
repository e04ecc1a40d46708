"""`PerdureWorkspace`: the files of an agent of Pydantic AI, kept in the store."""

from __future__ import annotations

import asyncio
import posixpath
import uuid
from collections.abc import Callable, Sequence
from typing import TypeVar

from pydantic_ai.messages import WorkspaceRef
from pydantic_ai.workspaces import FileEntry, WorkspaceUnavailableError

from perdure.adapters.open_engine import AgentOrStore, EngineHolder
from perdure.adapters.stored_files import FileTree, StoredEntry, StoredFiles, normalize
from perdure.errors import WrongValue
from perdure.kernel.protocol import drive_async

T = TypeVar("T")

_PROVIDER = "perdure"
_HOME = "/workspace"


class PerdureWorkspace:
    """A workspace backend with files and without commands. Files survive the process and any machine.

    Without a `ref`, the first operation creates an empty workspace. With one, it continues there.
    """

    def __init__(
        self, store: AgentOrStore = None, ref: WorkspaceRef | None = None, *, agent: str = "pydantic-ai"
    ) -> None:
        self._home = EngineHolder(store, agent)
        self._ref = ref
        self._attached = False
        self._lock = asyncio.Lock()

    @property
    def ref(self) -> WorkspaceRef | None:
        """The identity of the workspace; None until the first operation has created it."""
        return self._ref

    async def working_dir(self) -> str:
        """Return the folder that relative paths start in."""
        await self._attach()
        return _HOME

    async def read_bytes(self, path: str) -> bytes:
        """Return the content of a file."""
        return await self._apply(lambda tree: tree.read(normalize(path)))

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Write a file durably, and make the folders above it."""
        await self._apply(lambda tree: tree.write(normalize(path), bytes(data)))

    async def stat(self, path: str) -> FileEntry:
        """Return the size and kind of a file or folder."""
        return await self._apply(lambda tree: _to_entry(tree.stat(normalize(path))))

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        """Return the entries of a folder."""
        return await self._apply(lambda tree: [_to_entry(entry) for entry in tree.children(normalize(path))])

    async def make_dir(self, path: str) -> None:
        """Make a folder and those above it."""
        await self._apply(lambda tree: tree.make_dir(normalize(path)))

    async def remove(self, path: str) -> None:
        """Remove a file, or a folder with everything in it. The working folder is refused."""
        if _HOME.startswith(normalize(path)):
            raise WrongValue(f"{path} contains the working folder")
        await self._apply(lambda tree: tree.remove(normalize(path)))

    async def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        return await self._apply(lambda tree: tree.exists(normalize(path)))

    async def realpath(self, path: str) -> str:
        """Return a path without `.` and `..`. There are no links."""
        return normalize(path, _HOME)

    async def destroy(self) -> None:
        """Delete all files. Attaching to the workspace raises `WorkspaceUnavailableError` from now on."""
        await self._apply(_remove_all)

    async def _apply(self, operation: Callable[[FileTree], T]) -> T:
        ref = await self._attach()
        return await self._do(ref, operation)

    async def _do(self, ref: WorkspaceRef, operation: Callable[[FileTree], T]) -> T:
        files = StoredFiles(self._home.engine, f"workspace:{ref.id}")
        return await drive_async(self._home.engine.store, files.apply(operation))

    async def _attach(self) -> WorkspaceRef:
        async with self._lock:
            if self._ref is None:
                self._ref = WorkspaceRef(provider=_PROVIDER, id=uuid.uuid4().hex)
                await self._do(self._ref, lambda tree: tree.make_dir(_HOME))
                self._attached = True
            if not self._attached and not await self._do(self._ref, lambda tree: tree.exists(_HOME)):
                raise WorkspaceUnavailableError(f"workspace {self._ref.id} does not exist")
            self._attached = True
            return self._ref


def _remove_all(tree: FileTree) -> None:
    for entry in list(tree.children("/")):
        tree.remove(entry.path)


def _to_entry(entry: StoredEntry) -> FileEntry:
    size = None if entry.is_dir else entry.size
    return FileEntry(name=posixpath.basename(entry.path), path=entry.path, is_dir=entry.is_dir, size=size)
