"""Reads and writes the safetensors layout, which other programs can read, without depending on that package.

A file starts with eight bytes for the length of the header. The header is JSON with the type, shape and offsets of each
array. The arrays follow without gaps. Nothing in a header is trusted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from typing import Any, Final

import msgspec

from ..errors import CorruptValue, NotStorable, UnknownType
from ..limits import TENSOR_HEADER_BYTES_MAX

PREFIX_BYTES: Final = 8
_ALIGN: Final = 8
_METADATA: Final = "__metadata__"
_DIMENSIONS_MAX: Final = 32

TYPES: Final = {
    "BOOL": "|b1",
    "U8": "|u1",
    "I8": "|i1",
    "U16": "<u2",
    "I16": "<i2",
    "F16": "<f2",
    "U32": "<u4",
    "I32": "<i4",
    "F32": "<f4",
    "U64": "<u8",
    "I64": "<i8",
    "F64": "<f8",
    "C64": "<c8",
}
"""numpy types by their safetensors names."""

_NAMES: Final = {dtype: name for name, dtype in TYPES.items()}
_FOREIGN: Final = frozenset(
    {"BF16", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E5M2FNUZ", "F8_E4M3FNUZ", "F4", "F6_E2M3", "F6_E3M2"}
)


class Tensor(msgspec.Struct, frozen=True):
    """One array: its numpy type, and its offsets after the header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def item_bytes(dtype: str) -> int:
    """Return the size of one number."""
    return int(dtype[2:])


def laid_out(arrays: Mapping[str, tuple[str, tuple[int, ...]]]) -> list[Tensor]:
    """Assign offsets to arrays, widest numbers first, so that all are aligned. Keeps the order of names."""
    places: dict[str, Tensor] = {}
    at = 0
    for name in sorted(arrays, key=lambda name: -item_bytes(arrays[name][0])):
        dtype, shape = arrays[name]
        end = at + prod(shape) * item_bytes(dtype)
        places[name] = Tensor(name, dtype, shape, at, end)
        at = end
    return [places[name] for name in arrays]


def write_header(tensors: list[Tensor]) -> bytes:
    """Return the bytes before the arrays."""
    table = {
        it.name: {"dtype": _NAMES[it.dtype], "shape": it.shape, "data_offsets": (it.begin, it.end)} for it in tensors
    }
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % _ALIGN)
    if len(text) > TENSOR_HEADER_BYTES_MAX:
        raise NotStorable(f"the names and shapes of the arrays take more than {TENSOR_HEADER_BYTES_MAX} bytes")
    return len(text).to_bytes(PREFIX_BYTES, "little") + text


def header_bytes(prefix: bytes, size: int) -> int:
    """Return the length of the header of a file of this size."""
    length = int.from_bytes(prefix, "little")
    if len(prefix) < PREFIX_BYTES or not 2 <= length <= min(TENSOR_HEADER_BYTES_MAX, size - PREFIX_BYTES):
        raise CorruptValue("the header of the stored arrays has an impossible length")
    return length


def read_header(text: bytes, size: int) -> list[Tensor]:
    """Parse a header. The arrays must fill the `size` bytes after it without gaps or overlaps."""
    try:
        table = json.loads(text.decode("utf-8"), object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as error:
        raise CorruptValue(f"the header of the stored arrays cannot be read: {error}") from None
    if not isinstance(table, dict):
        raise CorruptValue("the header of the stored arrays is not a JSON object")
    tensors = [_tensor(name, entry) for name, entry in table.items() if name != _METADATA]
    at = 0
    for it in sorted(tensors, key=lambda it: (it.begin, it.end)):
        if it.begin != at:
            raise CorruptValue(f"the stored array {it.name!r} begins at {it.begin}, but the previous one ends at {at}")
        at = it.end
    if at != size:
        raise CorruptValue(f"the stored arrays end at {at}, but there are {size} bytes")
    return tensors


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name occurs twice")
    return table


def _tensor(name: str, entry: object) -> Tensor:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise CorruptValue(f"the stored array {name!r} has an invalid description")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(kind, str) or kind not in TYPES:
        known = isinstance(kind, str) and kind in _FOREIGN
        hint = 'numpy lacks this type: save the file with load(name, to="model.safetensors") for a program that has it'
        raise UnknownType(f"the stored array {name!r} has type {kind!r}", hint=hint if known else "")
    if not _natural(shape) or len(shape) > _DIMENSIONS_MAX or not _natural(offsets) or len(offsets) != 2:
        raise CorruptValue(f"the stored array {name!r} has an impossible shape or offset")
    begin, end = offsets
    if end - begin != prod(shape) * item_bytes(TYPES[kind]):
        raise CorruptValue(f"the shape of the stored array {name!r} does not match its {end - begin} bytes")
    return Tensor(name, TYPES[kind], tuple(shape), begin, end)


def _natural(numbers: object) -> bool:
    return isinstance(numbers, list) and all(type(number) is int and 0 <= number < 1 << 62 for number in numbers)
