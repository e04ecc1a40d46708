"""Parses messages of any provider format into a role and typed parts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec


class TextPart(msgspec.Struct, frozen=True):
    """Plain text."""

    text: str


class ToolCallPart(msgspec.Struct, frozen=True):
    """A tool call requested by the model."""

    id: str
    name: str
    arguments: str
    """Usually JSON."""


class ToolResultPart(msgspec.Struct, frozen=True):
    """The result of a tool call."""

    id: str
    """The id of the call."""
    text: str
    error: bool = False
    others: int = 0
    """Number of images and documents in it, which the text only names."""


class OpaquePart(msgspec.Struct, frozen=True):
    """Content that only its provider understands: an image, reasoning, a document."""

    kind: str
    raw: Any


MessagePart = TextPart | ToolCallPart | ToolResultPart | OpaquePart


class ParsedMessage(msgspec.Struct, frozen=True):
    """A message, independent of the provider."""

    role: str
    """`system`, `user` or `assistant`; tool results count as `user`."""
    parts: tuple[MessagePart, ...]
    shape: str = ""
    """`openai` or `anthropic` if the message is valid in that format only."""
    raw: Any = None
    """The original message, if its provider accepts it as it is."""

    @property
    def calls(self) -> tuple[str, ...]:
        """The ids of the calls in it."""
        return tuple(part.id for part in self.parts if isinstance(part, ToolCallPart))

    @property
    def results(self) -> tuple[str, ...]:
        """The ids of the calls whose results are in it."""
        return tuple(part.id for part in self.parts if isinstance(part, ToolResultPart))

    @property
    def text(self) -> str:
        """Its text parts only."""
        return "\n".join(part.text for part in self.parts if isinstance(part, TextPart) and part.text)


OPENAI, ANTHROPIC = "openai", "anthropic"
PINNED = "pinned"
"""The key of a pinned message: `{"role": "user", "content": "...", "pinned": True}`. Not sent to providers."""

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
}
_WORDS = frozenset({"text", "input_text", "output_text"})
_OF_ANTHROPIC = frozenset(
    {"tool_use", "tool_result", "image", "document", "thinking", "redacted_thinking", "server_tool_use"}
)
_BLOCKS_OF_RESPONSES = frozenset({"input_text", "output_text", "input_image", "input_file"})
_OF_OPENAI = frozenset({"image_url", "input_audio", "file", "refusal"})


def parse_message(raw: Any) -> ParsedMessage:
    """Parse a message. Messages without a role count as user messages."""
    if isinstance(raw, str):
        return ParsedMessage("user", (TextPart(raw),))
    message = _to_dict(raw)
    if message is None:
        return ParsedMessage("user", (TextPart(to_json_text(raw)),))
    if (item := _item(message)) is not None:
        return item
    role = _ROLES.get(str(message.get("role", message.get("type"))), "user")
    parts = tuple(_parts(message, role))
    shape = _shape(message, role, parts)
    known = "role" in message and (isinstance(message.get("content"), str | list) or shape == OPENAI)
    known = known and not _is_responses_format(message)
    whole = {name: value for name, value in message.items() if name != PINNED} if known else None
    return ParsedMessage("user" if role == "tool" else role, parts, shape, whole)


def _item(message: Mapping[str, Any]) -> ParsedMessage | None:
    """Parse an item of OpenAI's Responses API that is not a message: a call, its output, or encrypted reasoning."""
    kind = str(message.get("type", "")) if "role" not in message else ""
    if kind.endswith("_call_output"):
        return ParsedMessage("user", (_result(message.get("call_id"), message.get("output")),))
    if kind == "function_call":
        return ParsedMessage("assistant", (_call(message),))
    if kind.endswith("_call"):
        return ParsedMessage("assistant", (TextPart(f"[{kind}]"),))
    return ParsedMessage("assistant", ()) if kind == "reasoning" else None


