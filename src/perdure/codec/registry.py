"""The closed registry of your own types: a name and a version for each class.

Stored bytes hold the name, never a module or a class, and the name is only ever a key of the
dictionaries here. So a class can be renamed and moved, and bytes can name no code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from .. import limits, locks
from ..errors import NotStorable, UnknownType
from . import exceptions
from .fields import Shape
from .refusals import type_name
from .shapes import shape_of

AnyType = TypeVar("AnyType", bound=type[Any])
Fields: TypeAlias = dict[str, Any]
Upcaster: TypeAlias = Callable[[Fields], Mapping[str, Any]]
AnyUpcaster = TypeVar("AnyUpcaster", bound=Upcaster)


class Entry(NamedTuple):
    """A registered class; `shape` is None for an exception that is stored as one."""

    name: str
    version: int
    cls: type
    shape: Shape | None


_by_name: Final[dict[str, Entry]] = {}
_by_class: Final[dict[type, Entry]] = {}
quick: Final[dict[str, Entry]] = {}
"""By name, those whose fields need no look before an object is made of them."""
_upcasters: Final[dict[tuple[str, int], Upcaster]] = {}
_exception_bases: Final[set[type[Exception]]] = set()
_lock: Final = locks.rlock()


def stored(name: str, version: int = 1) -> Callable[[AnyType], AnyType]:
    """Let instances of a class be stored, under a name that stays when the class is renamed or moved.

        @perdure.stored("flight")
        @dataclass(frozen=True)
        class Flight:
            number: str
            price: Decimal

    For dataclasses, attrs classes, pydantic models, msgspec Structs, Enums, NamedTuples, exceptions, and any
    class with the two methods `__perdure_store__(self) -> dict[str, Any]` and
    `__perdure_load__(cls, fields) -> instance` (a classmethod). When the fields change, raise the version
    and say with `upcaster` how older ones become the new. A field that was added with a default needs
    neither.

    Instances come back with the same field values, and without `__init__` and `__post_init__` or validators
    being called: what was stored has been through them. (msgspec offers no such way: `__post_init__` of a
    Struct runs.)
    """
    _check_name(name, version)

    def register(cls: AnyType) -> AnyType:
        if not isinstance(cls, type):
            raise NotStorable(f"@perdure.stored({name!r}) is for classes, not {cls!r}")
        if cls in exceptions.CLOSED_NAMES:
            raise NotStorable(f"{type_name(cls)} can be stored as it is")
        _add(Entry(name, version, cls, _shape(cls)))
        return cls

    return register


def register(name: str, cls: type, shape: Shape) -> None:
    """Let instances of somebody else's class be stored, in a way that is ours."""
    _check_name(name, 1)
    entry = Entry(name, 1, cls, shape)
    _add(entry)
    if shape.quick:
        quick[name] = entry


def upcaster(name: str, from_version: int) -> Callable[[AnyUpcaster], AnyUpcaster]:
    """Say how stored fields of one version become those of the next.

        @perdure.stored("flight", version=2)
        @dataclass(frozen=True)
        class Flight:
            number: str
            cents: int

        @perdure.upcaster("flight", from_version=1)
        def price_in_cents(fields):
            return {"number": fields["number"], "cents": int(fields["price"] * 100)}

    The function gets a dict of its own and returns the new one. Older versions go through several, one by
    one. An Enum has the single field `name` (a Flag: `value`), an exception `args` and `attributes`.
    """
    _check_name(name, from_version)

    def register(function: AnyUpcaster) -> AnyUpcaster:
        with _lock:
            known = _upcasters.get((name, from_version))
            if known is not None and not _same_place(known, function):
                raise NotStorable(f"{name!r} has two upcasters from version {from_version}")
            _upcasters[name, from_version] = function
        return function

    return register


def register_exception(*types: type[BaseException]) -> None:
    """Let exceptions of these types, and of types derived from them, come back as themselves.

    What `raises=(...)` of a step calls. They are stored under their module and name; `stored` gives them a
    name that may stay when they move. Builtin exceptions and those of Perdure need neither. Left out are
    those that are no `Exception`, and a few of extension modules that nobody else can make: they come back as
    `StepFailed`.
    """
    for kind in types:
        if not issubclass(kind, BaseException):
            raise NotStorable(f"only types of exceptions can be listed here, not {kind!r}")
        if kind in exceptions.CLOSED_NAMES or not issubclass(kind, Exception) or not exceptions.rebuilds(kind):
            continue
        with _lock:
            _exception_bases.add(kind)
            if kind not in _by_class:
                _add(Entry(exceptions.place_of(kind), 1, kind, None))


