"""The documents of an agent, stored as state in their own namespace, so that every edit is a journal entry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.data import state
from perdure.errors import WrongType
from perdure.journal import objects
from perdure.journal.agent_writes import SetKey
from perdure.journal.retention_rules import DOCUMENTS
from perdure.kernel.protocol import Protocol, Read
from perdure.presence.workspace.layout import CONTEXTS, GENERATED, PLAYBOOKS, check_path, path_in

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

SPACE = DOCUMENTS
"""The namespace of the documents."""
LOGGED = ":logged"
"""The key of the position up to which log events are in the daily files."""
CONTEXT = ":context"
"""The key of the selected context's name."""
FORGOTTEN_LINES = ":forgotten"
"""The key of forgotten lines, as digests with their replacements."""


class WorkspaceDocument(msgspec.Struct, frozen=True):
    """A file as stored in the journal."""

    text: str
    rendered: str = ""
    """For a generated file: the last generated text, before people added to it."""


class FileVersion(msgspec.Struct, frozen=True):
    """A past version of a file."""

    version: int
    text: str
    at: datetime
    deleted: bool = False


class DocumentSet(msgspec.Struct, frozen=True):
    """All documents at one moment."""

    revision: int
    """The revision of the namespace. A write based on an outdated one is refused."""
    documents: dict[str, WorkspaceDocument]
    logged: str
    context: str
    forgotten: dict[str, str] = {}


def shelf_of(engine: Engine) -> DocumentSet:
    """Read all documents. The revision is read first, so a concurrent change makes it too old, never too new."""
    revision = state.revision(engine, SPACE)
    rows = engine.store.read("agent_state_of", (engine.stream, SPACE, engine.store.clock.wall_ms()))
    values = {key: objects.unpack(engine.store, packed) for key, packed, *_ in rows}
    logged, context = str(values.pop(LOGGED, "")), str(values.pop(CONTEXT, ""))
    forgotten = values.pop(FORGOTTEN_LINES, {})
    return DocumentSet(revision, {path: _document(value) for path, value in values.items()}, logged, context, forgotten)


def _document(value: Any) -> WorkspaceDocument:
    return WorkspaceDocument(value["text"], value["text"] if value.get("made") else value.get("rendered", ""))


def to_state_value(document: WorkspaceDocument) -> dict[str, str | bool]:
    """Return a document as a value of the state."""
    if document.rendered == document.text:
        return {"text": document.text, "made": True}
    return {"text": document.text, "rendered": document.rendered} if document.rendered else {"text": document.text}


def ask(engine: Engine, key: str, value: object) -> SetKey:
    """Return a write that sets one key; None deletes it."""
    at = state.place(engine, SPACE, key)
    return state.ask_set(engine, at, value, None, None) if value is not None else SetKey(at)


def digest(text: str) -> str:
    """Return the digest by which a folder records what it was last synced with."""
    return sha256(encode_text(text)).hexdigest()


def encode_text(text: str) -> bytes:
    """Encode the text of a file. Bytes that were not UTF-8 when read are restored."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a lone surrogate, written by a program
        return text.encode("utf-8", "replace")


def decode_text(data: bytes) -> str:
    """Decode the text of a file."""
    return data.decode("utf-8", "surrogateescape")


def text_of(engine: Engine, path: str, wanted: str) -> str | None:
    """Return the version of a document whose digest has this prefix; None if there is none."""
    for version in reversed(state.history(engine, SPACE, path)):
        if version.value is not None and digest(version.value["text"]).startswith(wanted):
            return str(version.value["text"])
    return None


def history(engine: Engine, path: str) -> list[FileVersion]:
    """Return all versions of a file, oldest first."""
    found = state.history(engine, SPACE, check_path(path))
    return [
        FileVersion(version.version, version.value["text"] if version.value else "", version.at, version.deleted)
        for version in found
    ]


# -- changing ---------------------------------------------------------------------------------------------------------


def write(engine: Engine, path: str, text: str | None) -> Protocol[None]:
    """Set a document; None deletes it. In a step it is committed with the step."""
    if text is not None and not isinstance(text, str):
        raise WrongType(f"the content of a workspace file must be a text, not {type(text).__name__}")
    if text is not None and (path in GENERATED or str(path).startswith(f"{PLAYBOOKS}/")):
        yield from _rewrite(engine, path, lambda _: text)
        return
    value = None if text is None else to_state_value(WorkspaceDocument(text))
    asks: Sequence[SetKey] = [(yield Read(ask, (engine, check_path(path), value)))]
    yield from state.change(engine, asks)


def append(engine: Engine, path: str, text: str) -> Protocol[None]:
    """Append to a document. Concurrent appends are all kept."""
    if not isinstance(text, str):
        raise WrongType(f"the content of a workspace file must be a text, not {type(text).__name__}")
    yield from _rewrite(engine, path, lambda before: append_lines(before, text))


def _rewrite(engine: Engine, path: str, make: Callable[[str], str]) -> Protocol[None]:
    """Change a document based on its current text. The last generated text stays recorded."""
    at = yield Read(state.place, (engine, SPACE, check_path(path)))

    def change(value: Any) -> Any:
        known = _document(value) if value else WorkspaceDocument("")
        return to_state_value(WorkspaceDocument(make(known.text), known.rendered))

    yield from state.change(engine, [state.ask_update(engine, at, change, None)])


def append_lines(before: str, text: str) -> str:
    """Append lines to a text, with its line ending."""
    end = "\r\n" if "\r\n" in before else "\n"
    added = text.replace("\r\n", "\n").replace("\n", end) if "\r\n" in before else text
    gap = "" if not before or before.endswith("\n") else end
    return f"{before}{gap}{added}{'' if added.endswith(end) else end}"


def switch(engine: Engine, name: str | None) -> Protocol[None]:
    """Select a context, or none."""
    if name is not None:
        path_in(CONTEXTS, name)
    asks = [(yield Read(ask, (engine, CONTEXT, name)))]
    yield from state.change(engine, asks)
