"""The shape of pydantic models, which is imported only when somebody has one."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from ..errors import CorruptValue, UnknownType
from .fields import MISSING, Shape, read_fields
from .refusals import type_name


def is_model(cls: type) -> bool:
    """Whether a class is a model of pydantic 2."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(cls, pydantic.BaseModel)


class PydanticModel(Shape):
    """Models: fields, and extra ones where they are allowed; aside, what is private or was not set."""

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
            raise CorruptValue(f"what is stored beside the fields of {type_name(cls)} is nothing that we know")
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
        """Private attributes: what was stored, else their defaults."""
        from pydantic_core import PydanticUndefined

        known = cls.__private_attributes__
        lost = [name for name in stored if name not in known]
        if lost:
            raise UnknownType(f"{type_name(cls)} was stored with {lost[0]!r}, which it does not have any more")
        defaults = {name: known[name].get_default() for name in known if name not in stored}
        return {k: v for k, v in defaults.items() if v is not PydanticUndefined} | stored if known else None
