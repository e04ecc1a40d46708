"""Writes what was read, each thing once: a ledger in the agent's state has the digest of everything imported.

The ledger's entry of a note lands in the commit of its memory. A conversation carries its digest itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

import msgspec

from perdure.data import state
from perdure.data.namespaces import read_keys
from perdure.errors import ThreadConflict, ThreadDeleted, VersionConflict
from perdure.importers.items import ImportedConversation, ImportedItem, ImportedNote
from perdure.journal.agent_writes import SetKey
from perdure.journal.retention_rules import OURS
from perdure.kernel.engine import Engine
from perdure.kernel.names import check_storable_name
from perdure.kernel.protocol import Protocol, Read, drive_sync
from perdure.kernel.write_routing import land
from perdure.memory.arguments import MemoryRequest, check_tags, check_text
from perdure.memory.read import find_by_id
from perdure.memory.remember import make_writes
from perdure.platform.failpoints import Site
from perdure.values import codec
from perdure.work.threads import read, write

SPACE = f"{OURS}imports"
BATCH = 50
"""Notes of one commit."""
ATTEMPTS_MAX = 5
"""How often a write is tried again that another import of the same source has overtaken."""


class ImportPolicy(msgspec.Struct, frozen=True):
    """How a source is imported."""

    source: str
    trust: float = 0.0
    user: str = ""
    memories: bool = False
    """Whether the texts of conversations become memories too."""
    again: bool = False
    """Whether to import what was deleted since the last import."""
    dry_run: bool = False


class ImportCounts(msgspec.Struct):
    """What an import has done."""

    new: int = 0
    updated: int = 0
    unchanged: int = 0

    @property
    def total(self) -> int:
        """The number of things that were read."""
        return self.new + self.updated + self.unchanged


class LedgerEntry(msgspec.Struct, frozen=True):
    """What the ledger knows of one thing."""

    digest: str
    target: str
    """The memory or the thread that it became."""
    version: int = 0


class ImportWriter:
    """Imports things into one agent. Everything that it has returned from is on disk."""

    def __init__(self, engine: Engine, policy: ImportPolicy) -> None:
        self._engine, self._policy = engine, policy
        self.threads, self.memories = ImportCounts(), ImportCounts()
        self._waiting: list[ImportedNote] = []

    def add(self, item: ImportedItem) -> None:
        """Import one thing, at the latest when `flush` returns."""
        if isinstance(item, ImportedNote):
            self._add_note(item)
            return
        thread = f"{self._policy.source}/{item.key}"
        self._do(self._import_conversation(item, thread))
        if self._policy.memories:
            for note in item.to_notes(thread):
                self._add_note(note)

    def _add_note(self, note: ImportedNote) -> None:
        # Refused here, alone: in the commit it would take the notes beside it along.
        check_text(note.text)
        check_tags(note.tags)
        check_storable_name(note.user, "the user")
        codec.encode(note.meta, "meta")
        # A key twice in one commit would be one entry of the ledger for two memories.
        if len(self._waiting) >= BATCH or any(note.key == other.key for other in self._waiting):
            self.flush()
        self._waiting.append(note)

    def flush(self) -> None:
        """Write the notes that wait."""
        notes, self._waiting = self._waiting, []
        if notes:
            self._do(self._import_notes(notes))

    def _do(self, protocol: Protocol[None]) -> None:
        drive_sync(self._engine.store, protocol)

    # -- notes ---------------------------------------------------------------------------------------------------------

    def _import_notes(self, notes: Sequence[ImportedNote]) -> Protocol[None]:
        for attempt in range(ATTEMPTS_MAX):
            try:
                counts = yield from self._write_notes(notes)
            except VersionConflict:
                if attempt == ATTEMPTS_MAX - 1:
                    raise
                continue
            for name in ("new", "updated", "unchanged"):
                setattr(self.memories, name, getattr(self.memories, name) + getattr(counts, name))
            return

    def _write_notes(self, notes: Sequence[ImportedNote]) -> Protocol[ImportCounts]:
        known: dict[str, LedgerEntry] = yield Read(self._read_ledger, ([_note_key(note.key) for note in notes],))
        targets = [entry.target for entry in known.values()]
        there = yield Read(find_by_id, (self._engine, targets))
        counts, todo, requests = ImportCounts(), list[ImportedNote](), list[MemoryRequest]()
        for note in notes:
            entry = known.get(_note_key(note.key))
            gone = entry is not None and entry.target not in there
            if entry is not None and (entry.digest == _digest(note) if not gone else not self._policy.again):
                counts.unchanged += 1
                continue
            old = () if entry is None or gone else (there[entry.target].id,)
            counts.new, counts.updated = counts.new + (not old), counts.updated + len(old)
            todo.append(note)
            requests.append(self._to_request(note, old))
        if todo and not self._policy.dry_run:
            saves = yield Read(make_writes, (self._engine, requests))
            marks = [
                self._mark(_note_key(note.key), _digest(note), save.kept.id, known)
                for note, save in zip(todo, saves, strict=True)
            ]
            yield from land(self._engine, Site.MEMORY, [*saves, *marks])
        return counts

    def _to_request(self, note: ImportedNote, supersedes: tuple[str, ...]) -> MemoryRequest:
        return MemoryRequest(
            text=note.text,
            kind=note.kind,
            user=note.user or self._policy.user,
            tags=note.tags,
            source=f"import:{self._policy.source}",
            trust=self._policy.trust,
            valid_from=0 if supersedes else note.at,
            supersedes=supersedes,
            meta={**note.meta, "imported_as": note.key},
            thread=note.thread,
        )

    # -- conversations -------------------------------------------------------------------------------------------------

    def _import_conversation(self, found: ImportedConversation, thread: str) -> Protocol[None]:
        for attempt in range(ATTEMPTS_MAX):
            try:
                return (yield from self._write_conversation(found, thread))
            except (VersionConflict, ThreadConflict, ThreadDeleted):
                if attempt == ATTEMPTS_MAX - 1:
                    raise

    def _write_conversation(self, found: ImportedConversation, thread: str) -> Protocol[None]:
        key, digest = f"thread/{found.key}", _digest(found)
        known: dict[str, LedgerEntry] = yield Read(self._read_ledger, ([key],))
        newest = yield Read(read.find_newest, (self._engine, thread, ""))
        entry = known.get(key)
        deleted = entry is not None and newest is None and not self._policy.again
        if deleted or (newest is not None and newest.put.id.endswith(digest)):
            self.threads.unchanged += 1
        else:
            if not self._policy.dry_run:
                before = "" if newest is None else newest.put.id
                yield from write.put_checkpoint(self._engine, self._to_checkpoint(found, thread, before, digest))
            self.threads.new += newest is None
            self.threads.updated += newest is not None
        if not self._policy.dry_run and (entry is None or entry.digest != digest):
            mark = self._mark(key, digest, thread, known)
            yield from land(self._engine, Site.STATE, [mark])

    def _to_checkpoint(
        self, found: ImportedConversation, thread: str, before: str, digest: str
    ) -> write.NewThreadCheckpoint:
        source, trust = self._policy.source, self._policy.trust
        origin = {"source": source, "id": found.key, "trust": trust, **found.meta}
        if times := [at for at in found.times if at]:
            origin |= {"began": min(times), "ended": max(times)}
        number = 1 + (int(before.partition("-")[0], 16) if before else 0)
        name = f"{number:012x}-{digest}"
        channels = {"messages": found.messages, "title": found.title, "origin": origin}
        meta = {"source": "import", "step": len(found.messages)}
        versions = dict.fromkeys(channels, name)
        return write.NewThreadCheckpoint(
            thread, "", name, before, {}, meta, channels, versions, on_head=True, framework=source
        )

    # -- the ledger ----------------------------------------------------------------------------------------------------

    def _read_ledger(self, keys: Iterable[str]) -> dict[str, LedgerEntry]:
        names = {(SPACE, f"{self._policy.source}/{key}"): key for key in keys}
        found = read_keys(self._engine, list(names))
        return {names[place]: LedgerEntry(item.value[0], item.value[1], item.version) for place, item in found.items()}

    def _mark(self, key: str, digest: str, target: str, known: dict[str, LedgerEntry]) -> SetKey:
        at = state.place(self._engine, SPACE, f"{self._policy.source}/{key}")
        version = known[key].version if key in known else 0
        return state.ask_set(self._engine, at, [digest, target], None, version)


def _note_key(key: str) -> str:
    """Return a key of fixed length: paths and headings may be long, and the ledger outlives what it names."""
    return "note/" + blake2b(key.encode(), digest_size=16).hexdigest()


def _digest(item: ImportedItem) -> str:
    """Return the digest of everything that an import would write of a thing, except where it was found."""
    meta = {name: value for name, value in item.meta.items() if name != "path"}
    return blake2b(msgspec.json.encode(msgspec.structs.replace(item, meta=meta)), digest_size=12).hexdigest()
