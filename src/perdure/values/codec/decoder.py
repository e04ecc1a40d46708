"""Decodes bytes to values.

Nothing in the bytes is trusted. Only bytes that `encode` would write are accepted: anything that would not encode to
the same bytes is refused, such as duplicate keys or longer number formats. Whatever the bytes are, the outcome is a
value or one of CorruptValue, UnknownType and ValueTooLarge.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.msgpack import Ext

from perdure.errors import CorruptValue, UnknownType, ValueProblem, ValueTooLarge
from perdure.values import limits
from perdure.values.codec import arrays, dates, exceptions, leaves, registry, standard_collections
from perdure.values.codec.encoder import check_collisions
from perdure.values.codec.fields import fit
from perdure.values.codec.refusals import Refusal, type_name
from perdure.values.codec.tags import ENCODE, MIXED, PLAIN, SCALARS, STRUCTURES, ExtensionTag

_LEAF_ERRORS: Final = (
    *(ValueError, TypeError, ArithmeticError, LookupError),
    *(struct.error, msgspec.MsgspecError, Refusal),
)
"""Errors that constructors of leaves raise for an invalid payload."""

_LEAVES: Final = {
    leaf.tag: leaf
    for leaf in (
        leaves.BIG_INTEGER,
        leaves.SURROGATES,
        leaves.FRACTION,
        leaves.PATH,
        leaves.ADDRESS,
        *leaves.LEAVES.values(),
        *dates.LEAVES.values(),
        arrays.ARRAY,
        arrays.SCALAR,
    )
}


def decode(data: bytes, *, ours: bool = False) -> Any:
    r"""Decode bytes that `encode` made. The value shares no memory with them.

    >>> decode(b"\x81\xa4seat\xa24A")
    {'seat': '4A'}

    `ours` marks bytes that this process has written or read before: their form is not checked again.
    """
    if len(data) > limits.VALUE_BYTES_MAX:
        raise ValueTooLarge(f"the stored value is larger than {limits.VALUE_BYTES_MAX} bytes")
    try:
        value = PLAIN.decode(data)
    except msgspec.ValidationError:
        pass  # not plain, or nested deeper
    except _MALFORMED as error:
        raise _malformed_error(error) from None
    else:
        if not ours and ENCODE(value) != data:
            raise CorruptValue(_OTHER_FORM)
        return value
    return _load(MIXED.decode(data) if ours else _parse(data), 0)


_PLAINLY: Final = ContextVar("perdure_plainly", default=False)
_MALFORMED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, MemoryError)
_OTHER_FORM: Final = "the stored bytes are not in the form that Perdure writes"


def _parse(data: bytes | memoryview) -> Any:
    """Parse the msgpack items of bytes, including Ext and Raw."""
    try:
        node = MIXED.decode(data)
    except _MALFORMED as error:
        raise _malformed_error(error) from None
    # bytes(): comparing with a memoryview goes item by item.
    if ENCODE(node) != bytes(data):
        raise CorruptValue(_OTHER_FORM)
    return node


def _malformed_error(error: Exception) -> ValueProblem:
    if isinstance(error, RecursionError):
        _need_stack(3 * limits.VALUE_DEPTH_MAX)
        return _too_deep_error()
    if isinstance(error, MemoryError):
        return ValueTooLarge("the stored value does not fit into memory")
    return CorruptValue(f"the stored bytes are not a value: {error}")


def _need_stack(frames: int) -> None:
    """Raise RecursionError if the caller's stack is exhausted: then the bytes may be fine."""
    if frames:
        _need_stack(frames - 1)


def _too_deep_error() -> ValueTooLarge:
    return ValueTooLarge(f"the stored value is nested more than {limits.VALUE_DEPTH_MAX} deep")


def _load(node: Any, depth: int) -> Any:
    """Return the value of a msgpack item inside `depth` containers. Lists and dicts are filled in place."""
    kind = type(node)
    if kind in SCALARS:
        return node
    if kind is Ext:
        return _load_leaf(node)
    if kind is Raw:
        return _load(_parse(memoryview(node)), depth)
    if depth >= limits.VALUE_DEPTH_MAX:
        raise _too_deep_error()
    if kind is dict:
        for key, item in node.items():
            if type(item) not in SCALARS:
                node[key] = _load(item, depth + 1)
        return node
    if node and type(node[0]) is Raw:
        node[0] = _parse(memoryview(node[0]))
    if node and type(node[0]) is Ext and node[0].code in STRUCTURES and node[0].data == b"":
        return _STRUCTURES[node[0].code](node, depth + 1)
    return _load_list(node, 0, depth + 1)


