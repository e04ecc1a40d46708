"""What can be saved: bytes, files, arrays and streams, each as blocks of bytes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from ..errors import NotStorable
from .arrays import ALONE, blocks_of, is_array

BLOCK_BYTES: Final = 1024 * 1024

Blocks = Iterator[Any]
"""Bytes, if all is well: it is looked at when they come."""


class Source(msgspec.Struct, frozen=True):
    """Something that becomes an artifact."""

    kind: str
    blocks: Callable[[], Blocks]
    size: int = 0
    """0 when it is not known before the end."""
    again: bool = True
    """Whether it can be read a second time."""


def source_of(data: Any) -> Source:
    """What was given to `save`; refused when it is nothing of the kind."""
    if isinstance(data, bytes | bytearray | memoryview):
        view = memoryview(data)
        return Source("bytes", lambda: iter([view]), view.nbytes)
    if isinstance(data, str | os.PathLike):
        return _of_path(Path(data))
    if is_array(data):
        return _of_arrays("array", {ALONE: data})
    if isinstance(data, Mapping):
        for name, value in data.items():
            if not is_array(value):
                raise _refusal(f"a dict of arrays of numpy can be saved, and {name!r} is {_kind(value)}", value)
        return _of_arrays("arrays", data)
    if hasattr(data, "__array__"):
        raise _refusal(f"an array of numpy can be saved, and this is {_kind(data)}", data)
    if hasattr(data, "read"):
        return Source("bytes", lambda: _of_file(data), again=False)
    if isinstance(data, Iterable):
        return Source("bytes", lambda: iter(data), again=False)
    kinds = "bytes, a path, an array of numpy, a dict of them, a binary file or an iterator of bytes"
    raise _refusal(f"an artifact is {kinds}, not {_kind(data)}", data)


def _refusal(text: str, value: object) -> NotStorable:
    """With what to do: tensors of other packages and masked arrays say how they become an array of numpy."""
    if hasattr(value, "__array__"):
        return NotStorable(text, hint="numpy.asarray(value) makes one of it")
    return NotStorable(text, hint="agent.checkpoint and agent.state keep other values")


def _kind(value: object) -> str:
    return f"a value of type {type(value).__name__}"


def _of_path(path: Path) -> Source:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {str(path)!r}; to save a text, give text.encode()") from None
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder; save an archive of it")
    return Source("file", lambda: _of_open(path), size)


def _of_open(path: Path) -> Blocks:
    with path.open("rb") as file:
        yield from _of_file(file)


def _of_file(file: Any) -> Blocks:
    while block := file.read(BLOCK_BYTES):
        yield block


def _of_arrays(kind: str, arrays: Mapping[str, Any]) -> Source:
    size, _ = blocks_of(arrays)
    return Source(kind, lambda: blocks_of(arrays)[1], size)


def parts_of(block: object) -> Iterator[memoryview]:
    """A block of a stream, however large, in parts that are not."""
    if not isinstance(block, bytes | bytearray | memoryview):
        hint = "open the file with 'rb'" if isinstance(block, str) else ""
        raise NotStorable(f"a stream gives bytes, not {_kind(block)}", hint=hint)
    view = memoryview(block)
    flat = view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
    for start in range(0, len(flat), BLOCK_BYTES):
        yield flat[start : start + BLOCK_BYTES]
