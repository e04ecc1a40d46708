"""What every kind of class has in common: fields that are taken out of an object and put into one."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Final

from ..errors import UnknownType
from .refusals import Refusal, type_name

MISSING: Final = object()
"""There is no default."""


class Shape:
    """One kind of class."""

    has_aside = False
    quick = False
    """Whether `make` takes any fields, and nothing else."""

    def names(self, cls: type) -> Iterable[str] | None:
        """The fields that an object has; None when the class decides for itself."""
        raise NotImplementedError

    def accepts(self, cls: type) -> bool:
        """Whether an object may have more than its fields."""
        return False

    def default(self, cls: type, name: str) -> Any:
        """What a field has that was not stored, or MISSING."""
        return MISSING

    def take(self, value: Any) -> dict[str, Any]:
        """The fields of an object. May raise Refusal."""
        raise NotImplementedError

    def aside(self, value: Any) -> dict[str, Any]:
        """What belongs to an object and is no field: upcasters do not see it."""
        return {}

    def make(self, cls: type, fields: dict[str, Any], aside: dict[str, Any]) -> Any:
        """An object with these fields."""
        raise NotImplementedError


def fit(shape: Shape, cls: type, name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields that the class has now: defaults fill in, but nothing is dropped in silence."""
    names = shape.names(cls)
    if names is None:
        return fields
    wanted = list(names)
    extra = [field for field in fields if field not in wanted]
    if extra and not shape.accepts(cls):
        raise _changed(cls, name, f"was stored with {extra[0]!r}, which {type_name(cls)} does not have")
    fitting = {field: fields[field] if field in fields else shape.default(cls, field) for field in wanted}
    for field, value in fitting.items():
        if value is MISSING:
            raise _changed(cls, name, f"was stored without {field!r}, which {type_name(cls)} needs")
    return fitting | {field: fields[field] for field in extra}


def _changed(cls: type, name: str, what: str) -> UnknownType:
    hint = f'when the class has changed: raise its version= and write @perdure.upcaster("{name}", ...)'
    return UnknownType(f"{name!r} {what}", hint=hint)


def read_fields(value: Any, names: Iterable[str]) -> dict[str, Any]:
    """The values of the fields; an attribute that is no field would be lost, so it is refused."""
    wanted = list(names)
    for name in getattr(value, "__dict__", ()):
        if name not in wanted and not isinstance(getattr(type(value), name, None), functools.cached_property):
            raise Refusal(f"the attribute {name!r} is no field of {type_name(type(value))} and would be lost")
    fields = {name: getattr(value, name, MISSING) for name in wanted}
    for name, field in fields.items():
        if field is MISSING:
            raise Refusal(f"the field {name!r} of {type_name(type(value))} has no value yet")
    return fields
