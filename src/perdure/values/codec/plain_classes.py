"""Which classes are stored without `@stored`: plain data classes, whose objects are built without running their code.

A name in stored bytes may lead to any class of the program. So the check itself runs no code of the class either: it
reads the dictionaries of the class and its bases, past `__getattribute__` and metaclasses.
"""

from __future__ import annotations

import abc
import builtins
import enum
import sys
from collections.abc import Iterator, Mapping
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType
from typing import Any, Final, Generic, Protocol

import msgspec

from perdure.errors import NotStorable
from perdure.values.codec.fields import Shape
from perdure.values.codec.models import MODEL_SLOTS, PydanticModel, SdkModel
from perdure.values.codec.pydantic_values import shape_of_value, url_base
from perdure.values.codec.refusals import Refusal
from perdure.values.codec.shapes import (
    FlagMember,
    HookedObject,
    NamedTupleObject,
    StructObject,
    shape_of,
)

_METACLASSES: Final = frozenset({type, abc.ABCMeta, enum.EnumMeta, type(Protocol), type(msgspec.Struct)})
_BASES: Final = frozenset({object, tuple, Generic, Protocol, abc.ABC, *msgspec.Struct.__mro__})
_MARKS: Final = ("__dataclass_fields__", "__attrs_attrs__", "__pydantic_fields__", "_fields")
"""What the decorators and base classes of plain data classes leave in the dictionary of a class."""

_SETTERS: Final = ("attr._make", "pydantic.dataclasses", "pydantic._internal._dataclasses")
"""Modules whose decorators write a `__setattr__`."""

_BUILTINS: Final = frozenset(kind for kind in vars(builtins).values() if isinstance(kind, type))
_HOOKS: Final = ("__new__", "__del__", "__setattr__", "__getattribute__", "__dict__", "__slots__")
"""Methods of an exception that building one could call, and slots, which would stay empty."""


class _Empty(Protocol):
    pass


_PROTOCOL_INIT: Final = vars(_Empty)["__init__"]
"""What `typing` gives every Protocol. It refuses to make one, and is never called here."""

_SDKS: Final = frozenset({"openai", "anthropic"})

_namespace: Final[Any] = type.__dict__["__dict__"].__get__
_bases: Final[Any] = type.__dict__["__mro__"].__get__


def namespace_of(cls: type) -> Mapping[str, Any]:
    """Return the dictionary of a class, whatever its metaclass."""
    found: Mapping[str, Any] = _namespace(cls)
    return found


def is_class(value: object) -> bool:
    """Return whether a value is a class. `isinstance` would believe its `__class__`."""
    return type in _bases(type(value))


def make_plain_shape(cls: type) -> Shape:
    """Return the shape of a plain data class. Raises Refusal with the reason for any other class."""
    if not _has_known_metaclass(cls):
        raise Refusal("its metaclass may run code")
    if type(cls) is enum.EnumMeta:
        return _enum_shape(cls)
    value = shape_of_value(cls)
    if value is not None:
        return _pydantic_value(cls, value)
    bases = list(_own_bases(cls))
    for base in bases:
        _check_base(base)  # first, because `shape_of` makes an empty object
    try:
        shape = shape_of(cls) if bases else None
    except NotStorable as error:
        raise Refusal(error.message) from None
    if shape is None:
        raise Refusal("it has no declared fields")
    if isinstance(shape, HookedObject):
        raise Refusal("it has __perdure_store__ and __perdure_load__")
    if isinstance(shape, StructObject) and any("__post_init__" in namespace_of(base) for base in bases):
        raise Refusal("a msgspec Struct cannot be built without its __post_init__")
    _check_fields(cls, shape)
    if type(shape) is PydanticModel and str(cls.__module__).partition(".")[0] in _SDKS:
        return SdkModel()
    return shape


def is_plain_exception(cls: type) -> bool:
    """Return whether an exception can be built without running its code. Its `__init__` is never called."""
    if Exception not in _bases(cls) or not _has_known_metaclass(cls):
        return False
    own = [namespace_of(base) for base in _bases(cls) if base not in _BUILTINS]
    return not any(name in namespace for namespace in own for name in _HOOKS)


