"""Encodes values to bytes.

msgspec's encoder silently converts tuples, sets, Decimals and subclasses, so it must only get checked values.
`is_plain` finds the values that can be passed on as they are. `ValueWalk` rebuilds all others from native msgpack types
and extensions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, cast

from msgspec import Raw
from msgspec.msgpack import Ext

from perdure.errors import ValueTooLarge
from perdure.values import limits
from perdure.values.codec import arrays, dates, exceptions, leaves, registry, standard_collections
from perdure.values.codec.class_names import class_name
from perdure.values.codec.fields import Shape
from perdure.values.codec.refusals import Refusal, TooDeep, key_step, refuse_type, type_name
from perdure.values.codec.restored import Restored
from perdure.values.codec.tags import ENCODE, SCALARS, STRUCTURES, ExtensionTag

_TEXT_ONLY: Final = frozenset({str})
_ALWAYS_SAFE: Final = frozenset({type(None), bool, float})
_LONG: Final = 16
"""From this length on, checking types in C is faster than a loop."""

_LEAVES: Final = leaves.LEAVES | dates.LEAVES

COLLISIONS_MAX: Final = 100
"""How many keys of one dict or set may share a hash with another: many of them make it quadratic."""

_LARGE_HINT: Final = "save large data with agent.artifacts, or in a file and store its path"


def encode(value: Any, path: str = "value", write: Callable[[Any], bytes] = ENCODE) -> bytes:
    r"""Return the bytes of a value, or raise an error that names the part that cannot be stored.

    >>> encode({"seat": "4A"}, "input")
    b'\x81\xa4seat\xa24A'
    """
    kind = type(value)
    try:
        if kind in SCALARS or ((kind is dict or kind is list) and is_plain(value)):
            data = write(value)
        else:
            data = write(ValueWalk(SCALARS).dump(value, 0))
    # Lone surrogates and integers beyond 64 bits: the walk has extensions for both.
    except (UnicodeEncodeError, OverflowError):
        data = _encode_carefully(value, path, write)
    except Refusal as refusal:
        raise refusal.to_error(path) from refusal.__cause__
    if len(data) > limits.VALUE_BYTES_MAX:
        raise ValueTooLarge(f"{path}: larger than {limits.VALUE_BYTES_MAX} bytes", hint=_LARGE_HINT)
    return data


def _encode_carefully(value: Any, path: str, write: Callable[[Any], bytes]) -> bytes:
    """Encode a value again with a check of each int and str. Rare enough to start over."""
    try:
        return write(ValueWalk(_ALWAYS_SAFE).dump(value, 0))
    except Refusal as refusal:
        raise refusal.to_error(path) from refusal.__cause__


def is_plain(value: list[Any] | dict[Any, Any]) -> bool:
    """Return whether a container holds only scalars, lists and dicts with str keys, of exactly these types.

    It works level by level, so depth costs no calls. A value that is too deep is not plain: the walk reports where.
    """
    if type(value) is dict and SCALARS.issuperset(map(type, value.values())):
        return _TEXT_ONLY.issuperset(map(type, value))
    dicts: list[Any] = [value] if type(value) is dict else []
    lists: list[Any] = [] if dicts else [value]
    seen = 0
    for _ in range(limits.VALUE_DEPTH_MAX):
        dicts_below: list[Any] = []
        lists_below: list[Any] = []
        for container in dicts:
            if len(container) > _LONG and SCALARS.issuperset(map(type, container.values())):
                if not _TEXT_ONLY.issuperset(map(type, container)):
                    return False
                continue
            for key, item in container.items():
                if type(key) is not str:
                    return False
                kind = type(item)
                if kind in SCALARS:
                    continue
                if kind is dict:
                    dicts_below.append(item)
                elif kind is list:
                    lists_below.append(item)
                else:
                    return False
        for container in lists:
            if len(container) > _LONG and SCALARS.issuperset(map(type, container)):
                continue
            for item in container:
                kind = type(item)
                if kind in SCALARS:
                    continue
                if kind is dict:
                    dicts_below.append(item)
                elif kind is list:
                    lists_below.append(item)
                else:
                    return False
        if not dicts_below and not lists_below:
            return True
        seen += len(dicts_below) + len(lists_below)
        # A list that holds another one twice, and so on, is small in memory but grows exponentially when written.
        if seen > limits.VALUE_BYTES_MAX:
            raise _too_many_refusal()
        dicts, lists = dicts_below, lists_below
    return False


def _too_many_refusal() -> Refusal:
    return Refusal(f"more than {limits.VALUE_BYTES_MAX} elements", ValueTooLarge)


class ValueWalk:
    """One walk over a value. Types in `safe` are taken as they are."""

    __slots__ = ("_left", "_safe")

    def __init__(self, safe: frozenset[type]) -> None:
        self._safe = safe
        self._left = limits.VALUE_BYTES_MAX

    def dump(self, value: Any, depth: int) -> Any:
        """Return the msgpack form of a value inside `depth` containers."""
        kind = type(value)
        if kind in self._safe:
            return value
        if kind is str:
            return value if leaves.is_utf8(value) else Ext(leaves.SURROGATES.tag, leaves.dump_text(value))
        if kind is int:
            return value if leaves.fits_msgpack(value) else Ext(leaves.BIG_INTEGER.tag, leaves.dump_integer(value))
        container = _CONTAINERS.get(kind)
        if container is not None:
            self._spend(len(value), depth)
            return container(self, value, depth + 1)
        leaf = _LEAVES.get(kind)
        if leaf is not None:
            return Ext(leaf.tag, leaf.dump(value))
        return self._walk_other(value, depth)

    def _spend(self, elements: int, depth: int) -> None:
        if depth >= limits.VALUE_DEPTH_MAX:
            raise TooDeep
        self._left -= elements
        if self._left < 0:
            raise _too_many_refusal()

    def _list(self, value: list[Any], depth: int) -> list[Any]:
        if self._safe.issuperset(map(type, value)):
            return value
        return self._elements(value, depth, [])

    def _tuple(self, value: tuple[Any, ...], depth: int) -> list[Any]:
        if self._safe.issuperset(map(type, value)):
            return [STRUCTURES[ExtensionTag.TUPLE], *value]
        return self._elements(value, depth, [STRUCTURES[ExtensionTag.TUPLE]])

    def _elements(self, value: Collection[Any], depth: int, out: list[Any]) -> list[Any]:
        opened = len(out)
        try:
            for item in value:
                out.append(self.dump(item, depth))  # noqa: PERF401 - its length tells the path of a refusal
        except Refusal as refusal:
            refusal.add_step(value, f"[{len(out) - opened}]")
            raise
        return out

    def _walk_set(self, value: set[Any] | frozenset[Any], depth: int) -> list[Any]:
        check_collisions(value)
        try:
            encoded = [ENCODE(self.dump(item, depth)) for item in value]
        except Refusal as refusal:
            refusal.add_step(value, "{*}")
            raise
        opened = STRUCTURES[ExtensionTag.SET if type(value) is set else ExtensionTag.FROZENSET]
        return [opened, *map(Raw, sorted(encoded))]

    def _dict(self, value: dict[Any, Any], depth: int) -> dict[str, Any] | list[Any]:
        if not self._are_names(value):
            return self._map(value, depth)
        if self._safe.issuperset(map(type, value.values())):
            return value
        out: dict[str, Any] = {}
        key = ""
        try:
            for key, item in value.items():
                out[key] = self.dump(item, depth)
        except Refusal as refusal:
            refusal.add_step(value, key_step(key))
            raise
        return out

    def _are_names(self, keys: Iterable[Any]) -> bool:
        """Return whether msgpack can represent the keys itself."""
        if str in self._safe:
            return _TEXT_ONLY.issuperset(map(type, keys))
        return all(type(key) is str and leaves.is_utf8(key) for key in keys)

    def _map(self, value: dict[Any, Any], depth: int) -> list[Any]:
        check_collisions(value)
        out: list[Any] = [STRUCTURES[ExtensionTag.MAP]]
        step = ""
        try:
            for number, (key, item) in enumerate(value.items()):
                step = f".keys()[{number}]"
                out.append(self.dump(key, depth))
                step = key_step(key)
                out.append(self.dump(item, depth))
        except Refusal as refusal:
            refusal.add_step(value, step)
            raise
        return out

    def _collection(self, value: Any, depth: int) -> list[Any]:
        self._spend(0, depth)  # the content is a container of its own
        name, argument = standard_collections.NAMES[type(value)], standard_collections.argument_of(value)
        content: Any
        if isinstance(value, dict):
            content = self._fields(value, dict(value), depth + 1)  # msgspec would miss the order of an OrderedDict
        else:
            content = self._elements(value, depth + 1, [])
        return [STRUCTURES[ExtensionTag.COLLECTION], name, argument, content]

    def _walk_other(self, value: Any, depth: int) -> Any:
        entry = registry.entry_to_store(type(value))
        if entry is not None and entry.shape is not None:
            self._spend(0, depth)
            return self._object(value, entry, entry.shape, depth + 1)
        if isinstance(value, BaseException):
            self._spend(0, depth)
            return self._error(value, entry, depth + 1)
        leaf = _find_leaf(type(value))
        if leaf is None:
            raise refuse_type(type(value))
        return Ext(leaf.tag, leaf.dump(value))

    def _object(self, value: Any, entry: registry.RegisteredClass, shape: Shape, depth: int) -> list[Any]:
        fields = self._fields(value, _take_fields(shape.take, value), depth)
        aside = _take_fields(shape.extra_data, value)
        more = [self._fields(value, aside, depth)] if aside else []
        return [STRUCTURES[ExtensionTag.OBJECT], entry.name, entry.version, fields, *more]

    def _fields(self, whole: Any, fields: dict[str, Any], depth: int) -> Any:
        try:
            return self._dict(fields, depth)
        except Refusal as refusal:
            # In a circular reference the object repeats, not its temporary dict.
            refusal.trail = [(whole if part is fields else part, step) for part, step in refusal.trail]
            raise

    def _error(self, error: BaseException, entry: registry.RegisteredClass | None, depth: int) -> list[Any]:
        name, version = class_name(type(error)), 1
        if type(error) in exceptions.CLOSED_NAMES:
            name, version = exceptions.CLOSED_NAMES[type(error)], exceptions.CLOSED
        elif entry is not None:
            name, version = entry.name, entry.version
        args, attributes = exceptions.parts_of(error)
        parts = [self._part(argument, depth) for argument in args]
        state = {key: self._part(given, depth) for key, given in attributes.items() if leaves.is_utf8(key)}
        if sum(len(memoryview(part)) for part in (*parts, *state.values()) if part is not None) > exceptions.BYTES_MAX:
            args, parts, state = (args,), [None], {}
        if not exceptions.can_return(error) or (None in parts and exceptions.needs_arguments(error, len(parts))):
            version = exceptions.TOLD
        shown = [self._show_part(given, part) for given, part in zip(args, parts, strict=True)]
        more = {key: self._show_part(attributes[key], part) for key, part in state.items()}
        text = self.dump(exceptions.text_of(error), depth)
        return [STRUCTURES[ExtensionTag.ERROR], name, version, text, shown, more]

    def _part(self, value: Any, depth: int) -> Raw | None:
        """Encode an argument of an exception; None if it cannot be stored."""
        left = self._left
        self._left = min(left, exceptions.PART_BYTES_MAX)
        try:
            encoded = ENCODE(self.dump(value, depth))
        except Refusal:
            return None
        finally:
            self._left = left
        return Raw(encoded) if len(encoded) <= exceptions.PART_BYTES_MAX else None

    def _show_part(self, value: Any, part: Raw | None) -> Any:
        return self.dump(exceptions.limited_repr(value), 0) if part is None else part


_CONTAINERS: Final = cast(
    "dict[type, Callable[[ValueWalk, Any, int], Any]]",
    {
        list: ValueWalk._list,
        tuple: ValueWalk._tuple,
        dict: ValueWalk._dict,
        Restored: ValueWalk._dict,
        set: ValueWalk._walk_set,
        frozenset: ValueWalk._walk_set,
        **dict.fromkeys(standard_collections.NAMES, ValueWalk._collection),
    },
)


def _find_leaf(kind: type) -> leaves.Leaf | None:
    """Return a leaf type whose module was imported after this one."""
    found = leaves.find_loaded_leaves() | dates.find_loaded_leaves() | arrays.find_loaded_leaves(kind)
    _LEAVES.update(found)
    return found.get(kind)


def _take_fields(take: Callable[[Any], dict[str, Any]], value: Any) -> dict[str, Any]:
    try:
        return take(value)
    except Refusal:
        raise
    # User code: whatever it raises, the value is refused, with the path to it.
    except Exception as error:
        reason = f"{type_name(type(value))} could not be split into fields: {type(error).__name__}: {error}"
        raise Refusal(reason) from error


def check_collisions(keys: Collection[Any]) -> None:
    """Refuse keys that make a dict or a set quadratic."""
    if len(keys) > COLLISIONS_MAX and len(keys) - len(set(map(hash, keys))) > COLLISIONS_MAX:
        raise Refusal(f"more than {COLLISIONS_MAX} keys share a hash with another", ValueTooLarge)
