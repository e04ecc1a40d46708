"""Values that contain no other values: each is one extension with its payload.

A `Leaf` has both directions: `load(dump(value))` is the value. Reading checks that `dump(load(payload))` is the
payload, so bytes that Perdure would not have written are refused. Dates are in dates.py, numpy in arrays.py.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from msgspec.msgpack import Decoder

from perdure.errors import CorruptValue, UnknownType, ValueTooLarge
from perdure.values import limits
from perdure.values.codec.refusals import Refusal
from perdure.values.codec.tags import ENCODE, ExtensionTag

if TYPE_CHECKING:
    from fractions import Fraction
    from pathlib import PurePath

INTEGER_BYTES_MAX: Final = limits.INTEGER_BITS_MAX // 8 + 1

FRACTION_BITS_MAX: Final = 20_000
"""Limit of each part of a Fraction: reading checks for lowest terms, which is quadratic."""


class Leaf(NamedTuple):
    """How a type is stored. `dump` may raise Refusal; `load` may raise any error for a wrong payload."""

    tag: int
    dump: Callable[[Any], bytes]
    load: Callable[[bytes], Any]


def dump_integer(value: int) -> bytes:
    """Encode an integer: signed, big-endian, with the fewest bytes."""
    if value.bit_length() > limits.INTEGER_BITS_MAX:
        raise Refusal(f"an integer of more than {limits.INTEGER_BITS_MAX} bits", ValueTooLarge)
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def load_integer(payload: bytes) -> int:
    """Decode the integer of `dump_integer`."""
    if len(payload) > INTEGER_BYTES_MAX:
        raise ValueTooLarge(f"a stored integer has more than {limits.INTEGER_BITS_MAX} bits")
    return int.from_bytes(payload, "big", signed=True)


def fits_msgpack(value: int) -> bool:
    """Return whether msgpack can represent the integer itself."""
    return -0x8000_0000_0000_0000 <= value <= 0xFFFF_FFFF_FFFF_FFFF


def _load_big(payload: bytes) -> int:
    value = load_integer(payload)
    if fits_msgpack(value):
        raise CorruptValue("a small integer is stored as a big one")
    return value


def is_utf8(text: str) -> bool:
    """Return whether msgpack can represent the text itself: it has no lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def dump_text(value: str) -> bytes:
    """Encode text as UTF-8 that allows lone surrogates."""
    return value.encode("utf-8", "surrogatepass")


def _load_text(payload: bytes) -> str:
    return payload.decode("utf-8", "surrogatepass")


def _load_surrogates(payload: bytes) -> str:
    value = _load_text(payload)
    if is_utf8(value):
        raise CorruptValue("ordinary text is stored as text with lone surrogates")
    return value


def _dump_complex(value: complex) -> bytes:
    return struct.pack(">dd", value.real, value.imag)


def _load_complex(payload: bytes) -> complex:
    return complex(*struct.unpack(">dd", payload))


_THREE_NUMBERS: Final = Decoder(tuple[bytes, bytes, bytes])
_TWO_NUMBERS: Final = Decoder(tuple[bytes, bytes])


def _dump_range(value: range) -> bytes:
    return ENCODE([dump_integer(part) for part in (value.start, value.stop, value.step)])


def _load_range(payload: bytes) -> range:
    return range(*map(load_integer, _THREE_NUMBERS.decode(payload)))


def _dump_decimal(value: Decimal) -> bytes:
    # The case of the exponent letter depends on the thread's decimal context.
    return str(value).replace("e", "E").encode()


def _load_decimal(payload: bytes) -> Decimal:
    return Decimal(payload.decode("ascii"))


def _dump_fraction(value: Fraction) -> bytes:
    parts = (value.numerator, value.denominator)
    if any(part.bit_length() > FRACTION_BITS_MAX for part in parts):
        raise Refusal(f"a part of a Fraction has more than {FRACTION_BITS_MAX} bits", ValueTooLarge)
    return ENCODE([dump_integer(part) for part in parts])


