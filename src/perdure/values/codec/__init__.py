"""Values and their stored bytes: exact, closed, canonical.

    from perdure import codec

    data = codec.encode({"seat": ("4", "A"), "price": Decimal("99.90")}, "input")
    codec.decode(data)             # the same again: a tuple comes back a tuple

*Exact*: a value comes back with the same types all the way down. A value that cannot be stored exactly is refused, with
the path to the offending part (`input.flights[3].seat: ...`). A value that occurs twice comes back as two.

*Closed*: the types are None, bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset and
range; deque, OrderedDict, Counter and defaultdict; dates, times and zones; UUID, Decimal, Fraction and paths;
exceptions; numpy arrays and scalars; plain data classes (pydantic models, dataclasses, attrs classes, Structs, Enums,
NamedTuples); and classes that you register with `stored`. A stored class name is only a key: reading imports nothing
and runs no code of the class.

*Canonical*: the same value gives the same bytes in every process. Sets are sorted by their encoding; dicts keep their
order. Only bytes that `encode` writes are read.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from perdure.values.codec.decoder import decode
from perdure.values.codec.encoder import encode
from perdure.values.codec.registry import register_exception, stored, upcaster
from perdure.values.codec.tags import ENCODE_SORTED

__all__ = ["decode", "digest", "encode", "register_exception", "stored", "upcaster"]


def digest(value: Any, path: str = "value") -> bytes:
    """Return 16 bytes that identify a value, equal in every process. The order of str keys does not matter.

    >>> digest({"a", "b"}) == digest({"b", "a"})
    True
    """
    return blake2b(encode(value, path, ENCODE_SORTED), digest_size=16).digest()
