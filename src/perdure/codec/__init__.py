"""Values and their stored bytes: exact, closed, canonical.

    from perdure import codec

    data = codec.encode({"seat": ("4", "A"), "price": Decimal("99.90")}, "input")
    codec.decode(data)             # the same again: a tuple comes back a tuple

*Exact*: a value comes back with the same types all the way down, or it is refused when it is stored, with
the path to what cannot be (`input.flights[3].seat: ...`). A value that occurs twice comes back as two.

*Closed*: None, bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, range,
dates, times and zones, UUID, Decimal, Fraction, paths, exceptions, numpy arrays and scalars, and what you
register with `stored`. Nothing in stored bytes names code.

*Canonical*: the same bytes for the same value in every process (sets are sorted by their encoding; dicts keep
their order), and only bytes that `encode` writes are read.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from .read import decode
from .registry import register_exception, stored, upcaster
from .tags import ENCODE_SORTED
from .walk import encode

__all__ = ["decode", "digest", "encode", "register_exception", "stored", "upcaster"]


def digest(value: Any, path: str = "value") -> bytes:
    """Sixteen bytes that stand for a value, the same in every process; the order of text keys does not matter.

    >>> digest({"a", "b"}) == digest({"b", "a"})
    True
    """
    return blake2b(encode(value, path, ENCODE_SORTED), digest_size=16).digest()
