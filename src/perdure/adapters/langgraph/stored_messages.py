"""Reduces messages to what can be stored. They must not be lost: they were paid for, or record a finished tool call.

Providers put their own objects into a message's metadata, and tools into its artifact. Such an object is stored as its
plain data, or as text. The graph receives the same reduced message, so that it sees the same before and after a crash.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from enum import Enum
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.types import Command

from perdure.errors import NotDurableWarning, ValueProblem
from perdure.values import codec
from perdure.values.codec import registry
from perdure.values.codec.exceptions import limited_repr

_DEPTH_MAX = 50


def storable_result(value: Any, what: str, lost: list[str]) -> Any:
    """Return a result whose messages can be stored, and add what was reduced to `lost`.

    All other values stay unchanged, because their receiver relies on them.
    """
    if isinstance(value, BaseMessage):
        return _make_storable_message(value, what, lost)
    if type(value) is list:
        return [storable_result(one, what, lost) for one in value]
    if type(value) is dict:
        return {key: storable_result(one, what, lost) for key, one in value.items()}
    if isinstance(value, Command) and type(value.update) in (list, dict):
        return dataclasses.replace(value, update=storable_result(value.update, what, lost))
    return value


def _make_storable_message(message: BaseMessage, what: str, lost: list[str]) -> BaseMessage:
    try:
        codec.encode(message, f"{what}()")
    except ValueProblem as error:
        lost.append(error.message)
        return _reduce_message(message)
    return message


def warn_reduced(lost: list[str]) -> None:
    """Warn about reduced values. Called once all is on disk, because a warning may be turned into an error."""
    for one in lost:
        told = f"{one}; it was stored as plain data or as text"
        warnings.warn(told, NotDurableWarning, stacklevel=3)


def _reduce_message(message: BaseMessage) -> BaseMessage:
    """Return the message as an instance of a registered class, with storable fields."""
    kind = next((cls for cls in type(message).__mro__ if registry.entry_of(cls) is not None), None)
    if kind is None:
        return message
    fields = {**message.__dict__, **(message.__pydantic_extra__ or {})}
    declared: Any = kind
    names = fields.keys() & declared.model_fields.keys() if kind is not type(message) else fields.keys()
    made: BaseMessage = declared.model_construct(
        **{name: to_storable_data(fields[name]) for name in fields if name in names}
    )
    return made


def to_storable_data(value: Any, around: tuple[int, ...] = ()) -> Any:
    """Return a value if it can be stored, else its parts, and at last its text."""
    try:
        codec.encode(value)
    except ValueProblem:
        if id(value) in around or len(around) > _DEPTH_MAX:
            return limited_repr(value)
        return _reduce_value(value, (*around, id(value)))
    return value


def _reduce_value(value: Any, around: tuple[int, ...]) -> Any:
    if isinstance(value, Enum):
        return to_storable_data(value.value, around)
    if isinstance(value, list | tuple | set | frozenset):
        return [to_storable_data(one, around) for one in value]
    parts = value if isinstance(value, Mapping) else _fields_of(value)
    if parts is None:
        return limited_repr(value)
    return {key if type(key) is str else limited_repr(key): to_storable_data(parts[key], around) for key in parts}


def _fields_of(value: Any) -> Mapping[str, Any] | None:
    """Return the fields of a model or dataclass. Other objects may be handles, not data."""
    if isinstance(value, type):
        return None
    if hasattr(value, "model_fields_set") or dataclasses.is_dataclass(value):
        found: Mapping[str, Any] | None = getattr(value, "__dict__", None)
        return found
    return None
