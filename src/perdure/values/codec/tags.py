"""The numbers in stored bytes, and the msgpack coders for them.

A value is one msgpack item. None, bool, 64-bit int, float, str, list and dict with str keys are native msgpack.
Everything else is an extension with a number of `ExtensionTag`:

- a *leaf* is one extension that holds its payload: `Ext(Tag.UUID, 16 bytes)`;
- a *structure* is an array whose first element is an empty extension, so that its contents stay ordinary msgpack and
  are never encoded twice: `[Ext(Tag.TUPLE, b""), 1, "two"]`.

The registry is closed: a number that is not listed here is refused.
"""

from __future__ import annotations

from enum import IntEnum
from types import GenericAlias
from typing import Any, Final

from msgspec import Raw
from msgspec.msgpack import Decoder, Encoder, Ext


class ExtensionTag(IntEnum):
    """The type of an extension. The numbers are permanent: add, never change, never reuse."""

    # Leaves
    INTEGER = 1  # an int outside of 64 bits: signed, big-endian, the fewest bytes
    TEXT = 2  # a str with lone surrogates: UTF-8 that allows them
    BYTES = 3  # the bytes
    BYTEARRAY = 4  # the bytes
    COMPLEX = 5  # two big-endian doubles
    RANGE = 6  # [start, stop, step], each like INTEGER
    DATETIME = 10  # [year, month, day, hour, minute, second, microsecond, fold, zone or nil]
    DATE = 11  # [year, month, day]
    TIME = 12  # [hour, minute, second, microsecond, fold, zone or nil]
    TIMEDELTA = 13  # [days, seconds, microseconds]
    ZONE = 14  # [kind, number, text], see dates.py
    UUID = 16  # 16 bytes; is_safe is not part of a UUID's equality and is left out
    DECIMAL = 17  # its text
    FRACTION = 18  # [numerator, denominator], each like INTEGER
    PATH = 19  # one byte for the class, then the text like TEXT
    ADDRESS = 20  # one byte for the class, then the text in ASCII
    NUMPY_ARRAY = 24  # [dtype, shape, "C" or "F", bytes]
    NUMPY_SCALAR = 25  # [dtype, bytes]

    # Structures
    TUPLE = 40  # the elements
    SET = 41  # the elements, sorted by their encoding
    FROZENSET = 42  # as SET
    MAP = 43  # a dict with other keys than str: key, value, key, value, ...
    OBJECT = 44  # name, version, {field: value} and, for pydantic, what is not a field
    ERROR = 45  # name, version, text, [args], {attribute: value}
    COLLECTION = 46  # name, argument or nil, content: see standard_collections.py


STRUCTURES: Final = {int(tag): Ext(int(tag), b"") for tag in ExtensionTag if tag >= ExtensionTag.TUPLE}
"""The empty extensions that open a structure."""

SCALARS: Final = frozenset({type(None), bool, int, float, str})
"""Types that msgpack stores natively; int and str with the exceptions INTEGER and TEXT."""

ENCODE: Final = Encoder().encode
ENCODE_SORTED: Final = Encoder(order="deterministic").encode

_PLAIN_LEVELS: Final = 7
_MIXED_LEVELS: Final = 6


def _nest_type(scalars: Any, innermost: Any, levels: int) -> Any:
    """Return the type of containers `levels` deep. msgspec has no recursive type for them.

    Each level doubles the work of building a decoder: seven take half a millisecond.
    """
    kind = innermost
    for _ in range(levels):
        kind = scalars | GenericAlias(list, kind) | GenericAlias(dict, (str, kind))
    return kind


# Typed decoders, because the untyped one builds maps with any keys: arrays as keys can be forged to collide in Python's
# hash, and 200 KB of them keep it busy for seconds.

_SCALAR: Final[Any] = None | bool | int | float | str

PLAIN: Final[Decoder[Any]] = Decoder(_nest_type(_SCALAR, _SCALAR, _PLAIN_LEVELS))
"""Decodes native msgpack, a few levels deep: the usual case needs no second pass."""

MIXED: Final[Decoder[Any]] = Decoder(_nest_type(_SCALAR | Ext, Raw, _MIXED_LEVELS))
"""Decodes everything, with `Raw` for deeper levels."""
