"""The public face of `agent.artifacts`. Only arguments and documentation: `perdure.artifacts` decides."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, TypeVar

from .. import artifacts
from ..artifacts import ArtifactInfo, ArtifactReader, ArtifactUsage, Saving
from ..engine import Engine
from .face import AsyncFace

R = TypeVar("R")
Path = str | os.PathLike[str]


class AsyncArtifacts(AsyncFace):
    """`agent.artifacts`: files, bytes and arrays of any size, of which each new version stores only what has changed.

    >>> await agent.artifacts.save("weights", {"layer1": w1, "bias": b1}, note="after epoch 3")
    1
    >>> weights = await agent.artifacts.load("weights")

    Inside a step, an effect or an item a version lands with it, or not at all; in the open it is on disk when the call
    returns.
    """

    async def save(self, name: str, data: Any, *, note: str = "", labels: Iterable[str] = ()) -> int:
        """Keep something under a name, and return its version: 1, then 2, and so on. Older ones are not touched.

        `data` is bytes, a path (a str is one too), a numpy array, a dict of them, an open binary file, or an iterator
        of bytes. It is streamed: a file takes a few megabytes of memory, however large it is. After a crash, saving
        it again writes only what is not there yet. Inside a step 0 is returned.
        """
        # unasync: async-only
        if hasattr(data, "__aiter__"):
            async with self.writer(name, note=note, labels=labels) as file:
                async for block in data:
                    await file.write(block)
            return file.version
        # unasync: end
        return await self._do(artifacts.save(self._engine, name, data, labels, note))

    async def load(self, name: str, version: int | None = None, *, to: Path | None = None) -> Any:
        """What was saved: bytes, an array or a dict of arrays; the newest unless a version is given.

        Of a file you get its content. `to` writes it into a file instead, in constant memory, and returns the path: the
        file is there as a whole or not at all. Arrays become a file that safetensors reads. Everything is verified
        on the way; `ArtifactDamaged` says what is wrong, and where. `ArtifactNotFound` says which names there are.
        """
        return await self._read(lambda: artifacts.load(self._engine, name, version, to))

    # unasync: async-only
    def open(self, name: str, version: int | None = None) -> AsyncArtifactReader:
        """A file to read from, in constant memory.

        >>> async with agent.artifacts.open("video") as file:
        ...     async for block in file:
        ...         send(block)
        """
        return AsyncArtifactReader(self._engine, name, version)

    # unasync: end
    # unasync: sync-only
    #: def open(self, name: str, version: int | None = None) -> ArtifactReader:
    #:     """A file to read from, in constant memory: `read`, `seek`, `tell`, and what needs a binary file can use it.
    #:
    #:     >>> with agent.artifacts.open("video") as file:
    #:     ...     for block in file:
    #:     ...         send(block)
    #:     """
    #:     return artifacts.opened(self._engine, name, version)
    # unasync: end

    def writer(self, name: str, *, note: str = "", labels: Iterable[str] = ()) -> AsyncArtifactWriter:
        """Write a version piece by piece. It is there when the block ends well, and not at all otherwise.

        >>> async with agent.artifacts.writer("log") as file:
        ...     await file.write(b"one line")
        """
        return AsyncArtifactWriter(self._engine, artifacts.begun(self._engine, name, labels, note))

    async def versions(self, name: str) -> builtins.list[ArtifactInfo]:
        """All versions of a name, oldest first: kind, size, digest, time, labels and note of each."""
        return await self._read(lambda: artifacts.versions(self._engine, name))

    async def list(self, label: str | None = None) -> builtins.list[ArtifactInfo]:
        """The newest version of every artifact of this agent, by name; or the newest that has a label."""
        return await self._read(lambda: artifacts.listed(self._engine, label))

    async def usage(self) -> builtins.list[ArtifactUsage]:
        """Every version, by name and number, with the bytes that it adds to what those before it need."""
        return await self._read(lambda: artifacts.usage(self._engine))

    async def delete(self, name: str, version: int | None = None) -> int:
        """Delete one version, or all of a name; returns how many. What others share with it stays."""
        return await self._do(artifacts.delete(self._engine, name, version))


class AsyncArtifactWriter(AsyncFace):
    """What `agent.artifacts.writer` returns."""

    def __init__(self, engine: Engine, saving: Saving) -> None:
        super().__init__(engine)
        self._saving = saving
        self._over = False
        self.version = 0
        """What it has become, after the block; 0 inside a step."""

    async def write(self, data: bytes | bytearray | memoryview) -> int:
        """Some bytes more; how many it were."""
        self._must_be_open()
        before = self._saving.size
        await self._do(self._saving.feed(data))
        return self._saving.size - before

    def _must_be_open(self) -> None:
        if self._over:
            raise ValueError("the writer is closed: its block has ended; a new version needs a new writer")

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
class AsyncArtifactReader(AsyncFace):
    """What `agent.artifacts.open` returns; opened by `async with`, or when it is first read."""

    def __init__(self, engine: Engine, name: str, version: int | None) -> None:
        super().__init__(engine)
        self._which = (name, version)
        self._file: ArtifactReader | None = None

    async def read(self, size: int = -1) -> bytes:
        """So many bytes, or all that are left."""
        return await self._call(lambda file: file.read(size) or b"")

    async def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place: from the beginning, from here, or from the end."""
        return await self._call(lambda file: file.seek(offset, whence))

    async def tell(self) -> int:
        """Where the next byte comes from."""
        return await self._call(lambda file: file.tell())

    async def size(self) -> int:
        """How many bytes it has."""
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
        return await self._read(lambda: call(self._opened()))

    def _opened(self) -> ArtifactReader:
        if self._file is None:
            self._file = artifacts.opened(self._engine, *self._which)
        return self._file


# unasync: end
