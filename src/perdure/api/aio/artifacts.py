"""The public API of `agent.artifacts`: arguments and documentation. The logic is in `perdure.data.artifacts`."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, TypeVar

from perdure.api.aio.base import AsyncFacade
from perdure.data import artifacts
from perdure.data.artifacts import ArtifactInfo, ArtifactReader, ArtifactUsage, ArtifactWrite
from perdure.errors import WrongValue
from perdure.kernel.engine import Engine

R = TypeVar("R")
FilePath = str | os.PathLike[str]


class AsyncArtifacts(AsyncFacade):
    """`agent.artifacts`: files, bytes and arrays of any size. A new version stores only what has changed.

    >>> await agent.artifacts.save("weights", {"layer1": w1, "bias": b1}, note="after epoch 3")
    1
    >>> weights = await agent.artifacts.load("weights")

    Inside a step, an effect or an item, a version lands with it or not at all. Outside of them it is on disk when the
    call returns.
    """

    __slots__ = ()

    async def save(self, name: str, data: Any, *, note: str = "", labels: Iterable[str] = ()) -> int:
        """Save data under a name and return its version: 1, then 2, and so on. Older versions stay.

        `data` is bytes, a path (also as a str), a numpy array, a dict of arrays, an open binary file, or an iterator of
        bytes. It is streamed: a file of any size needs a few megabytes of memory. After a crash, saving again writes
        only what is missing. Inside a step the call returns 0. Raises `NotStorable`.
        """
        # unasync: async-only
        if hasattr(data, "__aiter__"):
            async with self.writer(name, note=note, labels=labels) as file:
                async for block in data:
                    await file.write(block)
            return file.version
        # unasync: end
        return await self._do(artifacts.save(self._engine, name, data, labels, note))

    async def load(self, name: str, version: int | None = None, *, to: FilePath | None = None) -> Any:
        """Return what was saved: bytes, an array or a dict of arrays; the newest version by default.

        A file is returned as its content. `to` writes it to a file instead, atomically and in constant memory, and
        returns the path. Arrays are written as a safetensors file. Everything is verified: `ArtifactDamaged` says what
        is wrong and where. `ArtifactNotFound` lists the existing names.
        """
        return await self._read(lambda: artifacts.load(self._engine, name, version, to))

    # unasync: async-only
    def open(self, name: str, version: int | None = None) -> AsyncArtifactReader:
        """Open a version for reading, in constant memory.

        >>> async with agent.artifacts.open("video") as file:
        ...     async for block in file:
        ...         send(block)
        """
        return AsyncArtifactReader(self._engine, name, version)

    # unasync: end
    # unasync: sync-only
    #: def open(self, name: str, version: int | None = None) -> ArtifactReader:
    #:     """Open a version as a readable, seekable binary file, in constant memory.
    #:
    #:     >>> with agent.artifacts.open("video") as file:
    #:     ...     for block in file:
    #:     ...         send(block)
    #:     """
    #:     return artifacts.open_artifact(self._engine, name, version)
    # unasync: end

    def writer(self, name: str, *, note: str = "", labels: Iterable[str] = ()) -> AsyncArtifactWriter:
        """Write a version piece by piece. It exists once the block ends without an error.

        >>> async with agent.artifacts.writer("log") as file:
        ...     await file.write(b"one line")
        """
        return AsyncArtifactWriter(self._engine, artifacts.begin_write(self._engine, name, labels, note))

    async def versions(self, name: str) -> builtins.list[ArtifactInfo]:
        """Return all versions of a name, oldest first, with kind, size, digest, time, labels and note."""
        return await self._read(lambda: artifacts.versions(self._engine, name))

    async def list(self, label: str | None = None) -> builtins.list[ArtifactInfo]:
        """Return the newest version of every artifact, sorted by name, or the newest with a label."""
        return await self._read(lambda: artifacts.list_artifacts(self._engine, label))

    async def usage(self) -> builtins.list[ArtifactUsage]:
        """Return every version, sorted by name and number, with the bytes it adds to those before it."""
        return await self._read(lambda: artifacts.usage(self._engine))

    async def delete(self, name: str, version: int | None = None) -> int:
        """Delete one version, or all versions of a name. Returns how many. Content shared with others stays."""
        return await self._do(artifacts.delete(self._engine, name, version))


class AsyncArtifactWriter(AsyncFacade):
    """A version being written, returned by `agent.artifacts.writer`."""

    __slots__ = ("_over", "_saving", "version")

    def __init__(self, engine: Engine, saving: ArtifactWrite) -> None:
        super().__init__(engine)
        self._saving = saving
        self._over = False
        self.version = 0
        """The version number after the block; 0 inside a step."""

    async def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append bytes and return how many were written."""
        self._must_be_open()
        before = self._saving.size
        await self._do(self._saving.feed(data))
        return self._saving.size - before

    def _must_be_open(self) -> None:
        if self._over:
            raise WrongValue("the writer is closed because its block has ended; open a new writer for a new version")

    async def __aenter__(self) -> AsyncArtifactWriter:
        self._must_be_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        if error is None:
            self.version = await self._do(self._saving.finish())


# unasync: async-only
class AsyncArtifactReader(AsyncFacade):
    """A version being read, returned by `agent.artifacts.open`. It opens with `async with` or the first read."""

    __slots__ = ("_file", "_which")

    def __init__(self, engine: Engine, name: str, version: int | None) -> None:
        super().__init__(engine)
        self._which = (name, version)
        self._file: ArtifactReader | None = None

    async def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes, or all remaining ones."""
        return await self._call(lambda file: file.read(size) or b"")

    async def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position, relative to the beginning, the current position or the end."""
        return await self._call(lambda file: file.seek(offset, whence))

    async def tell(self) -> int:
        """Return the position of the next byte."""
        return await self._call(lambda file: file.tell())

    async def size(self) -> int:
        """Return the size in bytes."""
        return await self._call(lambda file: file.size)

    def __aiter__(self) -> AsyncArtifactReader:
        return self

    async def __anext__(self) -> bytes:
        block = await self._call(lambda file: next(file, b""))
        if not block:
            raise StopAsyncIteration
        return block

    async def __aenter__(self) -> AsyncArtifactReader:
        await self._call(lambda file: file)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    async def _call(self, call: Callable[[ArtifactReader], R]) -> R:
        return await self._read(lambda: call(self._require_open()))

    def _require_open(self) -> ArtifactReader:
        if self._file is None:
            self._file = artifacts.open_artifact(self._engine, *self._which)
        return self._file


# unasync: end
