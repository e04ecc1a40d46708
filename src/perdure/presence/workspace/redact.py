"""Removes texts from workspace documents. The rest of a document stays, and no file brings the text back."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perdure import records as r
from perdure.data import state
from perdure.errors import VersionConflict
from perdure.journal import objects
from perdure.journal.agent_writes import AgentWrite, RequireRevision, read_changes_at
from perdure.kernel.protocol import Protocol, Read
from perdure.kernel.write_routing import land
from perdure.memory.erasure.forget import RedactionResult
from perdure.platform.failpoints import Site
from perdure.presence.workspace.documents import (
    FORGOTTEN_LINES,
    SPACE,
    DocumentSet,
    WorkspaceDocument,
    ask,
    decode_text,
    shelf_of,
    to_state_value,
)
from perdure.presence.workspace.open_folder import home_of
from perdure.presence.workspace.redactions import FORGOTTEN, TextRedactor, remember_digests
from perdure.presence.workspace.replace_file import place_unjournaled
from perdure.presence.workspace.scan import SyncRound, list_archived
from perdure.presence.workspace.sync import TRIES, Synced, lock_folder, rounds
from perdure.presence.workspace.workspace import WorkspaceFolder, commit_folder

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

_EVER = (1 << 62) - 1

DocumentValue = Mapping[str, Any] | str | None
"""The value of a document's key; None if it was removed."""


class DocumentRedaction:
    """Replaces texts by marks in all documents and in the files of the open folder.

    Keeps the folder locked until `release`: until the journal is erased, generated files would contain the texts.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine, self._home = engine, home_of(engine)
        self._lock = -1

    def find(self, texts: Sequence[str]) -> Protocol[RedactionResult]:
        """Find the texts in archived logs. Everything else is in the journal too."""
        if self._home is None:
            return RedactionResult()
        found: dict[str, str] = yield Read(_find_archived, (self._home, TextRedactor(texts)))
        return RedactionResult(files=tuple(found))

    def redact(self, texts: Sequence[str]) -> Protocol[RedactionResult]:
        """Remove the texts. Returns where they were."""
        strike, home = TextRedactor(texts), self._home
        if home is None:
            paths = yield from _redact_documents(self._engine, strike)
            note = "a folder of the workspace that is not open here keeps it until it is synced"
            return RedactionResult(paths, notes=(note,) if paths else ())
        yield Read(home.root.make)
        if self._lock < 0:
            self._lock = yield from lock_folder(home.root)
        archived: tuple[str, ...] = yield Read(_redact_archived, (home, strike))
        paths = (*(yield from _redact_folder(self._engine, home, strike)), *archived)
        in_git = os.path.exists(os.path.join(home.root.path, ".git"))
        note = f"git keeps it in the history of {', '.join(paths)}"
        return RedactionResult(paths, archived, (note,) if paths and in_git else ())

    def release(self) -> None:
        """Unlock the folder."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _redact_folder(engine: Engine, home: WorkspaceFolder, strike: TextRedactor) -> Protocol[tuple[str, ...]]:
    """Redact the folder. Concurrent edits are read in the same round, and redacted before they are stored."""
    found, removed = dict[str, None](), dict[str, None]()

    def add_writes(plan: SyncRound) -> Sequence[AgentWrite]:
        texts = [text.file for text in plan.changes if text.file is not None and strike(text.file) != text.file]
        found.update(
            {
                text.path: None
                for text in plan.changes
                if _has(text.file, strike) or _has_document(text.document, strike)
            }
        )
        asks = _PastVersions(engine, strike).make_values(plan.shelf, texts)
        removed.update(
            {key: None for key, text in asks.items() if text == to_state_value(WorkspaceDocument(FORGOTTEN))}
        )
        written = {text.path for text in plan.changes if text.wanted != text.document}
        return [ask(engine, key, value) for key, value in asks.items() if key not in written]

    synced: Synced = yield from rounds(engine, home.root, "", strike, add_writes)
    yield from _remove_keys(engine, removed)
    yield from commit_folder(engine, home, synced)
    return tuple(found)