def _load_list(node: list[Any], start: int, depth: int) -> list[Any]:
    for number in range(start, len(node)):
        if type(node[number]) not in SCALARS:
            node[number] = _load(node[number], depth)
    return node


def _load_leaf(node: Ext) -> Any:
    leaf = _LEAVES.get(node.code)
    if leaf is None:
        raise _unknown_tag(node.code)
    payload = bytes(node.data)
    try:
        value = leaf.load(payload)
        same = leaf.dump(value) == payload
    except ValueProblem:
        raise
    except _LEAF_ERRORS as error:
        raise CorruptValue(f"a stored {ExtensionTag(node.code).name.lower()} is invalid: {error}") from None
    if not same:
        raise CorruptValue(f"a stored {ExtensionTag(node.code).name.lower()} is not in the form that Perdure writes")
    return value


def _unknown_tag(code: int) -> ValueProblem:
    if code in STRUCTURES:
        return CorruptValue("the stored bytes have a structure in an impossible place")
    return UnknownType(
        f"the stored value contains the unknown type {code}",
        hint="a later version of Perdure may have written it: `pip install -U perdure`",
    )


def _load_tuple(node: list[Any], depth: int) -> tuple[Any, ...]:
    return tuple(_load_list(node, 1, depth)[1:])


def _load_set(node: list[Any], depth: int) -> set[Any]:
    return set(_load_elements(node, depth))


def _load_frozenset(node: list[Any], depth: int) -> frozenset[Any]:
    return frozenset(_load_elements(node, depth))


def _load_elements(node: list[Any], depth: int) -> list[Any]:
    encoded = [ENCODE(item) for item in node[1:]]
    if any(one > other for one, other in pairwise(encoded)):
        raise CorruptValue("a stored set is not sorted")
    items = _load_list(node, 1, depth)[1:]
    _check_distinct(items)
    return items


def _load_map(node: list[Any], depth: int) -> dict[Any, Any]:
    items = _load_list(node, 1, depth)[1:]
    keys, values = items[::2], items[1::2]
    if len(keys) != len(values) or all(type(key) is str and leaves.is_utf8(key) for key in keys):
        raise CorruptValue("a stored dict is not in the form that Perdure writes")
    _check_distinct(keys)
    return dict(zip(keys, values, strict=True))


def _load_collection(node: list[Any], depth: int) -> Any:
    if len(node) != 4:
        raise CorruptValue("a stored collection is not in the form that Perdure writes")
    return standard_collections.rebuilt(*_load_list(node, 1, depth)[1:])


def _check_distinct(keys: list[Any]) -> None:
    try:
        check_collisions(keys)
        distinct = len(set(keys)) == len(keys)
    except Refusal as refusal:
        raise ValueTooLarge(f"a stored dict or set has {refusal.reason}") from None
    # Unhashable keys, or the user's own __hash__ and __eq__, which may raise anything on forged fields.
    except Exception as error:
        raise CorruptValue(f"a stored dict or set has an invalid key: {error}") from error
    if not distinct:
        raise CorruptValue("a stored dict or set has a key twice")


def _load_part(part: Any, depth: int) -> Any:
    """Load a part of an object.

    A part must not be an object itself: it adds no depth, so a chain would be unbounded.
    """
    if type(part) is Raw:
        part = _parse(memoryview(part))
    if type(part) is list and part:
        if type(part[0]) is Raw:
            part[0] = _parse(memoryview(part[0]))
        if type(part[0]) is Ext and part[0].code in (ExtensionTag.OBJECT, ExtensionTag.ERROR):
            raise CorruptValue("a stored object contains another one in place of a part")
    return _load(part, depth - 1)


@contextmanager
def decode_as_dicts() -> Iterator[None]:
    """Within this block, objects of unregistered classes are decoded as dicts, with their name under `class`."""
    token = _PLAINLY.set(True)
    try:
        yield
    finally:
        _PLAINLY.reset(token)


