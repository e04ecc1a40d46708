"""The shape of pydantic models. pydantic is imported only if the program uses it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from ..errors import CorruptValue, UnknownType
from .fields import MISSING, Shape, read_fields
from .refusals import Refusal, type_name


def is_model(cls: type) -> bool:
    """Return whether a class is a pydantic 2 model."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(cls, pydantic.BaseModel)


class PydanticModel(Shape):
    """Models: declared fields, extra fields where allowed, and aside the private and the unset ones."""

    has_aside = True

    def names(self, cls: Any) -> Iterable[str]:
        return list(cls.model_fields)

    def accepts(self, cls: Any) -> bool:
        return bool(cls.model_config.get("extra") == "allow")

    def default(self, cls: Any, name: str) -> Any:
        field = cls.model_fields[name]
        return MISSING if field.is_required() else field.get_default(call_default_factory=True)

    def take(self, value: Any) -> dict[str, Any]:
        return read_fields(value, self.names(type(value))) | (value.__pydantic_extra__ or {})

    def aside(self, value: Any) -> dict[str, Any]:
        names = [*self.names(type(value)), *(value.__pydantic_extra__ or ())]
        unset = frozenset(name for name in names if name not in value.model_fields_set)
        parts = {"unset": unset, "private": dict(value.__pydantic_private__ or {})}
        return {name: part for name, part in parts.items() if part}

    def make(self, cls: Any, fields: dict[str, Any], aside: dict[str, Any]) -> Any:
        unset, private = aside.get("unset", frozenset()), aside.get("private", {})
        if aside.keys() - {"unset", "private"} or type(unset) is not frozenset or type(private) is not dict:
            raise CorruptValue(f"the stored data besides the fields of {type_name(cls)} is invalid")
        declared = cls.model_fields
        state = {
            "__dict__": {name: value for name, value in fields.items() if name in declared},
            "__pydantic_extra__": {name: value for name, value in fields.items() if name not in declared}
            if self.accepts(cls)
            else None,
            "__pydantic_fields_set__": {name for name in fields if name not in unset},
            "__pydantic_private__": self._private(cls, private),
        }
        made = cls.__new__(cls)
        made.__setstate__(state)
        return made

    def _private(self, cls: Any, stored: dict[str, Any]) -> dict[str, Any] | None:
        """Return private attributes: the stored ones, else their defaults."""
        from pydantic_core import PydanticUndefined

        known = cls.__private_attributes__
        lost = [name for name in stored if name not in known]
        if lost:
            raise UnknownType(f"{type_name(cls)} was stored with {lost[0]!r}, which it no longer has")
        defaults = {name: known[name].get_default() for name in known if name not in stored}
        return {k: v for k, v in defaults.items() if v is not PydanticUndefined} | stored if known else None


class PlainModel(PydanticModel):
    """Models that occur by the thousand: stores only values that differ from the defaults, and caches lookups.

    Which fields were set is not recorded: exactly the stored fields count as set.
    """

    has_aside = False
    quick = True

    def names(self, cls: Any) -> None:  # type: ignore[override]
        return None

    def take(self, value: Any) -> dict[str, Any]:
        defaults = defaults_of(type(value))
        fields = {
            name: field
            for name, field in value.__dict__.items()
            if name not in defaults or defaults[name] != field or type(defaults[name]) is not type(field)
        }
        if value.__pydantic_private__:
            raise Refusal(f"{type_name(type(value))} has private attributes, which would be lost")
        return {**fields, **extra} if (extra := value.__pydantic_extra__) else fields

    def aside(self, value: Any) -> dict[str, Any]:
        return {}

    def make(self, cls: Any, fields: dict[str, Any], aside: dict[str, Any]) -> Any:
        made, given, defaults = cls.__new__(cls), set(fields), defaults_of(cls)
        extra: dict[str, Any] = {}
        if not given <= cls.__pydantic_fields__.keys():
            extra = {name: fields.pop(name) for name in given - cls.__pydantic_fields__.keys()}
            given.difference_update(extra)
        for name, default in defaults.items():
            if name not in fields:
                fields[name] = default.copy() if type(default) in _COPIED else default
        set_attribute(made, "__dict__", fields)
        set_attribute(made, "__pydantic_fields_set__", given)
        set_attribute(made, "__pydantic_extra__", extra if self.accepts(cls) else None)
        set_attribute(made, "__pydantic_private__", None)
        return made


_COPIED: frozenset[type] = frozenset({dict, list})
_DEFAULTS: dict[type, dict[str, Any]] = {}
set_attribute = object.__setattr__


def defaults_of(cls: Any) -> dict[str, Any]:
    """Return the default values of the optional fields of a model."""
    found = _DEFAULTS.get(cls)
    if found is None:
        optional = {name: field for name, field in cls.__pydantic_fields__.items() if not field.is_required()}
        found = {name: field.get_default(call_default_factory=True) for name, field in optional.items()}
        _DEFAULTS[cls] = found
    return found
