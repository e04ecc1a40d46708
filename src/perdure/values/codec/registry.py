"""Which class a stored name means. The name is only a key: looking it up runs no code and imports no module.

Keys of the dictionaries here come first: classes with a name of their own (`stored`), and declared ones. Then plain
data classes of modules that the program has imported are found under their module and name. Reading a value of openai,
anthropic or langchain_core may import that package: `sdk_types.py` lists its modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from perdure.errors import NotStorable, UnknownType, WrongType
from perdure.values import limits, locks
from perdure.values.codec import exceptions
from perdure.values.codec.annotations import iterate_annotated_classes
from perdure.values.codec.class_names import class_name, find_class
from perdure.values.codec.fields import Shape
from perdure.values.codec.plain_classes import is_class, is_plain_exception, make_plain_shape
from perdure.values.codec.pydantic_values import is_validation_error, shape_of_value
from perdure.values.codec.refusals import Refusal, has_fields, refuse_unregistered, type_name
from perdure.values.codec.sdk_types import import_package
from perdure.values.codec.shapes import shape_of

AnyType = TypeVar("AnyType", bound=type[Any])
FieldValues: TypeAlias = dict[str, Any]
Upcaster: TypeAlias = Callable[[FieldValues], Mapping[str, Any]]
AnyUpcaster = TypeVar("AnyUpcaster", bound=Upcaster)


class RegisteredClass(NamedTuple):
    """A registered class. `shape` is None for an exception that is stored as one."""

    name: str
    version: int
    cls: type
    shape: Shape | None
    runs_code: bool = True
    """Whether the user has registered it by hand: then default factories may run."""


_by_name: Final[dict[str, RegisteredClass]] = {}
_by_class: Final[dict[type, RegisteredClass]] = {}
quick: Final[dict[str, RegisteredClass]] = {}
"""Entries by name whose fields need no check before an object is made."""
_plain: Final[dict[type, RegisteredClass]] = {}
"""Plain data classes that were stored or read without registration."""
_declared: Final[dict[str, type]] = {}
"""Those that are found under their name wherever they are defined."""
_annotated: Final[WeakKeyDictionary[Callable[..., Any], None]] = WeakKeyDictionary()
"""Functions of steps, in the order of their declaration."""
_upcasters: Final[dict[tuple[str, int], Upcaster]] = {}
_exception_bases: Final[set[type[Exception]]] = set()
_lock: Final = locks.rlock()

_PLAIN_MAX: Final = 10_000
"""Programs that make classes without end must not fill the memory."""

_LANGCHAIN: Final = "langchain/AIMessage"


def stored(name: str, version: int = 1) -> Callable[[AnyType], AnyType]:
    """Register a class for storage, under a name that stays when the class is renamed or moved.

        @perdure.stored("flight")
        @dataclass(frozen=True)
        class Flight:
            number: str
            price: Decimal

    Works for dataclasses, attrs classes, pydantic models, msgspec Structs, Enums, NamedTuples, exceptions, and any
    class with the two methods `__perdure_store__(self) -> dict[str, Any]` and `__perdure_load__(cls, fields) ->
    instance` (a classmethod). When the fields change, raise the version and convert older ones with `upcaster`. A new
    field with a default needs neither.

    Instances come back with the same field values. `__init__`, `__post_init__` and validators are not called again,
    because the stored values have passed them. (Exception: `__post_init__` of a msgspec Struct runs.)
    """
    _check_name(name, version)

    def register(cls: AnyType) -> AnyType:
        if not isinstance(cls, type):
            raise NotStorable(f"@perdure.stored({name!r}) is for classes, not {cls!r}")
        if cls in exceptions.CLOSED_NAMES:
            raise NotStorable(f"{type_name(cls)} can be stored as it is")
        _add(RegisteredClass(name, version, cls, _shape(cls)))
        return cls

    return register


def register(name: str, cls: type, shape: Shape) -> None:
    """Register a third-party class with a shape of Perdure."""
    _check_name(name, 1)
    entry = RegisteredClass(name, 1, cls, shape)
    _add(entry)
    if shape.quick:
        quick[name] = entry


def upcaster(name: str, from_version: int) -> Callable[[AnyUpcaster], AnyUpcaster]:
    """Register the conversion of stored fields from one version to the next.

        @perdure.stored("flight", version=2)
        @dataclass(frozen=True)
        class Flight:
            number: str
            cents: int

        @perdure.upcaster("flight", from_version=1)
        def price_in_cents(fields):
            return {"number": fields["number"], "cents": int(fields["price"] * 100)}

    The function receives its own dict and returns the new one. Older versions pass through several upcasters, one by
    one. An Enum has the single field `name` (a Flag: `value`), an exception `args` and `attributes`.
    """
    _check_name(name, from_version)

    def register(function: AnyUpcaster) -> AnyUpcaster:
        with _lock:
            known = _upcasters.get((name, from_version))
            if known is not None and not _is_same_place(known, function):
                raise NotStorable(f"{name!r} has two upcasters from version {from_version}")
            _upcasters[name, from_version] = function
        return function

    return register


def register_exception(*types: type[BaseException]) -> None:
    """Register exception types, so that they and their subclasses come back as themselves.

    The `raises=(...)` option of a step calls this. Exceptions are stored under their module and name; `stored` gives
    them a name that survives a move. Builtin exceptions, those of Perdure and plain ones at the top level of a module
    need neither. Skipped are types that are not an `Exception`, and a few of extension modules that cannot be rebuilt:
    they come back as `StepFailed`.
    """
    for kind in types:
        if not issubclass(kind, BaseException):
            raise NotStorable(f"only exception types can be registered here, not {kind!r}")
        if kind in exceptions.CLOSED_NAMES or not issubclass(kind, Exception) or not exceptions.rebuilds(kind):
            continue
        with _lock:
            _exception_bases.add(kind)
            if kind not in _by_class:
                _add(RegisteredClass(class_name(kind), 1, kind, None))


def entry_of(cls: type) -> RegisteredClass | None:
    """Return the entry of a class, if it is registered. Derived exceptions are registered with their base."""
    entry = _by_class.get(cls)
    if entry is None and issubclass(cls, Exception) and any(issubclass(cls, base) for base in _exception_bases):
        _add_derived()
        entry = _by_class.get(cls)
    return entry


def entry_named(name: str) -> RegisteredClass | None:
    """Return the entry of a stored name, if it is registered in this process."""
    entry = _by_name.get(name)
    if entry is None and _exception_bases:
        _add_derived()
        entry = _by_name.get(name)
    return entry


def exception_to_read(name: str) -> RegisteredClass | None:
    """Return the entry of a stored exception: a registered one, or a plain one of a module that is imported."""
    entry = entry_named(name)
    if entry is not None:
        return entry if entry.shape is None else None
    cls = find_class(name)
    known = cls is not None and (is_validation_error(cls) or is_plain_exception(cls))
    if cls is None or not known or not exceptions.rebuilds(cls):
        return None
    return RegisteredClass(name, 1, cls, None, runs_code=False)


def declare(cls: type) -> None:
    """Make a plain data class known under its module and name, even where its module cannot be searched for it."""
    if not is_class(cls):
        raise WrongType(f"types= must be a list of classes, not {cls!r}")
    if entry_of(cls) is None:
        try:
            _declared[_entry_of_plain(cls).name] = cls
        except Refusal as refusal:
            raise NotStorable(refusal.reason, hint=refusal.hint) from None


def declare_annotations(function: Callable[..., Any]) -> None:
    """Make the data classes in the annotations of a step known. They are looked at when a name is not found."""
    with suppress(TypeError):  # a callable that cannot be referenced weakly has no annotations either
        _annotated[getattr(function, "__func__", function)] = None


def entry_to_store(cls: type) -> RegisteredClass | None:
    """Return the entry of a class whose object is stored; None if it has no fields.

    Plain data classes need no registration. Raises Refusal if a class needs one, or could not be found again.
    """
    entry = entry_of(cls) or _plain.get(cls)
    if entry is not None or issubclass(cls, BaseException) or not (has_fields(cls) or shape_of_value(cls)):
        return entry
    if cls.__module__.startswith("langchain_core.") and _LANGCHAIN not in _by_name:
        learn_langchain()
        return entry_to_store(cls)
    entry = _entry_of_plain(cls)
    if _find_plain(entry.name) is not cls:
        _declare_annotated()
    found = _find_plain(entry.name)
    if found is None or (found is not cls and "<locals>" in entry.name):
        raise Refusal(
            f"{type_name(cls)} cannot be stored: its module does not have it under this name, so nobody could read it "
            "again",
            hint="move it to the top level of the module, or declare it with Agent(types=[...])",
            undeclared=cls,
        )
    _remember(entry)
    return entry


def entry_to_read(name: str) -> RegisteredClass | None:
    """Return the entry of a stored name. None if no class has it; UnknownType if it is not a plain data class."""
    entry = entry_named(name)
    if entry is not None:
        return entry
    cls = _find_plain(name)
    if cls is None:
        _declare_annotated()
        _register_package(name)
        entry, cls = _by_name.get(name), _find_plain(name)
    if cls is None:
        return entry
    if cls not in _plain:
        try:
            _remember(RegisteredClass(class_name(cls), 1, cls, make_plain_shape(cls), runs_code=False))
        except Refusal as refusal:  # told by its stored name: the class itself is not asked for anything
            raise UnknownType(
                f"the stored {name!r} is not a plain data class: {refusal.reason}",
                hint=f'if you trust it, put @perdure.stored("{name}") on the class',
            ) from None
    return _plain[cls]


def _find_plain(name: str) -> type | None:
    return _declared.get(name) or find_class(name)


def _entry_of_plain(cls: type) -> RegisteredClass:
    try:
        return RegisteredClass(class_name(cls), 1, cls, make_plain_shape(cls), runs_code=False)
    except Refusal as refusal:
        raise refuse_unregistered(cls, refusal.reason) from None


def _remember(entry: RegisteredClass) -> None:
    if len(_plain) >= _PLAIN_MAX:
        _plain.clear()
    _plain[entry.cls] = entry


def learn_langchain() -> None:
    """Register the messages of LangChain under their fixed names."""
    _register_package(_LANGCHAIN)


def _register_package(name: str) -> None:
    for known, cls, shape in import_package(name):
        register(known, cls, shape)


def _declare_annotated() -> None:
    for function in list(_annotated):
        for cls in iterate_annotated_classes(function):
            if has_fields(cls) and cls not in _by_class:
                try:
                    _declared[_entry_of_plain(cls).name] = cls
                except Refusal:
                    continue  # its values are refused when they occur


def upgrade_fields(entry: RegisteredClass, version: int, fields: FieldValues) -> FieldValues:
    """Convert fields of a stored version to the registered version."""
    if version > entry.version:
        raise UnknownType(
            f"{entry.name!r} was stored with version {version}, but this process has version {entry.version}",
            hint="upgrade the code: it is older than the data",
        )
    for step in range(version, entry.version):
        function = _upcasters.get((entry.name, step))
        if function is None:
            write = f'write @perdure.upcaster("{entry.name}", {step})'
            raise UnknownType(
                f"{entry.name!r} was stored with version {version}, but the class is now version {entry.version}",
                hint=f"there is no upcaster from version {step} to {step + 1}: {write}",
            )
        fields = _upcast(function, entry.name, step, fields)
    return fields


def _upcast(function: Upcaster, name: str, version: int, fields: FieldValues) -> FieldValues:
    try:
        made: Any = function(fields)
        raised = None if made is None else dict(made)
    # User code: whatever it raises, the value cannot be read, and the reader must learn why.
    except Exception as error:
        raise UnknownType(
            f"the upcaster of {name!r} from version {version} raised {type(error).__name__}: {error}",
            hint="see the cause above",
        ) from error
    if raised is None:
        text = f"the upcaster of {name!r} from version {version} returned None"
        raise UnknownType(text, hint="it must return the fields, even if it changes them in place")
    if not all(type(key) is str for key in raised):
        raise UnknownType(f"the upcaster of {name!r} from version {version} returned keys that are not names")
    return raised


def _add(entry: RegisteredClass) -> None:
    with _lock:
        known, other = _by_name.get(entry.name), _by_class.get(entry.cls)
        if known is not None and not _is_same_place(known.cls, entry.cls):
            raise NotStorable(
                f"{entry.name!r} is already the name of {type_name(known.cls)}, not of {type_name(entry.cls)}",
                hint="each class needs a name of its own",
            )
        if other is not None and other.name != entry.name:
            raise NotStorable(f"{type_name(entry.cls)} is already registered as {other.name!r}, not {entry.name!r}")
        # The class from before a reload stays registered too: instances of it may still exist.
        _by_name[entry.name] = _by_class[entry.cls] = entry


def _add_derived() -> None:
    """Register exceptions that were derived from registered ones since the last call."""
    with _lock:
        for base in list(_exception_bases):
            for kind in _iterate_derived(base):
                # Skips exceptions with their own name and those that cannot be rebuilt. Of two made by the same code,
                # the newer counts.
                if kind not in _by_class and exceptions.rebuilds(kind):
                    _by_class[kind] = _by_name[class_name(kind)] = RegisteredClass(class_name(kind), 1, kind, None)


def _iterate_derived(base: type[Exception]) -> Iterator[type[Exception]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _iterate_derived(kind)


def _shape(cls: type) -> Shape | None:
    shape = shape_of(cls)
    if shape is None and issubclass(cls, Exception):
        exceptions.check_rebuilds(cls)
        return None
    if shape is None:
        raise NotStorable(
            f"{type_name(cls)} has no fields that Perdure can store",
            hint="put @perdure.stored above @dataclass, or define __perdure_store__ and __perdure_load__",
        )
    return shape


def _check_name(name: str, version: int) -> None:
    if type(name) is not str or not 0 < len(name) <= limits.NAME_CHARACTERS_MAX:
        raise NotStorable(f"a stored name must have 1 to {limits.NAME_CHARACTERS_MAX} characters, not {name!r}")
    if type(version) is not int or version < 1:
        raise NotStorable(f"the version of {name!r} must be an int from 1, not {version!r}")


def _is_same_place(one: Any, other: Any) -> bool:
    """Return whether the same code made both: a reloaded module, or a notebook cell run again."""
    return bool(one.__module__ == other.__module__ and one.__qualname__ == other.__qualname__)