def _load_object(node: list[Any], depth: int) -> Any:
    if len(node) == 4 and type(node[1]) is str and type(node[3]) is dict:
        entry = registry.quick.get(node[1])
        if entry is not None and node[2] == entry.version:
            return _load_quick(entry, node[3], depth)
    if not 4 <= len(node) <= 5:
        raise CorruptValue("a stored object has the wrong number of parts")
    name, version, fields, *rest = (_load_part(part, depth) for part in node[1:])
    _check_parts(name, version, fields, *rest)
    look_up = registry.entry_named if _PLAINLY.get() else registry.entry_to_read
    entry = look_up(name) if version >= 1 else None
    if entry is None or entry.shape is None:
        if _PLAINLY.get():
            return {"class": name, **fields}
        raise _unknown_class(name)
    shape = entry.shape
    if rest and not (rest[0] and shape.has_aside):
        raise CorruptValue(f"the stored {name!r} has more parts than {type_name(entry.cls)} accepts")
    fields = registry.upgrade_fields(entry, version, fields)
    fields = _build_guarded(name, lambda: fit(shape, entry.cls, name, fields, runs_code=entry.runs_code))
    value = _build_guarded(name, lambda: shape.make(entry.cls, fields, rest[0] if rest else {}))
    if type(value) is not entry.cls:
        raise UnknownType(f"the stored {name!r} decodes to {type_name(type(value))}, not {type_name(entry.cls)}")
    return value


def _unknown_class(name: str) -> UnknownType:
    error = UnknownType(f"no class with the stored name {name!r} is known here", hint=_unknown_hint(name))
    error.unknown = name
    return error


def _unknown_hint(name: str) -> str:
    module, colon, _ = name.partition(":")
    if not colon:
        return UnknownType.hint
    return (
        f"import {module} before you read it, or declare the class with Agent(types=[...]); if it was renamed, "
        f'put @perdure.stored("{name}") on it. `perdure show` shows the data without the class'
    )


def _load_quick(entry: registry.RegisteredClass, fields: dict[str, Any], depth: int) -> Any:
    """Load an object of a class that occurs by the thousand."""
    if depth >= limits.VALUE_DEPTH_MAX:
        raise _too_deep_error()
    for name, item in fields.items():
        if type(item) not in SCALARS:
            fields[name] = _load(item, depth)
    shape = entry.shape
    assert shape is not None
    return _build_guarded(entry.name, lambda: shape.make(entry.cls, fields, {}))


def _load_error(node: list[Any], depth: int) -> Exception:
    if len(node) != 6:
        raise CorruptValue("a stored exception has the wrong number of parts")
    name, version, text, args, attributes = (_load_part(part, depth) for part in node[1:])
    _check_parts(name, version, attributes)
    if type(text) is not str or type(args) is not list or version < exceptions.TOLD:
        raise CorruptValue("a stored exception has parts of the wrong type")
    if version <= exceptions.CLOSED:
        kind = exceptions.CLOSED_TYPES.get(name) if version == exceptions.CLOSED else None
        return _make_error(kind, (name, version, text), args, attributes)
    entry = registry.exception_to_read(name)
    if entry is None:
        return _make_error(None, (name, version, text), args, attributes)
    fields = registry.upgrade_fields(entry, version, {"args": args, "attributes": attributes})
    args, attributes = fields.get("args"), fields.get("attributes")
    if type(args) not in (list, tuple) or type(attributes) is not dict:
        raise UnknownType(f"an upcaster of {name!r} did not return the args and attributes of an exception")
    return _make_error(entry.cls, (name, version, text), args, attributes)


def _make_error(kind: Any, told: tuple[str, int, str], args: Any, attributes: dict[str, Any]) -> Exception:
    if kind is None:
        return exceptions.make_step_failed(*told, tuple(args), attributes)
    made: Exception = _build_guarded(told[0], lambda: exceptions.rebuild(kind, tuple(args), attributes))
    return made


def _check_parts(name: Any, version: Any, *mappings: Any) -> None:
    if type(name) is not str or type(version) is not int:
        raise CorruptValue("a stored object has no name and version")
    for mapping in mappings:
        if type(mapping) is not dict or any(type(key) is not str for key in mapping):
            raise CorruptValue(f"the stored {name!r} has no fields")


def _build_guarded(name: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except ValueProblem:
        raise
    # User code, or builtins with forged arguments: whatever they raise, the value cannot be read.
    except Exception as error:
        raise UnknownType(
            f"the stored {name!r} could not be rebuilt: {type(error).__name__}: {error}",
            hint="see the cause above",
        ) from error


_STRUCTURES: Final[dict[int, Callable[[list[Any], int], Any]]] = {
    ExtensionTag.TUPLE: _load_tuple,
    ExtensionTag.SET: _load_set,
    ExtensionTag.FROZENSET: _load_frozenset,
    ExtensionTag.MAP: _load_map,
    ExtensionTag.OBJECT: _load_object,
    ExtensionTag.ERROR: _load_error,
    ExtensionTag.COLLECTION: _load_collection,
}
