"""Schemas of event kinds: payloads are checked when stored, and come back with their type.

Only the fields are stored, never the name of a class. A program without the class reads a dict, and fields added by a
newer program are kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.errors import EventInvalid, NotStorable, UnknownType, WrongType, WrongValue
from perdure.kinds import VOCABULARY
from perdure.values.codec.fields import Shape
from perdure.values.codec.models import PydanticModel
from perdure.values.codec.refusals import Refusal, type_name
from perdure.values.codec.registry import RegisteredClass, entry_of, upgrade_fields
from perdure.values.codec.shapes import NamedTupleObject, StructObject, shape_of

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class StoredEvent(msgspec.Struct, frozen=True):
    """An event as stored. Version 0 means no schema."""

    kind: str
    value: Any
    version: int = 0


class EventSchema(msgspec.Struct, frozen=True):
    """The schema of an event kind."""

    kind: str
    cls: type
    version: int
    shape: Shape
    ready: bool = False
    """A built-in kind. Its schema applies only to payloads that are instances of its class."""

    @property
    def names(self) -> list[str]:
        """The field names as stored."""
        if isinstance(self.shape, StructObject):
            return list(self.cls.__struct_encode_fields__)  # type: ignore[attr-defined]
        return list(self.shape.names(self.cls) or ())

    @property
    def keys(self) -> frozenset[str]:
        """All keys that the class understands: its fields, their aliases, the tag of a Struct."""
        cls: Any = self.cls
        if isinstance(self.shape, PydanticModel):
            fields = cls.model_fields.values()
            return frozenset([*self.names, *(field.alias for field in fields if field.alias)])
        if isinstance(self.shape, StructObject) and cls.__struct_config__.tag is not None:
            return frozenset([*self.names, cls.__struct_config__.tag_field])
        return frozenset(self.names)

    def fields(self, payload: Any) -> dict[str, Any]:
        """Check a payload, an instance or a mapping, and return the fields to store."""
        if isinstance(payload, self.cls):
            fields = _fields_of(payload, self.shape)
            self._build_object(fields)
            return fields
        given = {} if payload is None else payload
        if not isinstance(given, Mapping):
            raise self._invalid(f"Expected `{self.cls.__name__}` or a dict, got `{type_name(type(payload))}`", {})
        given = dict(given)
        keys = self.keys
        extra = {} if self.shape.accepts(self.cls) else {k: v for k, v in given.items() if k not in keys}
        return _fields_of(self._build_object(given), self.shape) | extra

    def payload(self, fields: dict[str, Any], version: int) -> tuple[Any, dict[str, Any]]:
        """Return the typed payload, and the fields that this program does not know."""
        if version < self.version:
            fields = upgrade_fields(RegisteredClass(self.kind, self.version, self.cls, None), version, dict(fields))
        if self.shape.accepts(self.cls):
            return self._build_object(fields), {}
        keys = self.keys
        known = {name: value for name, value in fields.items() if name in keys}
        try:
            return self._build_object(known), {name: value for name, value in fields.items() if name not in keys}
        except EventInvalid as error:
            if version <= self.version:
                error.hint = f"{error.hint}; or read the stored fields with typed=False"
                raise
            raise UnknownType(
                f"{error.message}; it was written with schema version {version}, but this program has {self.version}",
                hint="upgrade this program, or read with typed=False",
            ) from error

    def _build_object(self, fields: dict[str, Any]) -> Any:
        if isinstance(self.shape, PydanticModel):
            return self._build_model(fields)
        try:
            return msgspec.convert(fields, self.cls, dec_hook=_accept_stored_type)
        except msgspec.ValidationError as error:
            raise self._invalid(str(error), fields) from error

    def _build_model(self, fields: dict[str, Any]) -> Any:
        from pydantic import ValidationError

        model: Any = self.cls
        by_name = {"by_name": True} if any(field.alias for field in model.model_fields.values()) else {}
        try:
            return model.model_validate(fields, **by_name)
        except ValidationError as error:
            first = error.errors()[0]
            raise self._invalid(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", fields) from error

    def _invalid(self, why: str, fields: Mapping[str, Any]) -> EventInvalid:
        import difflib  # imported only on errors

        hint = f"{self.cls.__name__} has the fields {', '.join(self.names) or '(none)'}"
        missing = [name for name in self.names if name not in fields]
        for name in fields:
            if name not in self.names and (close := difflib.get_close_matches(str(name), missing, n=1)):
                hint = f"did you mean {close[0]!r} by {name!r}? {hint}"
        return EventInvalid(f"{self.kind}: {why}", hint=hint)


def _accept_stored_type(kind: type, value: Any) -> Any:
    """Accept types that msgspec does not know but our codec stores."""
    if isinstance(value, kind):
        return value
    raise msgspec.ValidationError(f"Expected `{kind.__name__}`, got `{type_name(type(value))}`")


# -- taking apart -----------------------------------------------------------------------------------------------------


def _fields_of(value: Any, shape: Shape) -> dict[str, Any]:
    try:
        fields = shape.take(value)
    except Refusal as refusal:
        raise EventInvalid(f"{type_name(type(value))}: {refusal}") from refusal
    plain = {name: _to_plain(field) for name, field in fields.items()}
    if not isinstance(shape, StructObject):
        return plain
    cls = type(value)
    stored = dict(zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True))
    tag = cls.__struct_config__.tag
    tagged = {cls.__struct_config__.tag_field: tag} if tag is not None else {}
    return tagged | {stored[name]: field for name, field in plain.items()}


def _to_plain(value: Any) -> Any:
    """Convert a value so that it can be read without its classes, except those registered with `stored`."""
    cls = type(value)
    if cls is dict:
        return {_to_plain(key): _to_plain(item) for key, item in value.items()}
    if cls in (list, tuple, set, frozenset):
        return cls(_to_plain(item) for item in value)
    if cls.__module__ == "builtins" or entry_of(cls) is not None:
        return value
    if isinstance(value, Enum):
        return value.value
    shape = shape_of(cls)
    if shape is None:
        return value  # the codec stores it, or refuses it with its path
    fields = _fields_of(value, shape)
    return tuple(fields.values()) if isinstance(shape, NamedTupleObject) else fields


# -- the kinds of an agent --------------------------------------------------------------------------------------------


class EventKinds:
    """The event kinds that an agent has schemas for in this process, including the built-in ones."""

    def __init__(self) -> None:
        self._by_name = dict(_vocabulary())
        self._by_class = {schema.cls: schema for schema in self._by_name.values()}

    def add(self, kind: str | None, cls: type, version: int) -> None:
        """Register a class as the schema of a kind."""
        schema = _schema(kind or _WORD.sub("_", cls.__name__).upper(), cls, version)
        known = self._by_name.get(schema.kind)
        if known is not None and not known.ready:
            _require_same_schema(known, schema)
        self._by_name[schema.kind] = self._by_class[cls] = schema

    def convert_element(self, one: Any) -> StoredEvent:
        """Convert one element of `append_many`: an object, or a tuple of a kind and an optional payload."""
        if not isinstance(one, tuple):
            return self.convert_event(one)
        if not 1 <= len(one) <= 2:
            raise WrongType(f"an event must be an object or a (kind, payload) tuple, not {one!r}")
        return self.convert_event(*one)

    def convert_event(self, kind: Any, payload: Any = None) -> StoredEvent:
        """Convert an event given as a kind and a payload, or as an object alone."""
        if isinstance(kind, str):
            if not kind:
                raise WrongValue("the kind of an event must not be empty")
            schema = self._by_name.get(kind)
            if schema is None or (schema.ready and not isinstance(payload, schema.cls)):
                return StoredEvent(kind, payload)
            return StoredEvent(kind, schema.fields(payload), schema.version)
        schema = self._by_class.get(kind if isinstance(kind, type) else type(kind))
        if schema is None:
            raise WrongType(
                f"a kind must be a str or an object of a class registered with agent.events.kind(), not {kind!r}"
            )
        return StoredEvent(schema.kind, schema.fields(payload if isinstance(kind, type) else kind), schema.version)

    def payload(self, kind: str, version: int, value: Any) -> tuple[Any, dict[str, Any]]:
        """Return the payload of a stored event, and the fields that its class does not have here."""
        schema = self._by_name.get(kind)
        if schema is None or (schema.ready and not version) or type(value) is not dict:
            return value, {}
        return schema.payload(value, version or 1)

    def name_of(self, kind: Any) -> str:
        """Return the name of a kind, given as a name or a class."""
        if isinstance(kind, str) and kind:
            return kind
        if kind in self._by_class:
            return self._by_class[kind].kind
        raise WrongType(
            f"kind= must be the name of a kind or a class registered with agent.events.kind(), not {kind!r}"
        )


def _require_same_schema(known: EventSchema, new: EventSchema) -> None:
    """Refuse a second schema for a kind and version, unless a reloaded module or notebook cell defines it again."""
    one, other = known.cls, new.cls
    if (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__) or known.version != new.version:
        return
    if _read_annotations(known) != _read_annotations(new):
        raise NotStorable(
            f"version {new.version} of the kind {new.kind!r} is already {type_name(one)}, not {type_name(other)}",
            hint="raise the version and add an upcaster from the previous one, or use another name",
        )


def _read_annotations(schema: EventSchema) -> list[tuple[str, str]]:
    """Return the fields with their annotated types."""
    kinds: dict[str, Any] = {}
    for base in reversed(schema.cls.__mro__):
        kinds |= getattr(base, "__annotations__", {})
    return [(name, str(kinds.get(name, ""))) for name in schema.names]


def _schema(kind: Any, cls: Any, version: int, *, ready: bool = False) -> EventSchema:
    if not isinstance(kind, str) or not kind:
        raise WrongType(f"a kind must be a str, not {kind!r}")
    if type(version) is not int or version < 1:
        raise WrongValue(f"the version of {kind!r} must be an int from 1, not {version!r}")
    shape = shape_of(cls) if isinstance(cls, type) else None
    if shape is None or isinstance(shape, NamedTupleObject) or shape.names(cls) is None or issubclass(cls, Enum):
        raise NotStorable(
            f"the schema of {kind!r} must be a dataclass, attrs class, msgspec Struct or pydantic model, not {cls!r}"
        )
    if isinstance(shape, StructObject) and cls.__struct_config__.array_like:
        raise NotStorable(f"{type_name(cls)} is array_like, so its fields would be stored without names")
    if not isinstance(shape, PydanticModel):
        _try(kind, cls)
    return EventSchema(kind, cls, version, shape, ready)


def _try(kind: str, cls: type) -> None:
    """Reject unreadable annotations at registration, not at the first event."""
    try:
        msgspec.convert({}, cls, dec_hook=_accept_stored_type)
    except msgspec.ValidationError:
        pass  # required fields are missing, as expected
    except (NameError, TypeError) as error:
        raise NotStorable(
            f"the annotations of {type_name(cls)}, the schema of {kind!r}, cannot be read: {error}"
        ) from error


@cache
def _vocabulary() -> Mapping[str, EventSchema]:
    return {name: _schema(name, cls, 1, ready=True) for name, cls in VOCABULARY.items()}


def kinds_of(engine: Engine) -> EventKinds:
    """Return the kinds of events that have a schema in this agent."""
    return engine.parts.get(EventKinds)
