"""The common interface of storable classes: fields that are taken from an object and set on a new one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from perdure.errors import UnknownType
from perdure.values.codec.refusals import Refusal, advise_client, type_name

MISSING: Final = object()
"""Marks a field without a default."""


HARMLESS: Final = (list, dict, set)
"""The default factories that run for every class. Others are code of the user."""


class Factory(NamedTuple):
    """A default that must be made: by `make`, which calls the `factory` that the class declares."""

    make: Callable[[], Any]
    factory: Any


class Shape:
    """How objects of one kind of class are stored."""

    has_aside = False
    quick = False
    """Whether `make` accepts any fields and needs nothing else."""

    def names(self, cls: type) -> Iterable[str] | None:
        """Return the field names; None if the class decides for itself."""
        raise NotImplementedError

    def accepts(self, cls: type) -> bool:
        """Return whether an object may have additional fields."""
        return False

    def default(self, cls: type, name: str) -> Any:
        """Return the value of a field that was not stored, a Factory for it, or MISSING."""
        return MISSING

    def take(self, value: Any) -> dict[str, Any]:
        """Return the fields of an object. May raise Refusal."""
        raise NotImplementedError

    def extra_data(self, value: Any) -> dict[str, Any]:
        """Return data that belongs to an object but is not a field. Upcasters do not see it."""
        return {}

    def make(self, cls: type, fields: dict[str, Any], aside: dict[str, Any]) -> Any:
        """Create an object with these fields."""
        raise NotImplementedError


def fit(shape: Shape, cls: type, name: str, fields: dict[str, Any], *, runs_code: bool) -> dict[str, Any]:
    """Return the fields that the class has now. Defaults fill gaps, but nothing is dropped silently.

    `runs_code` says whether default factories of the user may run.
    """
    names = shape.names(cls)
    if names is None:
        return fields
    wanted = list(names)
    extra = [field for field in fields if field not in wanted]
    if extra and not shape.accepts(cls):
        raise _changed_error(cls, name, f"was stored with {extra[0]!r}, which {type_name(cls)} does not have")
    fitting = {field: fields[field] if field in fields else _default(shape, cls, field, runs_code) for field in wanted}
    for field, value in fitting.items():
        if value is MISSING:
            raise _changed_error(cls, name, f"was stored without {field!r}, which {type_name(cls)} needs")
    return fitting | {field: fields[field] for field in extra}


def _default(shape: Shape, cls: type, field: str, runs_code: bool) -> Any:
    default = shape.default(cls, field)
    if type(default) is not Factory:
        return default
    return default.make() if runs_code or default.factory in HARMLESS else MISSING


def _changed_error(cls: type, name: str, what: str) -> UnknownType:
    hint = f'if the class has changed, raise its version= and write @perdure.upcaster("{name}", ...)'
    return UnknownType(f"{name!r} {what}", hint=hint)


def _can_be_left(cls: type, name: str) -> bool:
    """Whether an attribute is made again when it is needed, or only notes how `Page[int](...)` was written."""
    return name == "__orig_class__" or isinstance(getattr(cls, name, None), functools.cached_property)


def lost_attribute(cls: type, name: str) -> Refusal:
    """Return the refusal of an object with an attribute that is no field."""
    return Refusal(
        f"the attribute {name!r} is not a field of {type_name(cls)} and would be lost",
        hint=advise_client(cls) or "declare it as a field, or store the parts that you need",
    )


def read_fields(value: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return the values of the fields. Refuses other attributes, which would be lost."""
    wanted = list(names)
    for name in getattr(value, "__dict__", ()):
        if name not in wanted and not _can_be_left(type(value), name):
            raise lost_attribute(type(value), name)
    fields = {name: getattr(value, name, MISSING) for name in wanted}
    for name, field in fields.items():
        if field is MISSING:
            raise Refusal(f"the field {name!r} of {type_name(type(value))} has no value yet")
    return fields
