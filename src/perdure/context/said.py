"""A message, whatever shape it came in: who said it, and what it consists of."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec


class Text(msgspec.Struct, frozen=True):
    """Words."""

    text: str


class Call(msgspec.Struct, frozen=True):
    """The model wants a tool to be called."""

    id: str
    name: str
    arguments: str
    """JSON, mostly."""


class Result(msgspec.Struct, frozen=True):
    """What a tool came to: an observation."""

    id: str
    """Of the call."""
    text: str
    error: bool = False
    others: int = 0
    """Images and documents in it, which the text only names."""


class Other(msgspec.Struct, frozen=True):
    """Something that only its provider knows: an image, a thought, a document."""

    kind: str
    raw: Any


Part = Text | Call | Result | Other


class Said(msgspec.Struct, frozen=True):
    """One message."""

    role: str
    """`system`, `user` or `assistant`; what a tool came to is told by `user`."""
    parts: tuple[Part, ...]
    shape: str = ""
    """`openai` or `anthropic` when the message is of that shape and no other."""
    raw: Any = None
    """As it came, when that can be given to a provider of its shape."""

    @property
    def calls(self) -> tuple[str, ...]:
        """The ids of the calls in it."""
        return tuple(part.id for part in self.parts if isinstance(part, Call))

    @property
    def results(self) -> tuple[str, ...]:
        """The ids of the calls whose results are in it."""
        return tuple(part.id for part in self.parts if isinstance(part, Result))

    @property
    def text(self) -> str:
        """Its words alone."""
        return "\n".join(part.text for part in self.parts if isinstance(part, Text) and part.text)


OPENAI, ANTHROPIC = "openai", "anthropic"
PINNED = "pinned"
"""What a message that is to stay carries: `{"role": "user", "content": "...", "pinned": True}`. Nobody else sees it."""

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


def said(raw: Any) -> Said:
    """A message, read. What it is not told to be is said by the user."""
    if isinstance(raw, str):
        return Said("user", (Text(raw),))
    message = _plain(raw)
    if message is None:
        return Said("user", (Text(as_json(raw)),))
    if (item := _item(message)) is not None:
        return item
    role = _ROLES.get(str(message.get("role", message.get("type"))), "user")
    parts = tuple(_parts(message, role))
    shape = _shape(message, role, parts)
    known = "role" in message and (isinstance(message.get("content"), str | list) or shape == OPENAI)
    known = known and not _of_responses(message)
    whole = {name: value for name, value in message.items() if name != PINNED} if known else None
    return Said("user" if role == "tool" else role, parts, shape, whole)


def _item(message: Mapping[str, Any]) -> Said | None:
    """What OpenAI's Responses API has beside messages: calls, their outputs, and thoughts that nobody can read."""
    kind = str(message.get("type", "")) if "role" not in message else ""
    if kind.endswith("_call_output"):
        return Said("user", (_result(message.get("call_id"), message.get("output")),))
    if kind == "function_call":
        return Said("assistant", (_call(message),))
    if kind.endswith("_call"):
        return Said("assistant", (Text(f"[{kind}]"),))
    return Said("assistant", ()) if kind == "reasoning" else None


def _of_responses(message: Mapping[str, Any]) -> bool:
    """Whether it is a message of the Responses API, which the other one does not take as it is."""
    content = message.get("content")
    blocks = [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []
    return message.get("type") == "message" or any(block.get("type") in _BLOCKS_OF_RESPONSES for block in blocks)


def _plain(raw: Any) -> dict[str, Any] | None:
    """A message as a dictionary: of a provider's client, of a framework, or one already."""
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


def _parts(message: Mapping[str, Any], role: str) -> Iterator[Part]:
    content = message.get("content")
    if role == "tool":
        ident = message.get("tool_call_id") or message.get("name")
        yield _result(ident, content, bool(message.get("is_error")) or message.get("status") == "error")
        return
    if isinstance(content, list | tuple):
        for block in content:
            yield _part(block)
    elif content is not None:
        yield Text(content if isinstance(content, str) else as_json(content))
    elif "content" not in message and "tool_calls" not in message and "function_call" not in message:
        yield Text(as_json({name: value for name, value in message.items() if name not in ("role", "type", PINNED)}))
    for call in message.get("tool_calls") or ():
        yield _call(call)
    if isinstance(call := message.get("function_call"), Mapping):
        yield _call({"id": call.get("name"), **call})


def _part(block: Any) -> Part:
    if not isinstance(block, Mapping):
        return Text(block if isinstance(block, str) else as_json(block))
    kind = str(block.get("type", ""))
    if kind in _WORDS or (not kind and isinstance(block.get("text"), str)):
        return Text(str(block.get("text", "")))
    if kind == "tool_use":
        return _call(block)
    if kind == "tool_result":
        return _result(block.get("tool_use_id"), block.get("content"), bool(block.get("is_error")))
    if kind == "input_image" and isinstance(url := block.get("image_url"), str):
        return Other("image_url", {"type": "image_url", "image_url": {"url": url}})
    return Other(kind or "block", dict(block))


def _result(ident: object, content: Any, error: bool = False) -> Result:
    blocks = [_part(block) for block in content] if isinstance(content, list | tuple) else []
    others = sum(isinstance(part, Other) for part in blocks)
    return Result(str(ident or ""), _told(content), error, others)


def _call(call: Any) -> Call:
    it = call if isinstance(call, Mapping) else _plain(call) or {}
    inner = it.get("function")
    named = inner if isinstance(inner, Mapping) else it
    given: Any = next((named[key] for key in ("arguments", "input", "args") if key in named), {})
    arguments = given if isinstance(given, str) else as_json(given)
    return Call(str(it.get("call_id") or it.get("id") or ""), str(named.get("name", "")), arguments)


def _told(content: Any) -> str:
    """The text of an observation, which may come in blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, list | tuple):
        return "\n".join(_block_text(block) for block in content)
    return "" if content is None else as_json(content)


def _block_text(block: Any) -> str:
    part = _part(block)
    return part.text if isinstance(part, Text) else f"[{part.kind}]" if isinstance(part, Other) else as_json(block)


def _shape(message: Mapping[str, Any], role: str, parts: tuple[Part, ...]) -> str:
    if role == "tool" or message.get("role") in ("system", "developer") or message.get("tool_calls"):
        return OPENAI
    kinds = {part.kind for part in parts if isinstance(part, Other)}
    blocks = isinstance(message.get("content"), list | tuple)
    if kinds & _OF_ANTHROPIC or (blocks and any(isinstance(part, Call | Result) for part in parts)):
        return ANTHROPIC
    return OPENAI if kinds & _OF_OPENAI or "function_call" in message else ""


def as_json(value: Any) -> str:
    """Anything as text, in the way that models know best."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):
        return str(value)
