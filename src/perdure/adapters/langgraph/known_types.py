"""The LangGraph classes that may be stored, each under a fixed name; `allow` adds classes that are no plain data."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar

from langgraph import types
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from perdure.errors import NotStorable, UnknownType, WrongType
from perdure.kernel.protocol import Protocol
from perdure.values.codec import registry
from perdure.values.codec.class_names import class_name, find_local_class
from perdure.values.codec.fields import Shape
from perdure.values.codec.shapes import shape_of

T = TypeVar("T")

_ALLOW = "or declare the class: PerdureSaver(..., allow=[TheClass])"
_PARTS = (types.Interrupt, types.Command, types.Overwrite, types.TimeoutPolicy, _DeltaSnapshot)


class SendShape(Shape):
    """The shape of `Send`, which has slots and its own `__init__`."""

    def names(self, cls: type) -> Iterable[str]:
        return ("node", "arg", "timeout")

    def default(self, cls: type, name: str) -> Any:
        return None

    def take(self, value: types.Send) -> dict[str, Any]:
        return {"node": value.node, "arg": value.arg, "timeout": value.timeout}

    def make(self, cls: type, fields: dict[str, Any], aside: dict[str, Any]) -> Any:
        return types.Send(fields["node"], fields["arg"], timeout=fields["timeout"])


def learn() -> None:
    """Register the classes, once per process."""
    registry.learn_langchain()
    for part in _PARTS:
        shape = shape_of(part)
        assert shape is not None
        registry.register(f"langgraph/{part.__name__.lstrip('_')}", part, shape)
    registry.register("langgraph/Send", types.Send, SendShape())


def allow(classes: Iterable[type]) -> None:
    """Register user classes under their module and name. Classes that are already registered keep their name."""
    for cls in classes:
        if not isinstance(cls, type):
            raise WrongType(f"allow= must be a list of classes, not {cls!r}")
        if registry.entry_of(cls) is None:
            registry.stored(class_name(cls))(cls)


def allow_named(names: Collection[tuple[str, ...]]) -> None:
    """Register classes by module and name, for the schema of a graph. Their modules are already imported."""
    for module, name, *_ in names:
        cls: Any = sys.modules.get(module)
        for part in name.split("."):
            cls = getattr(cls, part, None)
        if isinstance(cls, type) and registry.entry_of(cls) is None:
            try:
                allow([cls])
            except NotStorable:
                continue  # it has no fields that we know, so its values are refused when they occur


def storing(write: Callable[[], Protocol[T]]) -> Protocol[T]:
    """Run a write. Declares data classes that it needs and that no module has: those of a function.

    LangGraph's savers store the state of such a class too, and a graph exists before its threads are read.
    """
    declared = set[type]()
    while True:
        try:
            return (yield from write())
        except NotStorable as error:
            cls = error.undeclared
            if cls is None or cls in declared or "<locals>" not in cls.__qualname__:
                raise NotStorable(error.message, hint=_ALLOW) from error
            declared.add(cls)
            registry.declare(cls)


def reading(read: Callable[[], T]) -> T:
    """Run a read. Declares data classes that it needs and that a function of this process has defined."""
    declared = set[str]()
    while True:
        try:
            return read()
        except UnknownType as error:
            cls = find_local_class(error.unknown)
            if cls is None or error.unknown in declared:
                raise
            declared.add(error.unknown)
            registry.declare(cls)


__all__ = ["allow", "allow_named", "learn", "reading", "storing"]
