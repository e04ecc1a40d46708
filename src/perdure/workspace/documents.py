"""The documents of an agent: state in a namespace of its own, so that every edit is an entry of the journal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from .. import objects, state
from ..journal.keeping import DOCUMENTS
from ..journal.landing import Ask
from ..run.requests import Protocol, Read
from .layout import CONTEXTS, GENERATED, checked_path, path_in

if TYPE_CHECKING:
    from ..engine import Engine

SPACE = DOCUMENTS
"""The namespace of the documents."""
LOGGED = ":logged"
"""Up to which event what was logged is in the files of the days."""
CONTEXT = ":context"
"""The name of the selected context."""
FORGOTTEN_LINES = ":forgotten"
"""Lines that were forgotten, as digests, and what stands in their place."""


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
    forgotten: dict[str, str] = {}


def shelf_of(engine: Engine) -> Shelf:
    """What there is now. The revision is read first: what changes meanwhile makes it too old, and never too new."""
    revision = state.revision(engine, SPACE)
    rows = engine.store.read("entries_of", (engine.stream, SPACE, engine.store.clock.wall_ms()))
    values = {row[0]: objects.unpack(engine.store, row[1]) for row in rows}
    logged, context = str(values.pop(LOGGED, "")), str(values.pop(CONTEXT, ""))
    forgotten = values.pop(FORGOTTEN_LINES, {})
    return Shelf(revision, {path: _document(value) for path, value in values.items()}, logged, context, forgotten)


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
    """The version of a document whose digest begins like that; None when it is not known, or not any more."""
    for version in reversed(state.history(engine, SPACE, path)):
        if version.value is not None and digest(version.value["text"]).startswith(wanted):
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
    if text is not None and path in GENERATED:
        yield from _rewrite(engine, path, lambda _: text)
        return
    value = None if text is None else stored(Document(text))
    asks: Sequence[Ask] = [(yield Read(ask, (engine, checked_path(path), value)))]
    yield from state.change(engine, asks)


def append(engine: Engine, path: str, text: str) -> Protocol[None]:
    """Add to the end of a document; whatever others add at the same time is there too."""
    if not isinstance(text, str):
        raise TypeError(f"a file of a workspace has text, not {type(text).__name__}")
    yield from _rewrite(engine, path, lambda before: with_more(before, text))


def _rewrite(engine: Engine, path: str, make: Callable[[str], str]) -> Protocol[None]:
    """Change a document by what it is; of one that is made, what was made last stays known."""
    at = yield Read(state.place, (engine, SPACE, checked_path(path)))

    def change(value: Any) -> Any:
        known = _document(value) if value else Document("")
        return stored(Document(make(known.text), known.rendered))

    yield from state.change(engine, [state.ask_update(engine, at, change, None)])


def with_more(before: str, text: str) -> str:
    """A text with lines at its end, which end as the others do."""
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
