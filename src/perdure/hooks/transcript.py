"""Makes a handoff note from the transcript of a session by extraction, without a model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from perdure.hooks.secrets import redact
from perdure.hooks.tool_events import clip, clip_end, describe_call

TAIL_BYTES = 8 * 1024 * 1024
"""How much of the end of a transcript is read."""
REQUEST_MAX = 400
ANSWER_MAX = 600
FILES_SHOWN = 15
COMMANDS_SHOWN = 5
TODOS_SHOWN = 10

_NOT_SAID = (
    "<command-",
    "<local-command",
    "<system-reminder>",
    "<environment_context",
    "<user_instructions",
    "Caveat:",
)
_OPENING = str.maketrans({"<": "‹"})
_LINES = frozenset({"user", "assistant", "message", "response_item", "gemini"})
"""Lines of a transcript in which somebody speaks. Others repeat requests, for example `api-request-blob`."""
_SUMMARIES = ("Another language model started to solve this problem and produced a summary",)
"""How Codex marks a summary, as a message of the user."""


class TranscriptNote(msgspec.Struct):
    """What a transcript says about a session."""

    requests: list[str] = []
    answer: str = ""
    files: dict[str, None] = {}
    commands: list[str] = []
    todos: list[str] = []

    def context(self) -> dict[str, str]:
        """Return the note as fields of a handoff, without secrets."""
        said = {
            "first_request": clip(redact(self.requests[0]), REQUEST_MAX) if self.requests else "",
            "last_request": clip(redact(self.requests[-1]), REQUEST_MAX) if len(self.requests) > 1 else "",
            "last_words_of_the_agent": _quote(clip_end(redact(self.answer), ANSWER_MAX)),
            "open_todos": clip(redact("; ".join(self.todos[:TODOS_SHOWN])), ANSWER_MAX),
            "files_edited": ", ".join(list(self.files)[-FILES_SHOWN:]),
            "last_commands": "; ".join(self.commands[-COMMANDS_SHOWN:]),
        }
        return {name: text for name, text in said.items() if text}


def read_note(path: str) -> TranscriptNote:
    """Read a transcript. Lines that cannot be read are left out; a missing file gives an empty note."""
    note = TranscriptNote()
    for role, part in _parts(path):
        _take(note, role, part)
    return note


def _quote(text: str) -> str:
    """Mark a text as data: an answer may repeat what a page or a file told the agent to say."""
    return f"<untrusted>{text.translate(_OPENING)}</untrusted>" if text else ""


def _take(note: TranscriptNote, role: str, part: Any) -> None:
    kind = part.get("type") if isinstance(part, Mapping) else "text"
    if kind in ("tool_use", "function_call"):
        _take_call(note, part)
        return
    text = part.get("text") if isinstance(part, Mapping) else part
    if not isinstance(text, str) or not text.strip() or text.lstrip().startswith((*_NOT_SAID, *_SUMMARIES)):
        return
    if role == "user":
        note.requests.append(text)
    elif role in ("assistant", "gemini"):
        note.answer = text


def _take_call(note: TranscriptNote, part: Mapping[str, Any]) -> None:
    given = part.get("input", part.get("arguments", part.get("args")))
    if isinstance(given, str):
        given = _decode(given.encode())
    if not isinstance(given, Mapping):
        return
    todos = given.get("todos", given.get("plan"))
    if isinstance(todos, list):
        note.todos = [
            str(todo.get("content") or todo.get("step") or "")
            for todo in todos
            if isinstance(todo, Mapping) and todo.get("status") != "completed"
        ]
        return
    name = str(part.get("name") or "")
    event = describe_call({"tool_name": name, "tool_input": given}, "", "")
    if event is None or name in ("Read", "Grep", "Glob", "LS", "read_file"):
        return
    note.files.update(dict.fromkeys(event.result.get("files", ())))
    if "command" in event.result:
        note.commands.append(event.result["command"])


def _parts(path: str) -> Iterator[tuple[str, Any]]:
    """Yield the role and each part of every message: of Claude Code, Codex and Gemini CLI."""
    for line in _lines(path):
        if not isinstance(line, Mapping) or any(line.get(key) for key in ("isMeta", "isSidechain", "isCompactSummary")):
            continue
        inner = line.get("messages")
        for message in inner if isinstance(inner, list) else [line]:
            yield from _message_parts(message)


def _message_parts(line: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(line, Mapping) or line.get("type", "message") not in _LINES:
        return
    inner = line.get("message") or line.get("payload") or line
    if not isinstance(inner, Mapping):
        return
    role = str(inner.get("role") or line.get("type") or "")
    if inner.get("type") == "function_call":
        yield role, inner
        return
    content = inner.get("content")
    yield from ((role, part) for part in (content if isinstance(content, list) else [content]))
    for call in inner.get("toolCalls") or ():
        if isinstance(call, Mapping):
            yield role, {**call, "type": "tool_use"}


def _lines(path: str) -> Iterator[Any]:
    """Yield the JSON values of a file: one per line, or one in all."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - TAIL_BYTES))
            data = file.read(TAIL_BYTES)
    except OSError:
        return
    whole = _decode(data) if path.endswith(".json") else None
    if whole is not None:
        yield whole
        return
    yield from (value for line in data.splitlines() if (value := _decode(line)) is not None)


def _decode(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
