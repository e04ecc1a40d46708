"""The shape of pydantic models. pydantic is imported only if the program uses it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Final

from perdure.errors import CorruptValue, UnknownType
from perdure.values.codec.fields import HARMLESS, MISSING, Factory, Shape, lost_attribute, read_fields
from perdure.values.codec.refusals import Refusal, type_name


def is_model(cls: type) -> bool:
    """Return whether a class is a pydantic 2 model."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and pydantic.BaseModel in cls.__mro__


MODEL_SLOTS: Final = ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
"""The attributes that hold all data of a model."""


class PydanticModel(Shape):
    """Models: declared fields, extra fields where allowed, and aside the private and the unset ones."""

    has_aside = True

    def names(self, cls: Any) -> Iterable[str]:
        return list(cls.__pydantic_fields__)

    def accepts(self, cls: Any) -> bool:
        return bool(cls.model_config.get("extra") == "allow")

    def default(self, cls: Any, name: str) -> Any:
        field = cls.__pydantic_fields__[name]
        if field.default_factory is not None:
            return Factory(lambda: field.get_default(call_default_factory=True), field.default_factory)
        return MISSING if field.is_required() else field.get_default()

    def take(self, value: Any) -> dict[str, Any]:
        return read_fields(value, self.names(type(value))) | (value.__pydantic_extra__ or {})

    def extra_data(self, value: Any) -> dict[str, Any]:
        names = [*self.names(type(value)), *(value.__pydantic_extra__ or ())]
        unset = frozenset(name for name in names if name not in value.model_fields_set)
        parts = {"unset": unset, "private": dict(value.__pydantic_private__ or {})}
        return {name: part for name, part in parts.items() if part}

    def make(self, cls: Any, fields: dict[str, Any], aside: dict[str, Any]) -> Any:
        unset, private = aside.get("unset", frozenset()), aside.get("private", {})
        if aside.keys() - {"unset", "private"} or type(unset) is not frozenset or type(private) is not dict:
            raise CorruptValue(f"the stored data besides the fields of {type_name(cls)} is invalid")
        declared = cls.__pydantic_fields__
        given = {name: value for name, value in fields.items() if name in declared}
        extra = {name: value for name, value in fields.items() if name not in declared}
        given_names = {name for name in fields if name not in unset}
        return _model(cls, given, given_names, extra if self.accepts(cls) else None, self._read_private(cls, private))

    def _read_private(self, cls: Any, stored: dict[str, Any]) -> dict[str, Any] | None:
        """Return private attributes: the stored ones, else their defaults."""
        from pydantic_core import PydanticUndefined

        known = cls.__private_attributes__
        lost = [name for name in stored if name not in known]
        if lost:
            raise UnknownType(f"{type_name(cls)} was stored with {lost[0]!r}, which it no longer has")
        left = {name: attribute for name, attribute in known.items() if name not in stored}
        # A factory may do anything. An object that was stored without its private attribute had none either.
        defaults = {
            name: each.get_default() for name, each in left.items() if each.default_factory in (None, *HARMLESS)
        }
        return {k: v for k, v in defaults.items() if v is not PydanticUndefined} | stored if known else None


def _model(cls: Any, fields: Any, given: set[str], extra: Any, private: Any) -> Any:
    """Create a model from its four slots. No `__init__`, validator, `model_post_init` or `__setstate__` runs."""
    made = object.__new__(cls)
    set_attribute(made, "__dict__", fields)
    set_attribute(made, "__pydantic_fields_set__", given)
    if not cls.__pydantic_root_model__:  # which has only a root
        set_attribute(made, "__pydantic_extra__", extra)
        set_attribute(made, "__pydantic_private__", private)
    return made


class SdkModel(PydanticModel):
    """Responses of the OpenAI and Anthropic SDKs, which build them without validation: required fields may be missing.

    Unset fields that are None by default are left out: a response has many. To the response of a request the SDKs
    attach private texts such as `_request_id`, more of them with every version.
    """

    def names(self, cls: Any) -> None:  # type: ignore[override]
        return None

    def take(self, value: Any) -> dict[str, Any]:
        declared, given = type(value).__pydantic_fields__, value.__pydantic_fields_set__
        cls, items = type(value), value.__dict__.items()
        lost = {name for name, item in items if name not in declared and not _is_attached(cls, name, item)}
        lost |= (value.__pydantic_private__ or {}).keys()
        if lost:
            raise lost_attribute(type(value), min(lost))
        kept = {
            name: item
            for name, item in value.__dict__.items()
            if name in declared and (item is not None or name in given or declared[name].default is not None)
        }
        return kept | (value.__pydantic_extra__ or {})

    def extra_data(self, value: Any) -> dict[str, Any]:
        unset = frozenset(name for name in self.take(value) if name not in value.__pydantic_fields_set__)
        attached = {name: item for name, item in value.__dict__.items() if _is_attached(type(value), name, item)}
        parts = {"unset": unset, "attached": attached}
        return {name: part for name, part in parts.items() if part}

    def make(self, cls: Any, fields: dict[str, Any], aside: dict[str, Any]) -> Any:
        unset, attached = aside.get("unset", frozenset()), aside.get("attached", {})
        if aside.keys() - {"unset", "attached"} or type(unset) is not frozenset or not _are_attached(cls, attached):
            raise CorruptValue(f"the stored data besides the fields of {type_name(cls)} is invalid")
        declared = cls.__pydantic_fields__
        extra = {name: item for name, item in fields.items() if name not in declared}
        if extra and not self.accepts(cls):
            raise UnknownType(f"{type_name(cls)} was stored with {min(extra)!r}, which it no longer has")
        found = {name: fields.get(name) for name, field in declared.items() if name in fields or field.default is None}
        return _model(cls, found | attached, fields.keys() - unset, extra if self.accepts(cls) else None, None)


def _is_attached(cls: type, name: str, item: Any) -> bool:
    """Whether this can be what an SDK attaches: a text under a private name that hides nothing of the class."""
    private = name.startswith("_") and not name.startswith("__") and not hasattr(cls, name)
    return private and (item is None or type(item) is str)


def _are_attached(cls: type, stored: Any) -> bool:
    return type(stored) is dict and all(_is_attached(cls, name, item) for name, item in stored.items())


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

    def extra_data(self, value: Any) -> dict[str, Any]:
        return {}

    def make(self, cls: Any, fields: dict[str, Any], aside: dict[str, Any]) -> Any:
        given, defaults = set(fields), defaults_of(cls)
        extra: dict[str, Any] = {}
        if not given <= cls.__pydantic_fields__.keys():
            extra = {name: fields.pop(name) for name in given - cls.__pydantic_fields__.keys()}
            given.difference_update(extra)
        for name, default in defaults.items():
            if name not in fields:
                fields[name] = default.copy() if type(default) in _COPIED else default
        return _model(cls, fields, given, extra if self.accepts(cls) else None, None)


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
