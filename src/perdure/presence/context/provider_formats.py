"""Converts messages to provider formats: every call has a result, and nothing is sent that a provider refuses."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from perdure.presence.context.parse import (
    ANTHROPIC,
    OPENAI,
    MessagePart,
    OpaquePart,
    ParsedMessage,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

NO_RESULT = "[no result of this call was recorded]"
BEGINS = "[the assistant begins]"
"""The user message before a conversation that the assistant begins, which some providers refuse."""

ModelTurn = Sequence[ParsedMessage]
"""Messages that belong together: a call and its results, or a single message."""


def complete_turn(turn: ModelTurn, *, last: bool) -> list[ParsedMessage]:
    """Make a turn valid for providers: a call without a result gets a placeholder, unless its result may still come.

    A result without a call becomes text.
    """
    if not any(one.calls or one.results for one in turn):
        return list(turn)
    called = {ident for one in turn for ident in one.calls}
    answered = {ident for one in turn for ident in one.results}
    fixed = [one if set(one.results) <= called else _render_as_text(one, called) for one in turn]
    missing = [] if last else [ident for one in turn for ident in one.calls if ident not in answered]
    if not missing:
        return fixed
    made = ParsedMessage("user", tuple(ToolResultPart(ident, NO_RESULT, error=True) for ident in missing))
    place = max(place for place, one in enumerate(fixed) if one.calls or one.results) + 1
    return [*fixed[:place], made, *fixed[place:]]


def _render_as_text(one: ParsedMessage, called: set[str]) -> ParsedMessage:
    parts = [
        TextPart(f"[a tool returned: {part.text}]")
        if isinstance(part, ToolResultPart) and part.id not in called
        else part
        for part in one.parts
    ]
    return ParsedMessage(one.role, tuple(parts))


# -- OpenAI -----------------------------------------------------------------------------------------------------------


def openai(said: Iterable[ParsedMessage]) -> list[dict[str, Any]]:
    """Convert to the format of `client.chat.completions.create(messages=...)`."""
    return [message for one in said for message in _openai(one)]


def _openai(one: ParsedMessage) -> Iterator[dict[str, Any]]:
    if one.raw is not None and one.shape != ANTHROPIC:
        yield copy.deepcopy(one.raw)
        return
    for part in one.parts:
        if isinstance(part, ToolResultPart):
            yield {"role": "tool", "tool_call_id": part.id, "content": part.text}
    content = [part for part in one.parts if isinstance(part, TextPart | OpaquePart)]
    calls = [part for part in one.parts if isinstance(part, ToolCallPart)]
    if not content and not calls:
        return
    message: dict[str, Any] = {"role": one.role, "content": _openai_content(content)}
    if calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    yield message


def _openai_content(parts: Sequence[MessagePart]) -> Any:
    if all(isinstance(part, TextPart) for part in parts):
        return "\n".join(part.text for part in parts if isinstance(part, TextPart) and part.text) or (
            "" if parts else None
        )
    return [block for part in parts for block in _openai_block(part)] or None


def _openai_block(part: MessagePart) -> Iterator[dict[str, Any]]:
    if isinstance(part, TextPart):
        yield {"type": "text", "text": part.text}
    elif isinstance(part, OpaquePart) and part.kind == "image" and isinstance(source := part.raw.get("source"), dict):
        url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data')}"
        yield {"type": "image_url", "image_url": {"url": url}}
    elif isinstance(part, OpaquePart) and part.kind not in ("thinking", "redacted_thinking"):
        yield copy.deepcopy(part.raw) if part.kind == "image_url" else {"type": "text", "text": f"[{part.kind}]"}


# -- Anthropic --------------------------------------------------------------------------------------------------------


def anthropic(said: Iterable[ParsedMessage]) -> list[dict[str, Any]]:
    """Convert to the format of `client.messages.create(messages=...)`: no system messages, alternating roles."""
    messages: list[dict[str, Any]] = []
    for one in said:
        if one.role == "system":
            continue
        content = _anthropic_content(one)
        if not content:
            continue
        if messages and messages[-1]["role"] == one.role:
            messages[-1]["content"] = [*blocks(messages[-1]["content"]), *blocks(content)]
        else:
            messages += [{"role": "user", "content": BEGINS}] if not messages and one.role == "assistant" else []
            messages.append({"role": one.role, "content": content})
    return messages


def _anthropic_content(one: ParsedMessage) -> str | list[dict[str, Any]]:
    if one.raw is not None and one.shape != OPENAI:
        content = one.raw["content"]
        return content if isinstance(content, str) else copy.deepcopy(list(content))
    if all(isinstance(part, TextPart) for part in one.parts):
        return one.text
    # Anthropic requires tool results before text.
    parts = sorted(one.parts, key=lambda part: not isinstance(part, ToolResultPart))
    return [block for part in parts for block in _anthropic_block(part)]


def _anthropic_block(part: MessagePart) -> Iterator[dict[str, Any]]:
    if isinstance(part, TextPart):
        if part.text:
            yield {"type": "text", "text": part.text}
    elif isinstance(part, ToolCallPart):
        yield {"type": "tool_use", "id": part.id, "name": part.name, "input": _input(part.arguments)}
    elif isinstance(part, ToolResultPart):
        block = {"type": "tool_result", "tool_use_id": part.id, "content": part.text}
        yield {**block, "is_error": True} if part.error else block
    elif part.kind == "image_url":
        yield {"type": "image", "source": _source(part.raw)}
    else:
        yield copy.deepcopy(part.raw)


def blocks(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the content of a message as blocks."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _input(arguments: str) -> dict[str, Any]:
    try:
        given = json.loads(arguments or "{}")
    except ValueError:
        given = None
    return given if isinstance(given, dict) else {"arguments": arguments}


def _source(raw: dict[str, Any]) -> dict[str, str]:
    url = raw.get("image_url")
    text = str(url.get("url", "") if isinstance(url, dict) else url)
    head, _, data = text.partition(";base64,")
    if text.startswith("data:") and data:
        return {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}
    return {"type": "url", "url": text}
