"""The data export of ChatGPT: a zip file, its folder, or `conversations.json` alone."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from perdure.importers.items import ImportedConversation, ImportedItem, clean_text, title_of
from perdure.importers.reader import ImportReader, parse_moment

_SAID = ("user", "assistant")
_SPOKEN = ("text", "multimodal_text", "code")
"""Content types of what was said. Others are thoughts, browser state and hidden instructions."""


def read_chatgpt(reader: ImportReader) -> Iterator[ImportedItem]:
    """Yield the conversations of an export."""
    for place, content in _read_parts(reader):
        for number, raw in enumerate(reader.split_json_list(place, content)):
            where = f"{place}[{number}]"
            conversation = reader.parse_json(where, bytes(raw))
            if conversation is not None:
                found = _read_conversation(reader, where, conversation)
                if found is not None:
                    yield found


def _read_parts(reader: ImportReader) -> Iterator[tuple[str, bytes]]:
    for path in reader.list_files(".json", ".zip"):
        if zipfile.is_zipfile(path):
            yield from reader.read_zip(path, _is_part)
        elif (_is_part(path.name) or path == reader.root) and (content := reader.read_bytes(path)) is not None:
            yield str(path), content


def _is_part(name: str) -> bool:
    """Large exports have conversations-000.json and so on."""
    base = PurePosixPath(name).name
    return base.startswith("conversations") and base.endswith(".json")


def _read_conversation(reader: ImportReader, where: str, conversation: Any) -> ImportedConversation | None:
    mapping = conversation.get("mapping") if isinstance(conversation, dict) else None
    key = conversation.get("conversation_id") or conversation.get("id") if isinstance(conversation, dict) else None
    if not isinstance(mapping, dict) or not isinstance(key, str):
        reader.note(where, "not a conversation: it has no id or no messages")
        return None
    nodes = _walk_branch(mapping, conversation.get("current_node"))
    said = [(message, node) for node in nodes if (message := _to_message(node)) is not None]
    if not said:
        return None
    messages = [message for message, _ in said]
    times = [parse_moment(node.get("create_time")) for _, node in said]
    title = conversation.get("title")
    meta = {"path": where.rpartition("[")[0]}
    if isinstance(model := conversation.get("default_model_slug"), str):
        meta["model"] = clean_text(model)
    shown = clean_text(title) if isinstance(title, str) and title else title_of(messages)
    return ImportedConversation(clean_text(key), shown, messages, times, meta)


def _walk_branch(mapping: dict[str, Any], current: Any) -> list[dict[str, Any]]:
    """Return the messages that the user saw last: from the root to the current node. Edited branches are left out."""
    if not isinstance(current, str) or current not in mapping:
        leaves = [key for key, node in mapping.items() if isinstance(node, dict) and not node.get("children")]
        current = leaves[-1] if leaves else None
    found, seen = list[dict[str, Any]](), set[str]()
    while isinstance(current, str) and current not in seen and isinstance(node := mapping.get(current), dict):
        seen.add(current)
        if isinstance(node.get("message"), dict):
            found.append(node["message"])
        current = node.get("parent")
    return found[::-1]


def _to_message(node: dict[str, Any]) -> dict[str, Any] | None:
    author, content, meta = (node.get(name) for name in ("author", "content", "metadata"))
    role = author.get("role") if isinstance(author, dict) else None
    if role not in _SAID or not isinstance(content, dict) or content.get("content_type") not in _SPOKEN:
        return None
    if isinstance(meta, dict) and meta.get("is_visually_hidden_from_conversation"):
        return None
    parts = content.get("parts")
    texts = [_part_text(part) for part in parts] if isinstance(parts, list) else [str(content.get("text") or "")]
    text = clean_text("\n".join(filter(None, texts)))
    return {"role": role, "content": text} if text.strip() else None


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return str(part["text"])  # a transcribed recording
    kind = str(part.get("content_type", "")) if isinstance(part, dict) else ""
    return "[image]" if kind.startswith("image") else "[attachment]"
