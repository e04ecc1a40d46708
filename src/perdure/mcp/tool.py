"""One description of every tool, from which calls are dispatched and `tools/list` is made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any

import msgspec

from perdure.api.aio import AsyncAgent
from perdure.mcp.once import OnceHolder


class McpCaller(msgspec.Struct, frozen=True):
    """Who calls a tool: the agent that it works on, and the holder of what it begins."""

    agent: AsyncAgent
    holder: OnceHolder
    options: str = ""
    """The options that a printed `perdure` command needs to reach the same store."""


class ToolAnswer(msgspec.Struct, frozen=True):
    """The answer of a tool: a short text for the model, and the same as data."""

    text: str
    data: Mapping[str, Any]
    advice: str = ""
    """What the model should do now or must not do; also part of the text."""

    @property
    def structured(self) -> dict[str, Any]:
        """The data with the advice. Some clients show the model only this, and never the text."""
        return {**self.data, "advice": self.advice} if self.advice else {**self.data}

    @property
    def content(self) -> list[dict[str, Any]]:
        """The blocks for the model."""
        return [{"type": "text", "text": self.text}]


ToolHandler = Callable[[McpCaller, Any], Awaitable[ToolAnswer]]


class ToolInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The arguments of a tool."""


class McpTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool."""

    name: str
    title: str
    description: str
    arguments: type[ToolInput]
    handler: ToolHandler
    result: type[msgspec.Struct] | None = None
    """The type of the structured result."""
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False

    def describe(self) -> dict[str, Any]:
        """Return the tool as `tools/list` shows it."""
        told = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": schema_of(self.arguments),
            "annotations": {
                "title": self.title,
                "readOnlyHint": self.read_only,
                "destructiveHint": self.destructive,
                "idempotentHint": self.idempotent or self.read_only,
                "openWorldHint": False,
            },
        }
        return told if self.result is None else {**told, "outputSchema": _with_advice(schema_of(self.result))}


def _with_advice(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a result with the field that every tool may add."""
    advice = {"type": "string", "description": "What to do now, or must not be done"}
    return {**schema, "properties": {**schema["properties"], "advice": advice}}


@cache
def schema_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON schema of a record. The record itself is not behind a reference: some clients follow none."""
    _, parts = msgspec.json.schema_components((kind,), ref_template="#/$defs/{name}")
    schema: dict[str, Any] = parts.pop(kind.__name__)
    for name in ("title", "description"):
        schema.pop(name, None)
    return {**schema, "$defs": parts} if parts else schema


def to_plain(value: Any) -> Any:
    """Convert a value to JSON for a model: times are texts, and what JSON lacks is shown as its repr."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=repr)