def _redact_documents(engine: Engine, strike: TextRedactor) -> Protocol[tuple[str, ...]]:
    for _ in range(TRIES):
        shelf: DocumentSet = yield Read(shelf_of, (engine,))
        new = {
            path: WorkspaceDocument(strike(text.text), strike(text.rendered)) for path, text in shelf.documents.items()
        }
        had = {path: text for path, text in new.items() if text != shelf.documents[path]}
        more: dict[str, Any] = yield Read(_PastVersions(engine, strike).make_values, (shelf, ()))
        asks = {**more, **{path: to_state_value(text) for path, text in had.items()}}
        if not asks:
            return ()
        wanted = [ask(engine, key, value) for key, value in asks.items()]
        try:
            yield from land(engine, Site.STATE, [RequireRevision((engine.stream, SPACE), shelf.revision), *wanted])
        except VersionConflict:
            continue  # a concurrent write: try again
        yield from _remove_keys(
            engine, [key for key, text in more.items() if text == to_state_value(WorkspaceDocument(FORGOTTEN))]
        )
        return tuple(had)
    raise VersionConflict("the documents change faster than they can be read")


def _remove_keys(engine: Engine, keys: Sequence[str] | Mapping[str, None]) -> Protocol[None]:
    if keys:
        yield from land(engine, Site.STATE, [ask(engine, key, None) for key in keys])


def _has(text: str | None, strike: TextRedactor) -> bool:
    return text is not None and strike(text) != text


def _has_document(text: WorkspaceDocument | None, strike: TextRedactor) -> bool:
    return text is not None and (_has(text.text, strike) or _has(text.rendered, strike))


class _PastVersions:
    """Finds what must be written again so that the entries with a text can be erased.

    An entry is erased whole, so keys written together with the text are written again. A removed key is set first, so
    that it can be removed again.
    """

    def __init__(self, engine: Engine, strike: TextRedactor) -> None:
        self._engine, self._strike = engine, strike
        self._entries: dict[tuple[int, int], list[r.StateChange]] = {}

    def make_values(self, shelf: DocumentSet, texts: Sequence[str]) -> dict[str, Any]:
        """Return the values to write by key, with the forgotten lines that an outdated folder must not bring back."""
        store, stream = self._engine.store, self._engine.stream
        rows = store.read("agent_state_at", (stream, SPACE, _EVER, _EVER))
        last = {key: (written_in, seq) for key, _, written_in, seq in rows}
        had = dict.fromkeys(texts)
        tainted = {place for key in last for place in self._find_tainted(key, had)}
        asks = {key: self._read_current(key) for key, place in last.items() if place in tainted}
        lines = remember_digests(store.content_key, shelf.forgotten, had, self._strike)
        return asks | ({FORGOTTEN_LINES: lines} if lines != shelf.forgotten else {})

    def _find_tainted(self, key: str, had: dict[str, None]) -> Iterator[tuple[int, int]]:
        """Yield the entries in which a key has the text, and collect what it was."""
        for _, _, stream, seq, _ in self._engine.store.read("state_history_of", (self._engine.stream, SPACE, key)):
            for text in (
                text for document in self._changes(stream, seq) if document.key == key for text in self._texts(document)
            ):
                if self._strike(text) != text:
                    had[text] = None
                    yield stream, seq

    def _changes(self, stream: int, seq: int) -> list[r.StateChange]:
        if (stream, seq) not in self._entries:
            found = read_changes_at(self._engine.store, stream, seq, r.StateChange)
            self._entries[stream, seq] = [
                text for text in found if text.space == SPACE and text.owner == self._engine.stream
            ]
        return self._entries[stream, seq]

    def _texts(self, text: r.StateChange) -> list[str]:
        value = objects.unpack(self._engine.store, text.value) if text.value else None
        return [value[name] for name in ("text", "rendered") if name in value] if isinstance(value, dict) else []

    def _read_current(self, key: str) -> Any:
        """Return the current value of a key, or a placeholder for a removed one."""
        seen = state.preview_after(self._engine, (self._engine.stream, SPACE, key), ())
        return seen.value if seen.there else to_state_value(WorkspaceDocument(FORGOTTEN))


def _find_archived(home: WorkspaceFolder, strike: TextRedactor) -> dict[str, str]:
    """Return the archived logs that have one of the texts. They exist only as files."""
    there = {path: decode_text(home.root.read(path) or b"") for path in list_archived(home.root)}
    return {path: text for path, text in there.items() if strike(text) != text}


def _redact_archived(home: WorkspaceFolder, strike: TextRedactor) -> tuple[str, ...]:
    changed = dict[str, None]()
    for _ in range(TRIES):
        found = _find_archived(home, strike)
        changed.update(dict.fromkeys(found))
        missed = [
            path for path, text in found.items() if not place_unjournaled(home.root, path, text, strike(text), strike)
        ]
        if not missed:
            break
    return tuple(changed)
