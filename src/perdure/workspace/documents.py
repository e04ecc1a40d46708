"""The documents of an agent: state in a namespace of its own, so that every edit is an entry of the journal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from .. import objects, state
from ..journal.keeping import OURS
from ..journal.landing import Ask
from ..run.requests import Protocol, Read
from .layout import CONTEXTS, checked_path, path_in

if TYPE_CHECKING:
    from ..engine import Engine

SPACE = f"{OURS}workspace"
"""The namespace of the documents."""
LOGGED = ":logged"
"""Up to which event what was logged is in the files of the days."""
CONTEXT = ":context"
"""The name of the selected context."""


class Document(msgspec.Struct, frozen=True):
    """A file as the journal has it."""

    text: str
    rendered: str = ""
    """Of a file that is made from the journal: what was made last, before people added to it."""


class FileVersion(msgspec.Struct, frozen=True):
    """What a file of a workspace was at some time."""

    version: int
    text: str
    at: datetime
    deleted: bool = False


class Shelf(msgspec.Struct, frozen=True):
    """All documents at one moment."""

    revision: int
    """Of the namespace: whoever writes by what he has read here says so, and is refused when it has changed."""
    documents: dict[str, Document]
    logged: str
    context: str


def shelf_of(engine: Engine) -> Shelf:
    """What there is now. The revision is read first: what changes meanwhile makes it too old, and never too new."""
    revision = state.revision(engine, SPACE)
    rows = engine.store.read("entries_of", (engine.stream, SPACE, engine.store.clock.wall_ms()))
    values = {row[0]: objects.unpack(engine.store, row[1]) for row in rows}
    logged, context = str(values.pop(LOGGED, "")), str(values.pop(CONTEXT, ""))
    return Shelf(revision, {path: _document(value) for path, value in values.items()}, logged, context)


def _document(value: Any) -> Document:
    return Document(value["text"], value["text"] if value.get("made") else value.get("rendered", ""))


def stored(it: Document) -> dict[str, str | bool]:
    """As a value of the state."""
    if it.rendered == it.text:
        return {"text": it.text, "made": True}
    return {"text": it.text, "rendered": it.rendered} if it.rendered else {"text": it.text}


def ask(engine: Engine, key: str, value: object) -> Ask:
    """A change of one key; None removes it."""
    at = state.place(engine, SPACE, key)
    return state.ask_set(engine, at, value, None, None) if value is not None else Ask(at)


def digest(text: str) -> str:
    """By which a folder says what it was last in step with."""
    return sha256(encoded(text)).hexdigest()


def encoded(text: str) -> bytes:
    """The bytes of a file. What was no UTF-8 when it was read is written as it was."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half of a pair, that a program has written
        return text.encode("utf-8", "replace")


def decoded(data: bytes) -> str:
    """The text of a file."""
    return data.decode("utf-8", "surrogateescape")


def text_of(engine: Engine, path: str, wanted: str) -> str | None:
    """The version of a document that has a digest; None when it is not known, or not any more."""
    for version in reversed(state.history(engine, SPACE, path)):
        if version.value is not None and digest(version.value["text"]) == wanted:
            return str(version.value["text"])
    return None


def history(engine: Engine, path: str) -> list[FileVersion]:
    """Everything that a file has been, oldest first."""
    found = state.history(engine, SPACE, checked_path(path))
    return [FileVersion(it.version, it.value["text"] if it.value else "", it.at, it.deleted) for it in found]


# -- changing ---------------------------------------------------------------------------------------------------------


def write(engine: Engine, path: str, text: str | None) -> Protocol[None]:
    """Set a document; None removes it. In a step it lands with the step."""
    if text is not None and not isinstance(text, str):
        raise TypeError(f"a file of a workspace has text, not {type(text).__name__}")
    path = checked_path(path)
    value = None if text is None else stored(Document(text))
    asks: Sequence[Ask] = [(yield Read(ask, (engine, path, value)))]
    yield from state.change(engine, asks)


def append(engine: Engine, path: str, text: str) -> Protocol[None]:
    """Add to the end of a document; whatever others add at the same time is there too."""
    if not isinstance(text, str):
        raise TypeError(f"a file of a workspace has text, not {type(text).__name__}")
    at = yield Read(state.place, (engine, SPACE, checked_path(path)))

    def add(value: Any) -> Any:
        before = value["text"] if value else ""
        gap = "" if not before or before.endswith("\n") else "\n"
        added = f"{before}{gap}{text}{'' if text.endswith(chr(10)) else chr(10)}"
        return {**(value or {}), "text": added}

    yield from state.change(engine, [state.ask_update(engine, at, add, None)])


def switch(engine: Engine, name: str | None) -> Protocol[None]:
    """Select a context, or none."""
    if name is not None:
        path_in(CONTEXTS, name)
    asks = [(yield Read(ask, (engine, CONTEXT, name)))]
    yield from state.change(engine, asks)
