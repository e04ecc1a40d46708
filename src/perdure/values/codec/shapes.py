"""How objects of each kind of class are split into fields and rebuilt.

Where the kind allows it, rebuilding calls no `__init__`, no `__post_init__` and no validator. The value passed them
before it was stored, they may have side effects, and they need not accept their own output. `make` gets exactly the
fields of `names`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, Flag
from typing import Any, Final

import msgspec

from perdure.errors import CorruptValue, NotStorable, UnknownType
from perdure.values.codec.fields import MISSING, Factory, Shape, read_fields
from perdure.values.codec.models import PydanticModel, is_model
from perdure.values.codec.refusals import Refusal, type_name


def shape_of(cls: type) -> Shape | None:
    """Return the shape of a class; None if its kind is unknown."""
    own = vars(cls)
    if callable(getattr(cls, "__perdure_store__", None)) and callable(getattr(cls, "__perdure_load__", None)):
        return HookedObject()
    if issubclass(cls, Enum):
        return FlagMember() if issubclass(cls, Flag) else EnumMember()
    if issubclass(cls, msgspec.Struct):
        return StructObject()
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return NamedTupleObject()
    if issubclass(cls, BaseException):
        return None
    if is_model(cls):
        return PydanticModel()
    # Only in the class itself: a subclass without the decorator has attributes that are not fields.
    if "__attrs_attrs__" in own:
        return _require_empty_object(AttrsObject(), cls)
    if "__dataclass_fields__" in own:
        return _require_empty_object(DataclassObject(), cls)
    return None


def _require_empty_object(shape: Shape, cls: type) -> Shape:
    """Check that an empty object can be created."""
    try:
        object.__new__(cls)
    except TypeError as error:
        raise NotStorable(
            f"{type_name(cls)} cannot be rebuilt from its fields: {error}",
            hint="define __perdure_store__ and __perdure_load__",
        ) from None
    return shape


def _fill_object(cls: type, fields: dict[str, Any]) -> Any:
    made: Any = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(made, name, value)  # bypasses the __setattr__ of a frozen class
    return made


class DataclassObject(Shape):
    """Dataclasses, including those of pydantic."""

    def names(self, cls: type) -> Iterable[str]:
        import dataclasses

        return [field.name for field in dataclasses.fields(cls)]

    def default(self, cls: type, name: str) -> Any:
        import dataclasses

        field = next(field for field in dataclasses.fields(cls) if field.name == name)
        if field.default_factory is not dataclasses.MISSING:
            return Factory(field.default_factory, field.default_factory)
        return MISSING if field.default is dataclasses.MISSING else field.default

    def take(self, value: Any) -> dict[str, Any]:
        return read_fields(value, self.names(type(value)))

    def make(self, cls: type, fields: dict[str, Any], aside: dict[str, Any]) -> Any:
        return _fill_object(cls, fields)


_ATTRS_HASH: Final = "_attrs_cached_hash"
"""Where attrs caches a hash with cache_hash=True. An empty object must have it."""


class AttrsObject(Shape):
    """Classes of attrs."""

    def names(self, cls: type) -> Iterable[str]:
        return [field.name for field in cls.__attrs_attrs__]  # type: ignore[attr-defined]

    def default(self, cls: type, name: str) -> Any:
        import attr

        default = next(field.default for field in attr.fields(cls) if field.name == name)
        if isinstance(default, attr.Factory):  # type: ignore[arg-type]
            return MISSING if default.takes_self else Factory(default.factory, default.factory)
        return MISSING if default is attr.NOTHING else default

    def take(self, value: Any) -> dict[str, Any]:
        hashed = [_ATTRS_HASH] if _ATTRS_HASH in getattr(value, "__dict__", ()) else []
        fields = read_fields(value, [*self.names(type(value)), *hashed])
        fields.pop(_ATTRS_HASH, None)
        return fields

    def make(self, cls: type, fields: dict[str, Any], aside: dict[str, Any]) -> Any:
        code = getattr(cls.__hash__, "__code__", None)
        if _ATTRS_HASH in getattr(code, "co_names", ()):
            fields = {**fields, _ATTRS_HASH: None}
        return _fill_object(cls, fields)


class StructObject(Shape):
    """Structs of msgspec. Their constructor cannot be bypassed."""

    def names(self, cls: type[msgspec.Struct]) -> Iterable[str]:
        return cls.__struct_fields__

    def default(self, cls: type[msgspec.Struct], name: str) -> Any:
        field = next(field for field in msgspec.structs.fields(cls) if field.name == name)
        if field.default_factory is not msgspec.NODEFAULT:
            return Factory(field.default_factory, field.default_factory)
        return MISSING if field.default is msgspec.NODEFAULT else field.default

    def take(self, value: Any) -> dict[str, Any]:
        fields = read_fields(value, self.names(type(value)))
        unset = [name for name, field in fields.items() if field is msgspec.UNSET]
        for name in unset:
            if self.default(type(value), name) is msgspec.UNSET:
                del fields[name]  # reading restores it
        return fields

    def make(self, cls: type, fields: dict[str, Any], aside: dict[str, Any]) -> Any:
        return cls(**fields)


class NamedTupleObject(Shape):
    """NamedTuples of typing and collections."""

    def names(self, cls: type) -> Iterable[str]:
        return tuple(cls._fields)  # type: ignore[attr-defined]

    def default(self, cls: type, name: str) -> Any:
        return cls._field_defaults.get(name, MISSING)  # type: ignore[attr-defined]

    def take(self, value: Any) -> dict[str, Any]:
        names = self.names(type(value))
        read_fields(value, names)
        return dict(zip(names, tuple(value), strict=True))

    def make(self, cls: type, fields: dict[str, Any], aside: dict[str, Any]) -> Any:
        return tuple.__new__(cls, fields.values())


class EnumMember(Shape):
    """Enum members, by name: values may be anything."""

    def names(self, cls: type) -> Iterable[str]:
        return ("name",)

    def take(self, value: Enum) -> dict[str, Any]:
        return {"name": value.name}

    def make(self, cls: type, fields: dict[str, Any], aside: dict[str, Any]) -> Any:
        members, name = cls.__members__, fields["name"]  # type: ignore[attr-defined]
        if type(name) is not str or name not in members:
            raise UnknownType(
                f"{type_name(cls)} has no member {name!r}",
                hint="if it was renamed, raise version= and write an upcaster, which gets {'name': ...}",
            )
        return members[name]


class FlagMember(Shape):
    """Flags, by value: a combination has no name."""

    def names(self, cls: type) -> Iterable[str]:
        return ("value",)

    def take(self, value: Flag) -> dict[str, Any]:
        return {"value": value.value}

    def make(self, cls: type, fields: dict[str, Any], aside: dict[str, Any]) -> Any:
        if type(fields["value"]) is not int:
            raise CorruptValue(f"the stored value of {type_name(cls)} is not a number")
        return cls(fields["value"])


class HookedObject(Shape):
    """Classes with their own store and load methods."""

    def names(self, cls: type) -> None:
        return None

    def take(self, value: Any) -> dict[str, Any]:
        fields = value.__perdure_store__()
        if type(fields) is not dict or any(type(name) is not str for name in fields):
            raise Refusal(f"__perdure_store__ of {type_name(type(value))} must return a dict with names as keys")
        return fields

    def make(self, cls: type, fields: dict[str, Any], aside: dict[str, Any]) -> Any:
        return cls.__perdure_load__(fields)  # type: ignore[attr-defined]
