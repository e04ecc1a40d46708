"""Stores numpy arrays and scalars. numpy is imported only once one of its values occurs."""

from __future__ import annotations

import re
import sys
from math import prod
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec.msgpack import Decoder

from perdure.errors import CorruptValue, UnknownType
from perdure.values.codec.leaves import Leaf, dump_text
from perdure.values.codec.refusals import Refusal, type_name
from perdure.values.codec.tags import ENCODE, ExtensionTag

if TYPE_CHECKING:
    import numpy

# Numbers of 1 to 8 bytes (complex: 16), booleans, dates and spans with their unit, text and bytes. Excluded are
# objects, which would be pickled, long doubles, which differ between machines, and records.
_DTYPE: Final = re.compile(r"\|b1|[<>|][iu][1248]|[<>]f[248]|[<>]c(8|16)|[<>][mM]8(\[\d*[a-zA-Z]+\])?|[<>]U\d+|\|S\d+")

_DIMENSIONS_MAX: Final = 32
_CHARACTER_MAX: Final = 0x10FFFF

_ARRAY: Final = Decoder(tuple[str, list[int], str, bytes])
_SCALAR: Final = Decoder(tuple[str, bytes])


def find_loaded_leaves(kind: type) -> dict[type, Leaf]:
    """Return the numpy types, if numpy has been imported: arrays, and `kind` if it is a scalar."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy, "generic"):
        return {}
    # Only numpy's own scalars, not classes derived from them.
    is_scalar = issubclass(kind, numpy.generic) and kind.__module__ == "numpy"
    return {numpy.ndarray: ARRAY} | ({kind: SCALAR} if is_scalar else {})


def _import_numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise UnknownType("a numpy value was stored, and numpy is not installed", hint="`pip install numpy`") from None
    return numpy


def _dtype_text(dtype: numpy.dtype[Any]) -> str:
    text = dtype.str
    if not _DTYPE.fullmatch(text) or dtype.metadata or not dtype.itemsize:
        raise Refusal(f"numpy values of {dtype!s} cannot be stored exactly; use numbers, dates, text or lists")
    return text


def _dump_array(array: numpy.ndarray[Any, Any]) -> bytes:
    if array.ndim > _DIMENSIONS_MAX:
        raise Refusal(f"an array of more than {_DIMENSIONS_MAX} dimensions cannot be stored")
    order: Literal["C", "F"] = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    return ENCODE((_dtype_text(array.dtype), array.shape, order, array.tobytes(order)))


def _load_array(payload: bytes) -> numpy.ndarray[Any, Any]:
    text, shape, order, data = _ARRAY.decode(payload)
    dtype = _find_dtype(text)
    if order not in ("C", "F") or len(shape) > _DIMENSIONS_MAX or any(length < 0 for length in shape):
        raise CorruptValue("a stored array has an impossible shape")
    if prod(shape) * dtype.itemsize != len(data):
        raise CorruptValue("the shape of a stored array does not match its bytes")
    array = _import_numpy().frombuffer(data, dtype)
    _check_items(array)
    return array.reshape(shape, order=order).copy(order=order)  # type: ignore[no-any-return]


def _find_dtype(text: str) -> numpy.dtype[Any]:
    """Return the dtype for a name that this module allows. numpy itself would accept many more."""
    if not _DTYPE.fullmatch(text) or len(text) > 32:
        raise CorruptValue("a stored array has an unknown type")
    dtype: numpy.dtype[Any] = _import_numpy().dtype(text)
    if dtype.str != text or dtype.itemsize == 0:
        raise CorruptValue("a stored array has an unknown type")
    return dtype


def _check_items(array: numpy.ndarray[Any, Any]) -> None:
    """Refuse content that numpy does not check: it crashes on text beyond Unicode."""
    kind, order = array.dtype.kind, array.dtype.byteorder
    if kind == "U" and array.size and array.view(f"{order}u4").max() > _CHARACTER_MAX:
        raise CorruptValue("a stored array contains invalid text")
    if kind == "b" and array.size and array.view("u1").max() > 1:
        raise CorruptValue("a stored array contains an invalid boolean")


def _dump_scalar(value: Any) -> bytes:
    numpy = sys.modules["numpy"]
    # Arrays drop trailing zeros of text, so text is stored separately.
    if type(value) is numpy.str_:
        return ENCODE(("U", dump_text(str.__str__(value))))
    if type(value) is numpy.bytes_:
        return ENCODE(("S", bytes(value)))
    # Scalars have the byte order of their machine. Choose one for all.
    text = _dtype_text(value.dtype.newbyteorder("<"))
    # On most machines C has two 64-bit integer types; only one of them is numpy's int64.
    same = numpy.dtype(text).type
    if same is not type(value):
        raise Refusal(f"{type_name(type(value))} cannot be stored exactly; use {type_name(same)}")
    return ENCODE((text, value.astype(text).tobytes()))


def _load_scalar(payload: bytes) -> Any:
    text, data = _SCALAR.decode(payload)
    if text == "U":
        return _import_numpy().str_(data.decode("utf-8", "surrogatepass"))
    if text == "S":
        return _import_numpy().bytes_(data)
    dtype = _find_dtype(text)
    if dtype.kind in "US" or dtype.itemsize != len(data):
        raise CorruptValue("a stored scalar does not match its type")
    array = _import_numpy().frombuffer(data, dtype)
    _check_items(array)
    return array[0]


ARRAY: Final = Leaf(ExtensionTag.NUMPY_ARRAY.value, _dump_array, _load_array)
SCALAR: Final = Leaf(ExtensionTag.NUMPY_SCALAR.value, _dump_scalar, _load_scalar)
