"""Messages as a chat: who speaks, what is said, which tools are called."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from perdure.presence.context.parse import MessagePart, TextPart, ToolCallPart, ToolResultPart, parse_message


class ChatPart(msgspec.Struct, frozen=True):
    """A part of a message: a text, a call of a tool, its result, or something that only a provider can show."""

    kind: str
    text: str
    name: str = ""
    """Of a tool, or the kind of what cannot be shown."""


class ChatMessage(msgspec.Struct, frozen=True):
    """One message."""

    role: str
    parts: tuple[ChatPart, ...]


def read_chat(messages: Iterable[Any]) -> list[ChatMessage]:
    """Return messages of any provider as a chat."""
    return [_read(message) for message in messages]


def _read(message: Any) -> ChatMessage:
    parsed = parse_message(message)
    returned = bool(parsed.parts) and all(isinstance(part, ToolResultPart) for part in parsed.parts)
    return ChatMessage("tool" if returned else parsed.role, tuple(_part(part) for part in parsed.parts))


def _part(part: MessagePart) -> ChatPart:
    if isinstance(part, TextPart):
        return ChatPart("text", part.text)
    if isinstance(part, ToolCallPart):
        return ChatPart("call", part.arguments, part.name)
    if isinstance(part, ToolResultPart):
        return ChatPart("failure" if part.error else "result", part.text)
    return ChatPart("other", "", part.kind)
