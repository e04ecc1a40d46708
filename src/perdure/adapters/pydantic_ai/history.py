"""Converts a conversation to the message history of Pydantic AI."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)


def to_model_messages(messages: Iterable[Mapping[str, Any]]) -> list[ModelMessage]:
    """Return chat messages as `message_history=` takes them: `to_model_messages(read_conversation(agent, "trip"))`."""
    made: list[ModelMessage] = []
    names: dict[str, str] = {}
    for message in messages:
        if message["role"] == "assistant":
            made.append(ModelResponse(parts=_answer(message, names)))
        elif message["role"] == "tool":
            ident = message["tool_call_id"]
            part = ToolReturnPart(names.get(ident, ""), message["content"], tool_call_id=ident)
            made.append(ModelRequest(parts=[part]))
        elif message["role"] == "system":
            made.append(ModelRequest(parts=[SystemPromptPart(_text(message["content"]))]))
        else:
            made.append(ModelRequest(parts=[UserPromptPart(_text(message["content"]))]))
    return made


def _answer(message: Mapping[str, Any], names: dict[str, str]) -> list[Any]:
    parts: list[Any] = [TextPart(_text(message["content"]))] if message.get("content") else []
    for call in message.get("tool_calls") or ():
        names[call["id"]] = call["function"]["name"]
        parts.append(ToolCallPart(call["function"]["name"], call["function"]["arguments"], tool_call_id=call["id"]))
    return parts


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content or () if isinstance(block, Mapping))
