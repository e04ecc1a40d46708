"""Reads an artifact from the store as a file, and verifies it while reading."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from perdure.data.artifacts.arrays import ALONE, read_arrays
from perdure.data.artifacts.upload import SaveProgress
from perdure.errors import ArtifactDamaged, ArtifactNotFound, CorruptValue, JournalDamaged, WrongValue
from perdure.journal.trees.streams import StoredStream
from perdure.platform.files import atomic_write
from perdure.store.base import Store

if TYPE_CHECKING:
    from perdure.records import ArtifactSaved


class ArtifactReader(io.RawIOBase):
    """One version of an artifact as a readable file: `read`, `readinto`, `seek`, `tell`.

    >>> with agent.artifacts.open("model") as file:
    ...     head = file.read(100)

    Only a few chunks are in memory at a time. Each chunk is checked against its id, and a read from beginning to end
    also checks the digest of the whole. `for block in file` yields blocks of bytes, not lines. For lines of text, wrap
    it: `io.TextIOWrapper(io.BufferedReader(file))`.
    """

    def __init__(self, store: Store, saved: ArtifactSaved) -> None:
        super().__init__()
        self._store = store
        self._saved = saved
        self._position = 0
        self._chunks: Iterator[tuple[int, bytes]] = iter(())
        self._chunk, self._chunk_at = b"", -1
        self._digest, self._digested = sha256(), 0
        try:
            self._stream = StoredStream(store, saved.value, saved.size)
        except CorruptValue as error:
            raise self._damage_error(0, error) from error

    @property
    def name(self) -> str:
        """The name of the artifact."""
        return self._saved.name

    @property
    def version(self) -> int:
        """The version of the artifact."""
        return self._saved.version

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self._saved.size

    def readable(self) -> bool:
        """Return True: the file can be read."""
        return True

    def seekable(self) -> bool:
        """Return True: the file can be positioned."""
        return True

    def tell(self) -> int:
        """Return the position of the next byte."""
        self._must_be_open()
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position, relative to the beginning, the current position or the end."""
        self._must_be_open()
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}
        if whence not in base:
            raise WrongValue(f"whence must be 0, 1 or 2, not {whence!r}")
        if base[whence] + offset < 0:
            raise WrongValue(f"cannot seek before the beginning: {base[whence] + offset}")
        self._position = base[whence] + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as possible. Returns the number of bytes read."""
        self._must_be_open()
        view, filled = memoryview(buffer).cast("B"), 0
        while filled < len(view) and (part := self._part(len(view) - filled)):
            view[filled : filled + len(part)] = part
            filled += len(part)
        return filled

    def readall(self) -> bytes:
        """Return all remaining bytes."""
        self._must_be_open()
        whole = io.BytesIO()
        if not self._position and self._copy_to(whole):
            self._position = self.size
            return whole.getvalue()
        whole.seek(0)
        whole.truncate()
        for block in self:
            whole.write(block)
        return whole.getvalue()

    def pour(self, file: BinaryIO, progress: SaveProgress | None = None) -> None:
        """Write everything to a new file that nobody sees before it is complete."""
        if self._copy_to(file, progress):
            return
        file.seek(0)
        file.truncate()
        for block in self:
            file.write(block)

    def _copy_to(self, file: BinaryIO, progress: SaveProgress | None = None) -> bool:
        """Copy the whole and compare its digest. False if it differs: reading chunk by chunk tells where."""
        digest, copied = sha256(), 0
        try:
            for chunk in self._stream.unverified_chunks():
                digest.update(chunk)
                copied += file.write(chunk)
                if progress is not None:
                    progress(copied, self.size)
        except (JournalDamaged, CorruptValue):
            return False
        return digest.digest() == self._saved.digest

    def __iter__(self) -> Iterator[bytes]:
        """Return the reader, which iterates over blocks."""
        self._must_be_open()
        return self

    def __next__(self) -> bytes:
        """Return the rest of the current chunk."""
        part = self._part(self.size)
        if not part:
            raise StopIteration
        return bytes(part)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} version {self.version}, {self._position} of {self.size} bytes>"

    def _must_be_open(self) -> None:
        if self.closed:
            raise WrongValue("the reader is closed")

    def _part(self, most: int) -> memoryview:
        """Return bytes of the current chunk from the current position."""
        if self._position >= self.size or not most:
            return memoryview(b"")
        if not self._chunk_at <= self._position < self._chunk_at + len(self._chunk):
            self._go_on()
        start = self._position - self._chunk_at
        part = memoryview(self._chunk)[start : start + most]
        self._position += len(part)
        return part

    def _go_on(self) -> None:
        """Fetch the chunk at the current position. A sequential read continues with the next chunk."""
        if not self._chunk or self._position != self._chunk_at + len(self._chunk):
            self._chunks = self._stream.chunks(self._position)
        try:
            self._chunk_at, self._chunk = next(self._chunks)
        except (JournalDamaged, CorruptValue) as error:
            raise self._damage_error(self._stream.at, error) from error
        if self._digested == self._chunk_at:
            self._digest.update(self._chunk)
            self._digested += len(self._chunk)
            if self._digested == self.size and self._digest.digest() != self._saved.digest:
                raise self._damage_error(0, CorruptValue("the content does not match the stored digest"))

    def _damage_error(self, offset: int, error: JournalDamaged | CorruptValue) -> ArtifactDamaged | ArtifactNotFound:
        saved = self._saved
        which = f"artifact {saved.name!r}, version {saved.version}"
        if not self._store.read("get_artifact", (saved.owner, saved.name, saved.version)):
            return ArtifactNotFound(f"{which} was deleted while it was read")
        return ArtifactDamaged(
            f"{which} cannot be read from byte {offset}: {error.message}",
            name=saved.name, version=saved.version, offset=offset,
        )  # fmt: skip


def value_of(store: Store, saved: ArtifactSaved) -> Any:
    """Return what was saved: bytes, an array or a dict of arrays."""
    reader = ArtifactReader(store, saved)
    if saved.kind not in ("array", "arrays"):
        return reader.readall()
    arrays = read_arrays(reader)
    return arrays if saved.kind == "arrays" else arrays[ALONE]


def export(store: Store, saved: ArtifactSaved, path: Path, progress: SaveProgress | None = None) -> Path:
    """Write a version to a file atomically."""
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"no such folder: {str(path.parent)!r}")
    if path.exists() and not path.is_file():
        with path.open("wb") as device:  # a device or a pipe must not be replaced by a file
            for block in (reader := ArtifactReader(store, saved)):
                device.write(block)
                if progress is not None:
                    progress(reader.tell(), saved.size)
        return path
    path = path.resolve()  # follow a link and replace its target
    with atomic_write(path, mode=0o666) as file:
        ArtifactReader(store, saved).pour(file, progress)
    return path
