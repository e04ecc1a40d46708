"""The layout of safetensors: arrays by name, which other programs read too. Written and read here without that package.

Eight bytes with the length of a header; the header, JSON, with the type, the shape and the place of each array; then
the arrays, one behind the other, without gaps. Nothing in a header is trusted.
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
"""What safetensors calls the types of numpy."""

_NAMES: Final = {dtype: name for name, dtype in TYPES.items()}
_FOREIGN: Final = frozenset(
    {"BF16", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E5M2FNUZ", "F8_E4M3FNUZ", "F4", "F6_E2M3", "F6_E3M2"}
)


class Tensor(msgspec.Struct, frozen=True):
    """One array: its type as numpy writes it, and where it is behind the header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def item_bytes(dtype: str) -> int:
    """The size of one number."""
    return int(dtype[2:])


def laid_out(arrays: Mapping[str, tuple[str, tuple[int, ...]]]) -> list[Tensor]:
    """Where each goes, by type and shape: in their own order, the widest numbers first, so that all are aligned."""
    places: dict[str, Tensor] = {}
    at = 0
    for name in sorted(arrays, key=lambda name: -item_bytes(arrays[name][0])):
        dtype, shape = arrays[name]
        end = at + prod(shape) * item_bytes(dtype)
        places[name] = Tensor(name, dtype, shape, at, end)
        at = end
    return [places[name] for name in arrays]


def write_header(tensors: list[Tensor]) -> bytes:
    """The bytes before the arrays."""
    table = {
        it.name: {"dtype": _NAMES[it.dtype], "shape": it.shape, "data_offsets": (it.begin, it.end)} for it in tensors
    }
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % _ALIGN)
    if len(text) > TENSOR_HEADER_BYTES_MAX:
        raise NotStorable(f"the names and shapes of the arrays take more than {TENSOR_HEADER_BYTES_MAX} bytes")
    return len(text).to_bytes(PREFIX_BYTES, "little") + text


def header_bytes(prefix: bytes, size: int) -> int:
    """How long the header is, of something of that size."""
    length = int.from_bytes(prefix, "little")
    if len(prefix) < PREFIX_BYTES or not 2 <= length <= min(TENSOR_HEADER_BYTES_MAX, size - PREFIX_BYTES):
        raise CorruptValue("stored arrays have a header of an impossible length")
    return length


def read_header(text: bytes, size: int) -> list[Tensor]:
    """The arrays of a header, in its order; they must fill the `size` bytes behind it without gap or overlap."""
    try:
        table = json.loads(text.decode("utf-8"), object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as error:
        raise CorruptValue(f"stored arrays have a header that cannot be read: {error}") from None
    if not isinstance(table, dict):
        raise CorruptValue("stored arrays have a header that is no table")
    tensors = [_tensor(name, entry) for name, entry in table.items() if name != _METADATA]
    at = 0
    for it in sorted(tensors, key=lambda it: (it.begin, it.end)):
        if it.begin != at:
            raise CorruptValue(f"the stored array {it.name!r} begins at {it.begin}, and the one before it ends at {at}")
        at = it.end
    if at != size:
        raise CorruptValue(f"the stored arrays end at {at}, and there are {size} bytes")
    return tensors


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name stands there twice")
    return table


def _tensor(name: str, entry: object) -> Tensor:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise CorruptValue(f"the stored array {name!r} is described by something else")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(kind, str) or kind not in TYPES:
        known = isinstance(kind, str) and kind in _FOREIGN
        hint = 'numpy has no such numbers: load(name, to="model.safetensors") gives the file to a program that has'
        raise UnknownType(f"the stored array {name!r} is of type {kind!r}", hint=hint if known else "")
    if not _natural(shape) or len(shape) > _DIMENSIONS_MAX or not _natural(offsets) or len(offsets) != 2:
        raise CorruptValue(f"the stored array {name!r} has an impossible shape or place")
    begin, end = offsets
    if end - begin != prod(shape) * item_bytes(TYPES[kind]):
        raise CorruptValue(f"the shape of the stored array {name!r} does not fit its {end - begin} bytes")
    return Tensor(name, TYPES[kind], tuple(shape), begin, end)


def _natural(numbers: object) -> bool:
    return isinstance(numbers, list) and all(type(number) is int and 0 <= number < 1 << 62 for number in numbers)
