"""Values as JSON. Types that JSON lacks become an object with one key that begins with `$`.

| Python | JSON |
|---|---|
| None, bool, int, float, str, list, dict with str keys | as usual |
| int beyond 2**53, nan, inf | `{"$int": "9007199254740993"}`, `{"$float": "nan"}` |
| bytes, bytearray | `{"$bytes": "aGk="}`, base64 |
| datetime, date, time, timedelta | `{"$datetime": "2026-11-18T06:25:17Z"}`, `$date`, `$time`, `{"$seconds": 1.5}` |
| Decimal, UUID | `{"$decimal": "1.10"}`, `{"$uuid": "..."}` |
| tuple, set, frozenset | `{"$tuple": [...]}`, `{"$set": [...]}`, `{"$frozenset": [...]}` |
| dict with other keys, or with one key that begins with `$` | `{"$map": [[key, value], ...]}` |
| anything else | `{"$repr": "..."}`, which is read-only |
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from perdure.errors import RequestInvalid, WrongValue
from perdure.values.limits import VALUE_DEPTH_MAX

EXACT_INTEGER_MAX = 2**53 - 1
"""Larger integers would lose digits in JavaScript."""

INTEGER_DIGITS_MAX = 4000


def to_json(value: Any) -> Any:
    """Convert a value to what JSON can express.

    >>> to_json({"at": b"hi", "n": 1})
    {'at': {'$bytes': 'aGk='}, 'n': 1}
    """
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if kind is str:
        return value if value.isascii() else _text(value)
    if kind is int:
        return value if -EXACT_INTEGER_MAX <= value <= EXACT_INTEGER_MAX else {"$int": _digits(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if kind is list:
        return [to_json(item) for item in value]
    if isinstance(value, Mapping):
        return _mapping(value)
    return _special(value)


def _text(value: str) -> Any:
    try:
        value.encode()
    except UnicodeEncodeError:
        return {"$text": base64.b64encode(value.encode("utf-8", "surrogatepass")).decode()}
    return value


def _digits(value: int) -> str:
    return str(value) if value.bit_length() < 13_000 else hex(value)


def _mapping(value: Mapping[Any, Any]) -> Any:
    plain = all(type(key) is str and key.isprintable() for key in value)
    if plain and not (len(value) == 1 and next(iter(value)).startswith("$")):
        return {key: to_json(item) for key, item in value.items()}
    return {"$map": [[to_json(key), to_json(item)] for key, item in value.items()]}


_WRITERS: tuple[tuple[type | tuple[type, ...], str, Callable[[Any], Any]], ...] = (
    (datetime, "$datetime", datetime.isoformat),
    (date, "$date", date.isoformat),
    (time, "$time", time.isoformat),
    (timedelta, "$seconds", timedelta.total_seconds),
    ((bytes, bytearray), "$bytes", lambda value: base64.b64encode(value).decode()),
    (Decimal, "$decimal", str),
    (UUID, "$uuid", str),
    (tuple, "$tuple", lambda value: [to_json(item) for item in value]),
    (set, "$set", lambda value: [to_json(item) for item in value]),
    (frozenset, "$frozenset", lambda value: [to_json(item) for item in value]),
)


def _special(value: Any) -> Any:
    for kind, tag, write in _WRITERS:
        if isinstance(value, kind):
            return {tag: write(value)}
    if isinstance(value, bool | int | float | str):
        return to_json(next(kind(value) for kind in (bool, int, float, str) if isinstance(value, kind)))
    if isinstance(value, msgspec.Struct):
        return to_json(msgspec.structs.asdict(value))
    return {"$repr": repr(value)[:2000]}


def from_json(data: Any, depth: int = 0) -> Any:
    """Convert parsed JSON to a value; raise `RequestInvalid` for an extended form that is malformed.

    >>> from_json({"$tuple": [1, {"$decimal": "1.10"}]})
    (1, Decimal('1.10'))
    """
    if depth > VALUE_DEPTH_MAX:
        raise RequestInvalid(f"a value is nested more than {VALUE_DEPTH_MAX} levels deep")
    if type(data) is list:
        return [from_json(item, depth + 1) for item in data]
    if type(data) is not dict:
        return data
    if len(data) == 1:
        [(tag, content)] = data.items()
        if tag.startswith("$"):
            return _read_special(tag, content, depth + 1)
    return {key: from_json(item, depth + 1) for key, item in data.items()}


def _integer(content: str) -> int:
    if len(content) > INTEGER_DIGITS_MAX:
        raise WrongValue(f"at most {INTEGER_DIGITS_MAX} digits")
    return int(content, 16) if content.startswith(("0x", "-0x")) else int(content)


def _special_float(content: str) -> float:
    if content not in ("nan", "inf", "-inf"):
        raise WrongValue("nan, inf or -inf")
    return float(content)


_TEXT_READERS: dict[str, Callable[[str], Any]] = {
    "$int": _integer,
    "$float": _special_float,
    "$bytes": lambda content: base64.b64decode(content, validate=True),
    "$text": lambda content: base64.b64decode(content, validate=True).decode("utf-8", "surrogatepass"),
    "$datetime": datetime.fromisoformat,
    "$date": date.fromisoformat,
    "$time": time.fromisoformat,
    "$decimal": lambda content: Decimal(content[:INTEGER_DIGITS_MAX]),
    "$uuid": UUID,
}
_LIST_READERS: dict[str, Callable[[list[Any]], Any]] = {
    "$tuple": tuple,
    "$set": set,
    "$frozenset": frozenset,
    "$map": dict,
}


def _read_special(tag: str, content: Any, depth: int) -> Any:
    try:
        if tag in _TEXT_READERS and type(content) is str:
            return _TEXT_READERS[tag](content)
        if tag == "$seconds" and type(content) in (int, float):
            return timedelta(seconds=content)
        if tag in _LIST_READERS and type(content) is list:
            return _LIST_READERS[tag](from_json(content, depth))
    except (ValueError, TypeError, OverflowError, ArithmeticError) as error:
        raise RequestInvalid(f"{tag}: {str(content)[:80]!r} cannot be read: {error}") from error
    raise RequestInvalid(
        f"{tag!r} with {type(content).__name__} content is not an extended value",
        hint='an object with one key that begins with $ is written {"$map": [["$key", ...]]}',
    )


def check_depth(data: Any, most: int) -> None:
    """Raise `RequestInvalid` if parsed JSON is nested too deeply. Not recursive: the data is a stranger's."""
    level, depth = [data], 0
    while level:
        depth += 1
        if depth > most + 1:
            raise RequestInvalid(f"the body is nested more than {most} levels deep")
        level = [
            child
            for parent in level
            if isinstance(parent, dict | list)
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
