"""Converts numpy arrays to safetensors files and back, through a file on disk: memory holds them once."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from perdure.errors import CorruptValue, NotStorable, UnknownType

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

ALONE: Final = "array"
"""The name of an array that was saved without one."""

_BLOCK_BYTES: Final = 1024 * 1024
_TYPES: Final = "|b1 |u1 |i1 <u2 <i2 <f2 <u4 <i4 <f4 <u8 <i8 <f8 <c8".split()
"""The numpy types that safetensors keeps exactly."""
_ORDER: Final = "order"
"""The metadata of a file that holds the names in the order of the dict."""


def is_array(value: object) -> bool:
    """Return whether a value is a plain numpy array. Subclasses are excluded: a masked array would lose its mask."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and hasattr(numpy, "ndarray") and type(value) in (numpy.ndarray, numpy.memmap)


def require_storable(arrays: Mapping[Any, Array]) -> None:
    """Refuse arrays and names that a safetensors file cannot hold."""
    for name, array in arrays.items():
        if not isinstance(name, str) or name == "__metadata__" or not _is_text(name):
            raise NotStorable(f"the name of an array must be a str other than '__metadata__', not {name!r}")
        if array.dtype.str not in _TYPES:
            raise NotStorable(
                f"array {name!r} has dtype {array.dtype!s} ({array.dtype.str}), which safetensors does not support",
                hint=_suggest_type(array) + "store it in agent.state or agent.checkpoint",
            )


def blocks_of(arrays: Mapping[str, Array]) -> Iterator[bytes]:
    """Yield the blocks of a safetensors file with these arrays."""
    numpy, safetensors = _import_libraries()
    whole = {name: numpy.asarray(array, order="C") for name, array in arrays.items()}
    with TemporaryDirectory(prefix="perdure-arrays-") as folder:
        path = Path(folder, "arrays.safetensors")
        safetensors.numpy.save_file(whole, path, metadata={_ORDER: json.dumps([*arrays])})
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                yield block


def _suggest_type(array: Array) -> str:
    """Suggest a type to convert to, if a suitable one exists."""
    native = str(array.dtype.newbyteorder("<").str)
    near = native if native in _TYPES else {"c": "<c8", "f": "<f8"}.get(array.dtype.kind)
    return f"convert it: array.astype({near!r}), or " if near else ""


def _is_text(name: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in name)


def read_arrays(blocks: Iterable[bytes]) -> dict[str, Array]:
    """Read the arrays of a safetensors file, in the order in which they were saved. Nothing in the file is trusted."""
    _, safetensors = _import_libraries()
    with TemporaryDirectory(prefix="perdure-arrays-") as folder:
        path = Path(folder, "arrays.safetensors")
        with path.open("wb") as copy:
            copy.writelines(blocks)
        try:
            with safetensors.safe_open(path, framework="np") as file:
                found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                order = json.loads((file.metadata() or {}).get(_ORDER, "[]"))
        except (TypeError, AttributeError) as error:
            hint = 'save the file with load(name, to="model.safetensors") for a program that has this type'
            raise UnknownType(f"numpy lacks a type of the stored arrays: {error}", hint=hint) from None
        except (safetensors.SafetensorError, ValueError, RecursionError) as error:
            raise CorruptValue(f"the stored arrays cannot be read: {error}") from None
    if any(array.dtype == bool and array.view("u1").max(initial=0) > 1 for array in found.values()):
        raise CorruptValue("a stored array contains an invalid boolean")
    first = [name for name in order if isinstance(name, str) and name in found] if isinstance(order, list) else []
    return {name: found[name] for name in [*first, *(name for name in found if name not in first)]}


def _import_libraries() -> tuple[Any, Any]:
    try:
        import numpy
        import safetensors.numpy
    except ImportError as error:
        raise UnknownType(
            f"arrays as artifacts need numpy and safetensors, and {error.name} is not installed",
            hint="`pip install perdure[numpy]`, or load it to a file with to=",
        ) from None
    return numpy, safetensors
