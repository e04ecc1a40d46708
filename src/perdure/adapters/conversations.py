"""Reads the conversation of any thread in the shape that another framework takes, so that it can go on there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from perdure.errors import ThreadNotFound, WrongValue
from perdure.kernel.engine import Engine
from perdure.presence.context import provider_formats
from perdure.presence.context.parse import ParsedMessage, TextPart, ToolCallPart, ToolResultPart, parse_message
from perdure.values.codec.decoder import decode_as_dicts
from perdure.work.threads.conversations import conversations
from perdure.work.threads.history import messages_of
from perdure.work.threads.listing import not_found_error
from perdure.work.threads.read import places, read_checkpoint, values_of

if TYPE_CHECKING:
    from perdure import Agent, AsyncAgent


def read_conversation(agent: Agent | AsyncAgent, thread: str, shape: str = "openai") -> list[dict[str, Any]]:
    """Return the messages of a thread, whoever has saved it, with calls of tools and their results.

    `shape` is "openai" (chat completions), "responses" (OpenAI Agents and the Responses API) or "anthropic". Raises
    `ThreadNotFound`.

    >>> history = read_conversation(agent, "trip", "anthropic")
    """
    return read_messages(agent._engine, thread, shape)


def read_messages(engine: Engine, thread: str, shape: str) -> list[dict[str, Any]]:
    """Return the messages of a thread of an agent in a shape."""
    if shape not in _SHAPES:
        raise WrongValue(f"shape={shape!r}: choose {', '.join(map(repr, _SHAPES))}")
    return _SHAPES[shape](list(_iterate_parsed(engine, thread)))


def find_messages(engine: Engine, thread: str, shape: str) -> list[dict[str, Any]]:
    """Return the messages of a thread in a shape; none if there is no such thread."""
    try:
        return read_messages(engine, thread, shape)
    except ThreadNotFound:
        return []


def _iterate_parsed(engine: Engine, thread: str) -> Iterator[ParsedMessage]:
    for item in _items(engine, thread):
        for message in _to_messages(item):
            parsed = parse_message(message)
            if parsed.parts:
                yield parsed


def _items(engine: Engine, thread: str) -> list[Any]:
    """Return what was written last under a thread's id: its turns, or the newest checkpoint with messages."""
    if thread in conversations(engine):
        return messages_of(engine, thread)
    with decode_as_dicts():
        for place in sorted(places(engine, thread, None), key=lambda place: place.at, reverse=True):
            found = values_of(engine, read_checkpoint(engine, place).put).get("messages")
            if found:
                return list(found)
    raise not_found_error(engine, thread)


# -- the shapes of frameworks ------------------------------------------------------------------------------------------


def _to_messages(item: Any) -> Iterator[Any]:
    """Yield an item of a framework as messages that `parse_message` knows."""
    if not isinstance(item, dict):
        yield item
    elif item.get("kind") in ("request", "response") and "parts" in item:
        yield from _of_pydantic_ai(item["parts"])
    elif "author" in item and "content" in item:
        yield from _of_adk(item["content"])
    elif "message_id" in item and "message" in item:
        yield from _of_strands(item["message"])
    elif isinstance(item.get("message"), dict):
        yield item["message"]  # of the Claude Agent SDK
    else:
        yield item


def _of_pydantic_ai(parts: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for part in parts:
        match part.get("part_kind"):
            case "user-prompt":
                yield {"role": "user", "content": part["content"]}
            case "text":
                yield {"role": "assistant", "content": part["content"]}
            case "tool-call":
                yield _call(part["tool_call_id"], part["tool_name"], part["args"])
            case "tool-return":
                yield _result(part["tool_call_id"], part["content"])


def _of_adk(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    role = "assistant" if content.get("role") == "model" else "user"
    for part in content.get("parts") or ():
        if "text" in part:
            yield {"role": role, "content": part["text"]}
        elif (call := part.get("functionCall") or part.get("function_call")) is not None:
            yield _call(call.get("id", ""), call["name"], call.get("args") or {})
        elif (result := part.get("functionResponse") or part.get("function_response")) is not None:
            yield _result(result.get("id", ""), result.get("response"))


def _of_strands(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for block in message["content"]:
        if "text" in block:
            yield {"role": message["role"], "content": block["text"]}
        elif "toolUse" in block:
            yield _call(block["toolUse"]["toolUseId"], block["toolUse"]["name"], block["toolUse"]["input"])
        elif "toolResult" in block:
            texts = [part.get("text", "") for part in block["toolResult"]["content"]]
            yield _result(block["toolResult"]["toolUseId"], "\n".join(texts))


def _call(ident: str, name: str, arguments: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    call = {"id": ident, "type": "function", "function": {"name": name, "arguments": text}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _result(ident: str, content: Any) -> dict[str, Any]:
    text = content if isinstance(content, str) else json.dumps(content, default=str)
    return {"role": "tool", "tool_call_id": ident, "content": text}


def _responses(said: Iterable[ParsedMessage]) -> list[dict[str, Any]]:
    """Convert to items of OpenAI's Responses API."""
    return [item for one in said for item in _response_items(one)]


def _response_items(one: ParsedMessage) -> Iterator[dict[str, Any]]:
    for part in one.parts:
        if isinstance(part, ToolResultPart):
            yield {"type": "function_call_output", "call_id": part.id, "output": part.text}
        elif isinstance(part, ToolCallPart):
            yield {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": part.arguments}
    text = "".join(part.text for part in one.parts if isinstance(part, TextPart))
    if text:
        yield {"role": one.role, "content": text}


_SHAPES: dict[str, Callable[[list[ParsedMessage]], list[dict[str, Any]]]] = {
    "openai": provider_formats.openai,
    "responses": _responses,
    "anthropic": provider_formats.anthropic,
}
