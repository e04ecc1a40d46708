"""Agent files of Letta (`.af`): memory blocks become memories, the messages of each agent a thread."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from perdure.importers.items import ImportedConversation, ImportedItem, ImportedNote, clean_text, text_of, title_of
from perdure.importers.reader import JSON_ERRORS, ImportReader, parse_moment
from perdure.values.limits import MEMORY_CHARACTERS_MAX


def read_letta(reader: ImportReader) -> Iterator[ImportedItem]:
    """Yield what the agent files at the path contain."""
    for path in reader.list_files(".af"):
        data = reader.read_json(path)
        if not isinstance(data, dict):
            if data is not None:
                reader.note(path, "not an agent file: no JSON object")
            continue
        agents = _dicts(data["agents"]) if "agents" in data else [data]
        found = [item for agent in agents for item in _read_agent(path, agent)]
        found += _read_blocks(path.stem, data.get("blocks")) if "agents" in data else []
        found = list(_number_keys(found))
        if not found:
            reader.note(path, "no memory blocks and no messages in it")
        yield from found


def _number_keys(items: list[ImportedItem]) -> Iterator[ImportedItem]:
    """Tell apart what has the same name in one file: agents often have a block `human` each."""
    seen = Counter[tuple[type[ImportedItem], str]]()
    for item in items:
        name = (type(item), item.key)
        seen[name] += 1
        yield item if seen[name] == 1 else msgspec.structs.replace(item, key=f"{item.key}#{seen[name]}")


def _read_agent(path: Path, agent: dict[str, Any]) -> Iterator[ImportedItem]:
    name = clean_text(str(agent.get("name") or path.stem))
    yield from _read_blocks(name, agent.get("core_memory") or agent.get("memory_blocks"))
    said = [(message, entry) for entry in _dicts(agent.get("messages")) if (message := _to_message(entry)) is not None]
    if said:
        messages, times = [message for message, _ in said], [parse_moment(one.get("created_at")) for _, one in said]
        yield ImportedConversation(name, name or title_of(messages), messages, times, {"path": str(path)})


def _read_blocks(owner: str, blocks: Any) -> Iterator[ImportedNote]:
    for block in _dicts(blocks):
        label, value = block.get("label"), block.get("value")
        if isinstance(label, str) and isinstance(value, str) and value.strip():
            text = clean_text(value)[:MEMORY_CHARACTERS_MAX]
            label = clean_text(label) or "block"
            yield ImportedNote(f"{owner}/{label}", text, tags=(label,), meta={"block": label, "agent": owner})


def _dicts(found: Any) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _to_message(entry: dict[str, Any]) -> dict[str, Any] | None:
    """Return what the user or the agent said. An agent of Letta speaks by calling the tool `send_message`."""
    role, content = entry.get("role"), entry.get("content", entry.get("text"))
    if role == "user":
        text = _unwrap(text_of(content))
    elif role == "assistant":
        text = "\n".join(filter(None, [*_sent_texts(entry.get("tool_calls")), text_of(content)]))
    else:
        return None
    return {"role": role, "content": clean_text(text)} if text.strip() else None


def _unwrap(text: str) -> str:
    """Return the words of the user: Letta wraps them in JSON, and also sends alerts and heartbeats as the user."""
    if not text.startswith("{"):
        return text
    try:
        wrapped = json.loads(text)
    except JSON_ERRORS:
        return text
    if not isinstance(wrapped, dict) or "type" not in wrapped:
        return text
    return str(wrapped.get("message") or "") if wrapped["type"] == "user_message" else ""


def _sent_texts(calls: Any) -> Iterator[str]:
    for call in _dicts(calls):
        function = call.get("function")
        if not isinstance(function, dict) or function.get("name") != "send_message":
            continue
        try:
            given = json.loads(str(function.get("arguments")))
        except JSON_ERRORS:
            continue  # a call that the model did not finish
        if isinstance(given, dict) and isinstance(given.get("message"), str):
            yield given["message"]