def entry_of(cls: type) -> Entry | None:
    """The entry of a class, if it is registered; derived exceptions are with their base."""
    entry = _by_class.get(cls)
    if entry is None and issubclass(cls, Exception) and any(issubclass(cls, base) for base in _exception_bases):
        _add_derived()
        entry = _by_class.get(cls)
    return entry


def entry_named(name: str) -> Entry | None:
    """The entry of a stored name, if somebody has registered it in this process."""
    entry = _by_name.get(name)
    if entry is None and _exception_bases:
        _add_derived()
        entry = _by_name.get(name)
    return entry


def bring_forward(entry: Entry, version: int, fields: Fields) -> Fields:
    """Fields of a stored version as those of the registered one."""
    if version > entry.version:
        raise UnknownType(
            f"{entry.name!r} was stored with version {version}; this process knows version {entry.version}",
            hint="upgrade the code: it is older than the data",
        )
    for step in range(version, entry.version):
        function = _upcasters.get((entry.name, step))
        if function is None:
            write = f'write @perdure.upcaster("{entry.name}", {step})'
            raise UnknownType(
                f"{entry.name!r} was stored with version {version}, and is now version {entry.version}",
                hint=f"nothing leads from version {step} to {step + 1}: {write}",
            )
        fields = _upcast(function, entry.name, step, fields)
    return fields


def _upcast(function: Upcaster, name: str, version: int, fields: Fields) -> Fields:
    try:
        made: Any = function(fields)
        raised = None if made is None else dict(made)
    # The user's code: whatever it raises, the value cannot be read, and the reader must learn why.
    except Exception as error:
        raise UnknownType(
            f"the upcaster of {name!r} from version {version} raised {type(error).__name__}: {error}",
            hint="see the cause above",
        ) from error
    if raised is None:
        text = f"the upcaster of {name!r} from version {version} returned None"
        raise UnknownType(text, hint="let it return the fields, also when it has changed them in place")
    if not all(type(key) is str for key in raised):
        raise UnknownType(f"the upcaster of {name!r} from version {version} returned keys that are no names")
    return raised


def _add(entry: Entry) -> None:
    with _lock:
        known, other = _by_name.get(entry.name), _by_class.get(entry.cls)
        if known is not None and not _same_place(known.cls, entry.cls):
            raise NotStorable(
                f"{entry.name!r} is the name of {type_name(known.cls)}, and now of {type_name(entry.cls)}",
                hint="each class needs a name of its own",
            )
        if other is not None and other.name != entry.name:
            raise NotStorable(f"{type_name(entry.cls)} is registered as {other.name!r}, and now as {entry.name!r}")
        # The class of before a reload stays known too: instances of it may still be around.
        _by_name[entry.name] = _by_class[entry.cls] = entry


def _add_derived() -> None:
    """Register the exceptions that have been derived from registered ones since the last look."""
    with _lock:
        for base in list(_exception_bases):
            for kind in _derived(base):
                # Named apart, or made by the same code twice (the newer one counts), or not to be rebuilt.
                if kind not in _by_class and exceptions.rebuilds(kind):
                    _by_class[kind] = _by_name[exceptions.place_of(kind)] = Entry(
                        exceptions.place_of(kind), 1, kind, None
                    )


def _derived(base: type[Exception]) -> Iterator[type[Exception]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _derived(kind)


def _shape(cls: type) -> Shape | None:
    shape = shape_of(cls)
    if shape is None and issubclass(cls, Exception):
        exceptions.check_rebuilds(cls)
        return None
    if shape is None:
        raise NotStorable(
            f"{type_name(cls)} has no fields that Perdure knows of",
            hint="put @perdure.stored above @dataclass, or define __perdure_store__ and __perdure_load__",
        )
    return shape


def _check_name(name: str, version: int) -> None:
    if type(name) is not str or not 0 < len(name) <= limits.NAME_CHARACTERS_MAX:
        raise NotStorable(f"a stored name is a text of 1 to {limits.NAME_CHARACTERS_MAX} characters, not {name!r}")
    if type(version) is not int or version < 1:
        raise NotStorable(f"the version of {name!r} is a number from 1, not {version!r}")


def _same_place(one: Any, other: Any) -> bool:
    """Whether the same lines made both: a reloaded module, or a cell of a notebook run again."""
    return bool(one.__module__ == other.__module__ and one.__qualname__ == other.__qualname__)
