"""Sources of artifacts: bytes, files, arrays and streams, each read as blocks of bytes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from perdure.data.artifacts.arrays import ALONE, blocks_of, is_array, require_storable
from perdure.errors import NotStorable

BLOCK_BYTES: Final = 1024 * 1024

ByteBlocks = Iterator[Any]
"""Blocks of bytes. Their type is checked when they arrive."""


class ArtifactSource(msgspec.Struct, frozen=True):
    """Data to be saved as an artifact."""

    kind: str
    blocks: Callable[[], ByteBlocks]
    size: int = 0
    """The size in bytes; 0 if it is only known at the end."""
    again: bool = True
    """Whether it can be read a second time."""


def source_of(data: Any) -> ArtifactSource:
    """Return the source for the argument of `save`. Raises `NotStorable`."""
    if isinstance(data, bytes | bytearray | memoryview):
        view = memoryview(data)
        return ArtifactSource("bytes", lambda: iter([view]), view.nbytes)
    if isinstance(data, str | os.PathLike):
        return _source_from_path(Path(data))
    if is_array(data):
        return _source_from_arrays("array", {ALONE: data})
    if isinstance(data, Mapping):
        for name, value in data.items():
            if not is_array(value):
                raise _refusal(f"a dict must hold numpy arrays, but {name!r} is {_kind(value)}", value)
        return _source_from_arrays("arrays", data)
    if hasattr(data, "__array__"):
        raise _refusal(f"an array must be a numpy array, not {_kind(data)}", data)
    if hasattr(data, "read"):
        return ArtifactSource("bytes", lambda: _read_file(data), again=False)
    if isinstance(data, Iterable):
        return ArtifactSource("bytes", lambda: iter(data), again=False)
    kinds = "bytes, a path, a numpy array, a dict of them, a binary file or an iterator of bytes"
    raise _refusal(f"an artifact must be {kinds}, not {_kind(data)}", data)


def _refusal(text: str, value: object) -> NotStorable:
    """Return the error, with a hint how to convert tensors of other packages and masked arrays."""
    if hasattr(value, "__array__"):
        return NotStorable(text, hint="convert it with numpy.asarray(value)")
    return NotStorable(text, hint="store other values with agent.checkpoint or agent.state")


def _kind(value: object) -> str:
    return f"a value of type {type(value).__name__}"


def _source_from_path(path: Path) -> ArtifactSource:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise FileNotFoundError(f"no such file: {str(path)!r}; to save text, pass text.encode()") from None
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder; save an archive of it")
    return ArtifactSource("file", lambda: _read_open_file(path), size)


def _read_open_file(path: Path) -> ByteBlocks:
    with path.open("rb") as file:
        yield from _read_file(file)


def _read_file(file: Any) -> ByteBlocks:
    while block := file.read(BLOCK_BYTES):
        yield block


def _source_from_arrays(kind: str, arrays: Mapping[str, Any]) -> ArtifactSource:
    require_storable(arrays)
    return ArtifactSource(kind, lambda: blocks_of(arrays))


def parts_of(block: object) -> Iterator[memoryview]:
    """Split a block of any size into parts of limited size."""
    if not isinstance(block, bytes | bytearray | memoryview):
        hint = "open the file with 'rb'" if isinstance(block, str) else ""
        raise NotStorable(f"a stream must yield bytes, not {_kind(block)}", hint=hint)
    view = memoryview(block)
    flat = view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
    for start in range(0, len(flat), BLOCK_BYTES):
        yield flat[start : start + BLOCK_BYTES]


def own(part: memoryview) -> bytes:
    """Return the bytes of a part: a copy if its owner could reuse the memory, else the object itself."""
    whole = part.obj
    return whole if type(whole) is bytes and len(whole) == len(part) else bytes(part)