def _load_fraction(payload: bytes) -> Fraction:
    from fractions import Fraction

    if len(payload) > FRACTION_BITS_MAX // 4 + 16:
        raise ValueTooLarge(f"a part of a stored Fraction has more than {FRACTION_BITS_MAX} bits")
    return Fraction(*map(load_integer, _TWO_NUMBERS.decode(payload)))


_PATHS: Final = {"PosixPath": 1, "WindowsPath": 2, "PurePosixPath": 3, "PureWindowsPath": 4}
"""The first byte of a path. Permanent, like the tags."""


def _dump_path(value: PurePath) -> bytes:
    return bytes([_PATHS[type(value).__name__]]) + dump_text(str(value))


def _load_path(payload: bytes) -> PurePath:
    import pathlib

    kinds = (pathlib.PosixPath, pathlib.WindowsPath, pathlib.PurePosixPath, pathlib.PureWindowsPath)
    if not payload or not 1 <= payload[0] <= len(kinds):
        raise CorruptValue("a stored path has an unknown class")
    kind = kinds[payload[0] - 1]
    try:
        return kind(_load_text(payload[1:]))
    except NotImplementedError:
        raise UnknownType(
            f"a {kind.__name__} was stored, which this platform does not have", hint="store a PurePath"
        ) from None


_ADDRESSES: Final = {
    name: number
    for number, name in enumerate(
        ("IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network", "IPv4Interface", "IPv6Interface"), start=1
    )
}
"""The first byte of an IP address or network. Permanent, like the tags."""


def _dump_address(value: Any) -> bytes:
    return bytes([_ADDRESSES[type(value).__name__]]) + str(value).encode("ascii")


def _load_address(payload: bytes) -> Any:
    import ipaddress

    kinds = {number: getattr(ipaddress, name) for name, number in _ADDRESSES.items()}
    return kinds[payload[0]](payload[1:].decode("ascii"))


BIG_INTEGER: Final = Leaf(ExtensionTag.INTEGER.value, dump_integer, _load_big)
SURROGATES: Final = Leaf(ExtensionTag.TEXT.value, dump_text, _load_surrogates)

LEAVES: Final[dict[type, Leaf]] = {
    bytes: Leaf(ExtensionTag.BYTES.value, bytes, bytes),
    bytearray: Leaf(ExtensionTag.BYTEARRAY.value, bytes, bytearray),
    complex: Leaf(ExtensionTag.COMPLEX.value, _dump_complex, _load_complex),
    range: Leaf(ExtensionTag.RANGE.value, _dump_range, _load_range),
    UUID: Leaf(ExtensionTag.UUID.value, lambda value: value.bytes, lambda payload: UUID(bytes=payload)),
    Decimal: Leaf(ExtensionTag.DECIMAL.value, _dump_decimal, _load_decimal),
}
"""Types whose modules msgspec imports anyway."""

FRACTION: Final = Leaf(ExtensionTag.FRACTION.value, _dump_fraction, _load_fraction)
PATH: Final = Leaf(ExtensionTag.PATH.value, _dump_path, _load_path)
ADDRESS: Final = Leaf(ExtensionTag.ADDRESS.value, _dump_address, _load_address)


def find_loaded_leaves() -> dict[type, Leaf]:
    """Return the types of modules that have been imported: no value of them exists before that."""
    wanted = {("fractions", "Fraction"): FRACTION} | {("pathlib", name): PATH for name in _PATHS}
    wanted |= {("ipaddress", name): ADDRESS for name in _ADDRESSES}
    # A module that is still being imported lacks names; the next call finds them.
    found = {getattr(sys.modules.get(module), name, None): leaf for (module, name), leaf in wanted.items()}
    return {kind: leaf for kind, leaf in found.items() if kind is not None}