def _is_responses_format(message: Mapping[str, Any]) -> bool:
    """Return whether a message is in the format of the Responses API, which Chat Completions does not accept."""
    content = message.get("content")
    blocks = [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []
    return message.get("type") == "message" or any(block.get("type") in _BLOCKS_OF_RESPONSES for block in blocks)


def _to_dict(raw: Any) -> dict[str, Any] | None:
    """Return a message as a dictionary, from a provider's client, a framework, or as given."""
    if isinstance(raw, Mapping):
        return dict(raw)
    if callable(dump := getattr(raw, "model_dump", None)):
        dumped: dict[str, Any] = dump(exclude_none=True)
        return dumped
    if dataclasses.is_dataclass(raw) and not isinstance(raw, type):
        return dataclasses.asdict(raw)
    if isinstance(raw, msgspec.Struct):
        return msgspec.structs.asdict(raw)
    return None


def _parts(message: Mapping[str, Any], role: str) -> Iterator[MessagePart]:
    content = message.get("content")
    if role == "tool":
        ident = message.get("tool_call_id") or message.get("name")
        yield _result(ident, content, bool(message.get("is_error")) or message.get("status") == "error")
        return
    if isinstance(content, list | tuple):
        for block in content:
            yield _part(block)
    elif content is not None:
        yield TextPart(content if isinstance(content, str) else to_json_text(_to_dict(content) or content))
    elif "content" not in message and "tool_calls" not in message and "function_call" not in message:
        yield TextPart(
            to_json_text({name: value for name, value in message.items() if name not in ("role", "type", PINNED)})
        )
    for call in message.get("tool_calls") or ():
        yield _call(call)
    if isinstance(call := message.get("function_call"), Mapping):
        yield _call({"id": call.get("name"), **call})


def _part(block: Any) -> MessagePart:
    if not isinstance(block, Mapping):
        return TextPart(block if isinstance(block, str) else to_json_text(block))
    kind = str(block.get("type", ""))
    if kind in _WORDS or (not kind and isinstance(block.get("text"), str)):
        return TextPart(str(block.get("text", "")))
    if kind == "tool_use":
        return _call(block)
    if kind == "tool_result":
        return _result(block.get("tool_use_id"), block.get("content"), bool(block.get("is_error")))
    if kind == "input_image" and isinstance(url := block.get("image_url"), str):
        return OpaquePart("image_url", {"type": "image_url", "image_url": {"url": url}})
    return OpaquePart(kind or "block", dict(block))


def _result(ident: object, content: Any, error: bool = False) -> ToolResultPart:
    blocks = [_part(block) for block in content] if isinstance(content, list | tuple) else []
    others = sum(isinstance(part, OpaquePart) for part in blocks)
    return ToolResultPart(str(ident or ""), _observation_text(content), error, others)


def _call(call: Any) -> ToolCallPart:
    item = call if isinstance(call, Mapping) else _to_dict(call) or {}
    inner = item.get("function")
    named = inner if isinstance(inner, Mapping) else item
    given: Any = next((named[key] for key in ("arguments", "input", "args") if key in named), {})
    arguments = given if isinstance(given, str) else to_json_text(given)
    return ToolCallPart(str(item.get("call_id") or item.get("id") or ""), str(named.get("name", "")), arguments)


def _observation_text(content: Any) -> str:
    """Return the text of a tool result, which may come in blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, list | tuple):
        return "\n".join(_block_text(block) for block in content)
    return "" if content is None else to_json_text(content)


def _block_text(block: Any) -> str:
    part = _part(block)
    return (
        part.text
        if isinstance(part, TextPart)
        else f"[{part.kind}]"
        if isinstance(part, OpaquePart)
        else to_json_text(block)
    )


def _shape(message: Mapping[str, Any], role: str, parts: tuple[MessagePart, ...]) -> str:
    if role == "tool" or message.get("role") in ("system", "developer") or message.get("tool_calls"):
        return OPENAI
    kinds = {part.kind for part in parts if isinstance(part, OpaquePart)}
    blocks = isinstance(message.get("content"), list | tuple)
    if kinds & _OF_ANTHROPIC or (blocks and any(isinstance(part, ToolCallPart | ToolResultPart) for part in parts)):
        return ANTHROPIC
    return OPENAI if kinds & _OF_OPENAI or "function_call" in message else ""


def to_json_text(value: Any) -> str:
    """Render any value as text, preferably JSON."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):
        return str(value)
