"""Messages in the shapes that providers take: each call with its result, and nothing that they would refuse."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .said import ANTHROPIC, OPENAI, Call, Other, Part, Result, Said, Text

NO_RESULT = "[no result of this call was recorded]"
BEGINS = "[the assistant begins]"
"""What the user says where a conversation begins with the assistant: some providers refuse that."""

Turn = Sequence[Said]
"""Messages that belong together: a call and its results, or one message."""


def whole(turn: Turn, *, last: bool) -> list[Said]:
    """A turn that a provider accepts: calls without a result get one that says so, unless it may still come.

    A result whose call is not there becomes words.
    """
    if not any(one.calls or one.results for one in turn):
        return list(turn)
    called = {ident for one in turn for ident in one.calls}
    answered = {ident for one in turn for ident in one.results}
    fixed = [one if set(one.results) <= called else _as_words(one, called) for one in turn]
    missing = [] if last else [ident for one in turn for ident in one.calls if ident not in answered]
    if not missing:
        return fixed
    made = Said("user", tuple(Result(ident, NO_RESULT, error=True) for ident in missing))
    place = max(place for place, one in enumerate(fixed) if one.calls or one.results) + 1
    return [*fixed[:place], made, *fixed[place:]]


def _as_words(one: Said, called: set[str]) -> Said:
    parts = [
        Text(f"[a tool returned: {part.text}]") if isinstance(part, Result) and part.id not in called else part
        for part in one.parts
    ]
    return Said(one.role, tuple(parts))


# -- OpenAI -----------------------------------------------------------------------------------------------------------


def openai(said: Iterable[Said]) -> list[dict[str, Any]]:
    """As `client.chat.completions.create(messages=...)` takes them."""
    return [message for one in said for message in _openai(one)]


def _openai(one: Said) -> Iterator[dict[str, Any]]:
    if one.raw is not None and one.shape != ANTHROPIC:
        yield copy.deepcopy(one.raw)
        return
    for part in one.parts:
        if isinstance(part, Result):
            yield {"role": "tool", "tool_call_id": part.id, "content": part.text}
    content = [part for part in one.parts if isinstance(part, Text | Other)]
    calls = [part for part in one.parts if isinstance(part, Call)]
    if not content and not calls:
        return
    message: dict[str, Any] = {"role": one.role, "content": _openai_content(content)}
    if calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    yield message


def _openai_content(parts: Sequence[Part]) -> Any:
    if all(isinstance(part, Text) for part in parts):
        return "\n".join(part.text for part in parts if isinstance(part, Text) and part.text) or ("" if parts else None)
    return [block for part in parts for block in _openai_block(part)] or None


def _openai_block(part: Part) -> Iterator[dict[str, Any]]:
    if isinstance(part, Text):
        yield {"type": "text", "text": part.text}
    elif isinstance(part, Other) and part.kind == "image" and isinstance(source := part.raw.get("source"), dict):
        url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data')}"
        yield {"type": "image_url", "image_url": {"url": url}}
    elif isinstance(part, Other) and part.kind not in ("thinking", "redacted_thinking"):
        yield copy.deepcopy(part.raw) if part.kind == "image_url" else {"type": "text", "text": f"[{part.kind}]"}


# -- Anthropic --------------------------------------------------------------------------------------------------------


def anthropic(said: Iterable[Said]) -> list[dict[str, Any]]:
    """As `client.messages.create(messages=...)` takes them: without system messages, and roles take turns."""
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


def _anthropic_content(one: Said) -> str | list[dict[str, Any]]:
    if one.raw is not None and one.shape != OPENAI:
        content = one.raw["content"]
        return content if isinstance(content, str) else copy.deepcopy(list(content))
    if all(isinstance(part, Text) for part in one.parts):
        return one.text
    # What a tool came to stands before words: so they want it.
    parts = sorted(one.parts, key=lambda part: not isinstance(part, Result))
    return [block for part in parts for block in _anthropic_block(part)]


def _anthropic_block(part: Part) -> Iterator[dict[str, Any]]:
    if isinstance(part, Text):
        if part.text:
            yield {"type": "text", "text": part.text}
    elif isinstance(part, Call):
        yield {"type": "tool_use", "id": part.id, "name": part.name, "input": _input(part.arguments)}
    elif isinstance(part, Result):
        block = {"type": "tool_result", "tool_use_id": part.id, "content": part.text}
        yield {**block, "is_error": True} if part.error else block
    elif part.kind == "image_url":
        yield {"type": "image", "source": _source(part.raw)}
    else:
        yield copy.deepcopy(part.raw)


def blocks(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The content of a message in parts."""
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