def _has_known_metaclass(cls: type) -> bool:
    pydantic = sys.modules.get("pydantic")
    return type(cls) in _METACLASSES or (pydantic is not None and type(cls) is type(pydantic.BaseModel))


def _own_bases(cls: type) -> Iterator[type]:
    """Return the class and its bases, without those of the standard library and of pydantic and msgspec."""
    pydantic = sys.modules.get("pydantic")
    known = {pydantic.BaseModel, pydantic.RootModel} if pydantic is not None else set()
    return (base for base in _bases(cls) if base not in _BASES and base not in known)


def _pydantic_value(cls: type, shape: Shape) -> Shape:
    """Accept a URL type that a program derives from one of pydantic, as long as it adds no code that would run."""
    base = url_base(cls)
    for own in _bases(cls):
        if own is base:
            break
        if base is not None and _is_foreign_setter(namespace_of(own).get("_url")):
            raise Refusal("its attribute '_url' is set by a descriptor")
        if base is not None and not str(own.__module__).startswith("pydantic."):
            _check_base(own)
    return shape


def _enum_shape(cls: type) -> Shape:
    """Members are looked up and never built. Only a combination of flags asks `_missing_`."""
    shape = shape_of(cls)
    if shape is None or isinstance(shape, HookedObject):
        raise Refusal("it has __perdure_store__ and __perdure_load__")
    own = [base for base in _bases(cls) if base not in (enum.Enum, enum.Flag)]
    if isinstance(shape, FlagMember) and any("_missing_" in namespace_of(base) for base in own):
        raise Refusal("it has its own _missing_")
    return shape


def _check_base(base: type) -> None:
    own = namespace_of(base)
    if "__del__" in own:
        raise Refusal("it has its own __del__")
    if "__new__" in own and not ("_fields" in own and tuple in base.__bases__) and not _is_deprecation(own["__new__"]):
        raise Refusal("it has its own __new__")
    if "__setattr__" in own and not _is_generated(own):
        raise Refusal("it has its own __setattr__")
    if "__init__" in own and not any(mark in own for mark in _MARKS) and own["__init__"] is not _PROTOCOL_INIT:
        raise Refusal(f"its base {base.__qualname__} has its own __init__ and is no data class")


def _is_deprecation(new: object) -> bool:
    """Return whether `@deprecated` wrote the `__new__` of a class. It only warns, and is never called here."""
    writers = [vars(sys.modules[name]) for name in ("typing_extensions", "warnings") if name in sys.modules]
    made = new.__func__ if type(new) is staticmethod else None
    return type(made) is FunctionType and any(made.__globals__ is writer for writer in writers)


def _is_generated(own: Mapping[str, Any]) -> bool:
    """Return whether a decorator wrote the `__setattr__` of a class, to freeze it or to validate."""
    setter, parameters = own["__setattr__"], own.get("__dataclass_params__")
    if setter is object.__setattr__ or (parameters is not None and parameters.frozen):
        return True
    writers = [vars(sys.modules[name]) for name in _SETTERS if name in sys.modules]
    return any(getattr(setter, "__globals__", None) is writer for writer in writers)


def _check_fields(cls: type, shape: Shape) -> None:
    """Refuse a class where setting a field would call a descriptor, such as the setter of a property."""
    if isinstance(shape, StructObject | NamedTupleObject):
        return
    names = MODEL_SLOTS if isinstance(shape, PydanticModel) else ("__dict__", *(shape.names(cls) or ()))
    for name in names:
        found = next((namespace_of(base)[name] for base in _bases(cls) if name in namespace_of(base)), None)
        if _is_foreign_setter(found):
            raise Refusal(f"its attribute {name!r} is set by a descriptor")


def _is_foreign_setter(attribute: object) -> bool:
    if type(attribute) in (MemberDescriptorType, GetSetDescriptorType):
        return False
    return any(name in namespace_of(base) for base in _bases(type(attribute)) for name in ("__set__", "__delete__"))
