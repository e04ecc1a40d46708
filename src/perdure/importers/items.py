"""What a source yields: notes and conversations, each with an id that stays the same at the next import."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from perdure.values.limits import MEMORY_CHARACTERS_MAX

MESSAGE_CHARACTERS_MAX = 1_000_000
"""Longer texts of messages are cut, with a note."""
DEPTH_MAX = 64
"""Values of tool calls that are nested deeper are stored as text."""
TITLE_CHARACTERS_MAX = 120


class ImportedNote(msgspec.Struct, frozen=True):
    """A text that becomes a memory."""

    key: str
    """Identifies it within its source, at every import."""
    text: str
    kind: str = "semantic"
    user: str = ""
    tags: tuple[str, ...] = ()
    at: int = 0
    """When it was valid first, in milliseconds since 1970; 0 if unknown."""
    thread: str = ""
    meta: dict[str, Any] = {}


class ImportedConversation(msgspec.Struct, frozen=True):
    """A conversation that becomes a thread."""

    key: str
    title: str
    messages: list[dict[str, Any]]
    """Messages with a role and content, in the format of a provider."""
    times: list[int] = []
    """The time of each message in milliseconds, 0 if unknown; empty if no time is known."""
    meta: dict[str, Any] = {}

    def to_notes(self, thread: str) -> Iterator[ImportedNote]:
        """Yield what people and models have said, as memories of one thread. Tool calls are left out."""
        for number, message in enumerate(self.messages):
            text = text_of(message.get("content"))
            if text.strip() and message.get("role") in ("user", "assistant"):
                at = self.times[number] if number < len(self.times) else 0
                meta = {"role": message["role"], "title": self.title}
                cut = text[:MEMORY_CHARACTERS_MAX]
                yield ImportedNote(f"{self.key}#{number}", cut, "episodic", at=at, thread=thread, meta=meta)


ImportedItem = ImportedNote | ImportedConversation


def text_of(content: Any) -> str:
    """Return the text of a message's content."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    texts = [block.get("text") for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str))


def clean_text(text: str) -> str:
    """Return a text that can be stored: without lone surrogates and NUL characters, and not too long."""
    clean = text.encode("utf-8", "replace").decode().replace("\0", "")
    if len(clean) <= MESSAGE_CHARACTERS_MAX:
        return clean
    return f"{clean[:MESSAGE_CHARACTERS_MAX]}\n[{len(clean) - MESSAGE_CHARACTERS_MAX:,} more characters were cut]"


def clean_value(value: Any, depth: int = 0) -> Any:
    """Return a JSON value with clean texts. What is nested too deep becomes text."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, int | float | None):
        # The codec stores integers of any size; JSON's NaN and infinities are kept as floats.
        return value
    if depth >= DEPTH_MAX:
        return clean_text(str(value)[:1000])
    if isinstance(value, dict):
        return {clean_text(str(name)): clean_value(inner, depth + 1) for name, inner in value.items()}
    return [clean_value(inner, depth + 1) for inner in value]


def first_line(text: str) -> str:
    """Return the first line of a text, as a title."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= TITLE_CHARACTERS_MAX else f"{line[: TITLE_CHARACTERS_MAX - 1]}…"


def title_of(messages: list[dict[str, Any]]) -> str:
    """Return the first line that the user said."""
    texts = (text_of(message["content"]) for message in messages if message["role"] == "user")
    return next(filter(None, map(first_line, texts)), "")
