"""Converts numpy arrays to bytes and back, block by block, so that they are in memory once."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from ..errors import CorruptValue, NotStorable, UnknownType
from . import tensors

if TYPE_CHECKING:
    import io

    import numpy

    Array = numpy.ndarray[Any, Any]

ALONE: Final = "array"
"""The name of an array that was saved without one."""

_BLOCK_BYTES: Final = 1024 * 1024


def is_array(value: object) -> bool:
    """Return whether a value is a plain numpy array. Subclasses are excluded: a masked array would lose its mask."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and hasattr(numpy, "ndarray") and type(value) in (numpy.ndarray, numpy.memmap)


def blocks_of(arrays: Mapping[str, Array]) -> tuple[int, Iterator[Any]]:
    """Return the size of the encoded arrays, and their blocks."""
    for name, array in arrays.items():
        _must_be_storable(name, array)
    places = tensors.laid_out({name: (array.dtype.str, array.shape) for name, array in arrays.items()})
    header = tensors.write_header(places)
    return len(header) + sum(it.end - it.begin for it in places), _blocks(header, arrays, places)


def _blocks(header: bytes, arrays: Mapping[str, Array], places: list[tensors.Tensor]) -> Iterator[Any]:
    yield header
    for it in sorted(places, key=lambda it: it.begin):
        array = arrays[it.name]
        if array.flags.c_contiguous:
            yield array.reshape(-1).view("u1").data if array.size else b""
            continue
        step = max(_BLOCK_BYTES // array.itemsize, 1)
        for start in range(0, array.size, step):
            yield array.flat[start : start + step].tobytes()


def _instead(array: Array) -> str:
    """Suggest a type to convert to, if a suitable one exists."""
    native = str(array.dtype.newbyteorder("<").str)
    near = native if native in tensors.TYPES.values() else {"c": "<c8", "f": "<f8"}.get(array.dtype.kind)
    return f"convert it: array.astype({near!r}), or " if near else ""


def _must_be_storable(name: object, array: Array) -> None:
    if not isinstance(name, str) or name == "__metadata__" or not _is_text(name):
        raise NotStorable(f"the name of an array must be a str other than '__metadata__', not {name!r}")
    if array.dtype.str not in tensors.TYPES.values():
        raise NotStorable(
            f"array {name!r} has dtype {array.dtype!s} ({array.dtype.str}), which safetensors does not support",
            hint=_instead(array) + "store it in agent.state or agent.checkpoint",
        )


def _is_text(name: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in name)


def read_arrays(file: io.RawIOBase, size: int) -> dict[str, Array]:
    """Read the arrays of a file, each into its own memory."""
    numpy = _import_numpy()
    length = tensors.header_bytes(file.read(tensors.PREFIX_BYTES) or b"", size)
    places = tensors.read_header(file.read(length) or b"", size - tensors.PREFIX_BYTES - length)
    found: dict[str, Array] = {}
    for it in sorted(places, key=lambda it: it.begin):
        array = numpy.empty(it.shape, it.dtype)
        file.readinto(array.reshape(-1).view("u1"))
        if it.dtype == "|b1" and array.size and array.view("u1").max() > 1:
            raise CorruptValue(f"the stored array {it.name!r} contains an invalid boolean")
        found[it.name] = array
    file.read(1)  # reading to the end compares the whole with its digest
    return {it.name: found[it.name] for it in places}


def _import_numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise UnknownType(
            "the artifact holds numpy arrays, and numpy is not installed",
            hint="`pip install perdure[numpy]`, or load it to a file with to=",
        ) from None
    return numpy
