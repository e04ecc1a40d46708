"""Transcripts of Claude Code: one JSONL file per session, in a folder per project."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perdure.importers.items import ImportedConversation, ImportedItem, clean_text, clean_value, first_line, title_of
from perdure.importers.reader import ImportReader, parse_moment

MESSAGES_MAX = 200_000
_SAID = ("user", "assistant")
_ADDED = ("isMeta", "isCompactSummary")
"""Marks of lines that nobody said: notes of the program, and the summary that a compaction leaves."""

_OUTPUT = "<local-command-"
"""How the output of a slash command begins, as a message of the user."""


def find_default() -> Path:
    """Return where Claude Code keeps its transcripts."""
    home = os.environ.get("CLAUDE_CONFIG_DIR") or os.path.join(os.path.expanduser("~"), ".claude")
    return Path(home, "projects")


def read_claude_code(reader: ImportReader) -> Iterator[ImportedItem]:
    """Yield the sessions of a folder, or of one file."""
    for path in reader.list_files(".jsonl"):
        session = _read_session(reader, path)
        if session is not None:
            yield session


def _read_session(reader: ImportReader, path: Path) -> ImportedConversation | None:
    """Read a session. A subagent has a file of its own; in the file of its parent its messages are left out."""
    own_file = path.name.startswith("agent-")
    messages, times, title, meta = list[dict[str, Any]](), list[int](), "", {"path": str(path)}
    for number, entry in reader.read_lines(path):
        if entry.get("type") == "summary" and isinstance(entry.get("summary"), str):
            title = first_line(clean_text(entry["summary"]))
        if entry.get("type") not in _SAID or any(map(entry.get, _ADDED)) or (entry.get("isSidechain") and not own_file):
            continue
        message = _to_message(entry.get("message"))
        if message is None:
            continue
        if len(messages) >= MESSAGES_MAX:
            reader.note(f"{path}:{number}", f"more than {MESSAGES_MAX:,} messages: the others were not read")
            break
        messages.append(message)
        times.append(parse_moment(entry.get("timestamp")))
        meta |= _describe(entry)
    if not messages:
        return None
    key = f"{meta.get('session', path.parent.name)}/{path.stem}" if own_file else path.stem
    return ImportedConversation(key, title or title_of(messages), messages, times, meta)


def _describe(entry: dict[str, Any]) -> dict[str, str]:
    named = {"session": "sessionId", "folder": "cwd", "branch": "gitBranch"}
    return {name: clean_text(entry[field]) for name, field in named.items() if isinstance(entry.get(field), str)}


def _to_message(message: Any) -> dict[str, Any] | None:
    """Return a message of the Messages API without thinking, whose signatures bind it to its session, and images."""
    if not isinstance(message, dict) or message.get("role") not in _SAID:
        return None
    content = message.get("content")
    if isinstance(content, str):
        said = content.strip() and not content.startswith(_OUTPUT)
        return {"role": message["role"], "content": clean_text(content)} if said else None
    blocks = [found for block in content or () if (found := _to_block(block))] if isinstance(content, list) else []
    return {"role": message["role"], "content": blocks} if blocks else None


def _to_block(block: Any) -> dict[str, Any] | None:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "text" and isinstance(block.get("text"), str):
        return {"type": "text", "text": clean_text(block["text"])}
    if kind == "tool_use":
        names = {name: clean_text(str(block.get(name, ""))) for name in ("id", "name")}
        return {"type": "tool_use", **names, "input": clean_value(block.get("input") or {})}
    if kind == "tool_result":
        told = {"type": "tool_result", "tool_use_id": clean_text(str(block.get("tool_use_id", "")))}
        return {**told, "content": _result_text(block.get("content"))}
    if kind in ("image", "document"):
        return {"type": "text", "text": f"[{kind}]"}
    return None


def _result_text(content: Any) -> str:
    if isinstance(content, list):
        parts = [part if isinstance(part, dict) else {"text": str(part)} for part in content]
        return clean_text("\n".join(str(part.get("text", f"[{part.get('type', 'data')}]")) for part in parts))
    return clean_text("" if content is None else str(content))
