"""The LangChain and LangGraph classes that may be stored, each under a fixed name. Users add theirs with `allow`."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from typing import Any

from langchain_core import agents, documents, messages
from langchain_core.messages.base import TextAccessor
from langgraph import types
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from ...codec import registry
from ...codec.fields import Shape
from ...codec.models import PlainModel
from ...codec.shapes import shape_of
from ...errors import NotStorable

_MESSAGES = (
    messages.HumanMessage,
    messages.AIMessage,
    messages.SystemMessage,
    messages.ToolMessage,
    messages.ChatMessage,
    messages.FunctionMessage,
    messages.RemoveMessage,
    messages.HumanMessageChunk,
    messages.AIMessageChunk,
    messages.SystemMessageChunk,
    messages.ToolMessageChunk,
    messages.ChatMessageChunk,
    messages.FunctionMessageChunk,
    documents.Document,
    agents.AgentAction,
    agents.AgentFinish,
)
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


class TextShape(Shape):
    """The shape of `message.text`, a str that can also be called."""

    def names(self, cls: type) -> Iterable[str]:
        return ("text",)

    def default(self, cls: type, name: str) -> Any:
        return ""

    def take(self, value: str) -> dict[str, Any]:
        return {"text": str(value)}

    def make(self, cls: type, fields: dict[str, Any], aside: dict[str, Any]) -> Any:
        return TextAccessor(fields["text"])


def learn() -> None:
    """Register the classes, once per process."""
    for kind in _MESSAGES:
        registry.register(f"langchain/{kind.__name__}", kind, PlainModel())
    for part in _PARTS:
        shape = shape_of(part)
        assert shape is not None
        registry.register(f"langgraph/{part.__name__.lstrip('_')}", part, shape)
    registry.register("langgraph/Send", types.Send, SendShape())
    registry.register("langchain/TextAccessor", TextAccessor, TextShape())


def allow(classes: Iterable[type]) -> None:
    """Register user classes under their module and name. Classes that are already registered keep their name."""
    for cls in classes:
        if not isinstance(cls, type):
            raise TypeError(f"allow= must be a list of classes, not {cls!r}")
        if registry.entry_of(cls) is None:
            registry.stored(f"{cls.__module__}.{cls.__qualname__}")(cls)


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


__all__ = ["allow", "allow_named", "learn"]
