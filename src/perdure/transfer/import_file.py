"""Imports an agent from a file: verifies it, chooses the agent's key, writes it, and checks the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from perdure import records as r
from perdure.errors import (
    AgentExists,
    AgentMoved,
    AlreadyAnswered,
    ExportDamaged,
    ExportUnsigned,
    JournalDamaged,
    StoreProblem,
    WrongPassphrase,
)
from perdure.journal import keys
from perdure.journal.departures import refuse_departed
from perdure.journal.object_gc import collect
from perdure.journal.rebuild import rebuild
from perdure.kernel.identity import arrivals_in
from perdure.store.base import Overtaken, RowRefused
from perdure.store.rows import first_number
from perdure.transfer import archives, waits
from perdure.transfer.check import VerifiedExport, check
from perdure.transfer.claim import claim
from perdure.transfer.content_hash import ContentDigests
from perdure.transfer.export import LeaveStore, cancel_departure, contents_of
from perdure.transfer.import_writes import ImportedObjects, ImportEntries, ReturningStream
from perdure.transfer.locked_key import unlock
from perdure.transfer.rejoin import find_returning_streams
from perdure.values.clock import moment_text

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

ImportProgress = Callable[[str, int, int], None]
"""Receives what is being done, how much of it is done, and the total."""

_ONCE = "the file of a move is imported once; for another agent export a copy, without move=True"


class Imported(msgspec.Struct, frozen=True):
    """The result of an import."""

    agent: str
    how: str
    """`moved`: the same agent continues here. `copied`: a child of the one in the file. `returned`: it had not left."""
    parent: str
    """The name of the agent in the file."""
    public_key: str
    store: str
    streams: int
    entries: int
    objects: int
    contents: str
    signed: bool
    """Whether the file was signed by its agent."""
    private_key: bool
    """Whether the agent's private key is here: without it, heads stay unsigned."""
    archives: int = 0
    """Number of imported archives of compacted entries and dropped memories."""
    number: str = ""
    """Identifies this arrival: two agents imported from one file have different numbers."""
    notes: tuple[str, ...] = ()
    """What did not arrive, and what that affects."""

    def __str__(self) -> str:
        whence = {"moved": "has moved in", "copied": f"is a child of {self.parent!r}", "returned": "is back"}[self.how]
        return f"agent {self.agent!r} {whence}: {self.entries} entries, {self.objects} objects"


def import_agent(
    engine: Engine,
    path: str,
    *,
    passphrase: str | None = None,
    take_back: bool = False,
    origin: str | None = None,
    accept_unsigned: bool = False,
    tell: ImportProgress | None = None,
) -> Imported:
    """Import the agent of a file under the name of the engine. If refused or interrupted, nothing remains."""
    told: ImportProgress = tell or (lambda what, done, total: None)
    file = check(path, partial(told, "checking"))
    if refused := find_refusal(file, accept_unsigned):
        raise refused
    unlocked = _unlock_key(file, passphrase)
    _refuse_forgery(engine, file)
    if file.header.move and file.header.store == engine.store.identity and file.agent == engine.name:
        return _take_back(engine, file, take_back)
    if file.header.move:
        _refuse_again(engine, file)
    there = find_returning_streams(engine, file) if engine.is_known() else {}
    _refuse_key(engine, file, unlocked)
    if origin is not None:
        claim(engine, file, origin)
    arrival = _AgentImport(engine, file, there)
    arrival.write(unlocked, told)
    if arrival.token:
        _erase_here_too(engine, arrival.token)
    _compare_contents(engine, file, partial(told, "comparing"))
    how = "moved" if file.header.move else "copied"
    return _make_result(engine, file, how, arrival.key is not None, arrival.notes)


class _AgentImport:
    """Writes the key, the archives, the large values and the entries of a file into a store."""

    def __init__(self, engine: Engine, file: VerifiedExport, there: Mapping[int, ReturningStream]) -> None:
        self._engine = engine
        self._file = file
        self._there = there
        self._beside = archives.ArchiveImport(engine.store, file.path, file.end.sha256, is_back=bool(there))
        self._brought = ImportedObjects(engine, file)
        self._key_is_new = False
        self.key: keys.SigningKey | None = None
        self.notes: tuple[str, ...] = ()
        self.token = ""

    def write(self, unlocked: keys.SigningKey | None, told: ImportProgress) -> None:
        """Write everything. On failure, remove what was written."""
        try:
            self._write(unlocked, told)
        except BaseException:
            self._undo()
            raise
        finally:
            self._brought.close()

    def _write(self, unlocked: keys.SigningKey | None, told: ImportProgress) -> None:
        engine, file = self._engine, self._file
        self._key_is_new = keys.load_key(engine.name, keys.folder_of(engine.store)) is None
        self.key = _key_for(engine, file, unlocked)
        if file.archives:
            self.notes = self._beside.write_archives()
        self._brought.upload_all(partial(told, "large values"))
        arrive = ImportEntries(engine, file, self._brought, self.key, partial(told, "importing"), self._there)
        try:
            engine.store.submit(arrive)
        except (RowRefused, Overtaken, AlreadyAnswered) as error:
            text = f"{file.path}: its contents contradict each other ({error.message}); nothing was imported"
            raise ExportDamaged(text) from error
        self.token = arrive.token

    def _undo(self) -> None:
        """Remove what was written, unless the entries may have been committed."""
        try:
            if self._has_landed():
                return
        except StoreProblem:
            return  # the outcome is unknown
        self._beside.remove()
        if self._key_is_new and self.key is not None:
            keys.discard(self._engine.name, keys.folder_of(self._engine.store), self.key)
        self._brought.remove()

    def _has_landed(self) -> bool:
        """Return whether the import was committed: the agent exists or, if it returns, its arrival is recorded."""
        store = self._engine.store
        rows = store.read("get_agent", (self._engine.name,))
        if not rows or not self._there:
            return bool(rows)
        return any(arrival.file == self._file.end.sha256 for _, arrival in arrivals_in(store, first_number(rows)))


def find_refusal(file: VerifiedExport, accepted: bool) -> ExportUnsigned | None:
    """Return the error for an unsigned file, unless accepted: nothing proves who wrote it."""
    if file.signed:
        return None
    if file.header.private_key:
        return ExportUnsigned(
            f"{file.path} holds the private key of agent {file.agent!r}, but is not signed with it: "
            "the file was changed; nothing was imported",
            hint="use another copy of it, or export the agent again",
        )
    if not accepted:
        return ExportUnsigned(f"{file.path} is not signed by agent {file.agent!r}; nothing was imported")
    return None


def _refuse_forgery(engine: Engine, file: VerifiedExport) -> None:
    """Refuse an unsigned file where the agent's key is: the key would sign what somebody else wrote."""
    if not file.signed and (_has_key(engine, file, None) or _has_key(engine, file, keys.folder_of(engine.store))):
        raise ExportUnsigned(
            f"{file.path} is not signed, but the private key of agent {file.agent!r} is here; nothing was imported",
            hint="export the agent again where its key is: PERDURE_KEY, key=, or its key file next to the store",
        )


def _has_key(engine: Engine, file: VerifiedExport, folder: str | None) -> bool:
    """Return whether the private key of the file's agent is in a key folder; without a folder, whether it was given.

    A given key is checked first: that needs no store, and a refused file must not create one.
    """
    public_key = file.header.public_key
    rows = engine.store.read("all_agents") if folder is not None else []
    names = {engine.name, file.agent, *(str(name) for name, _, known, *_ in rows if known == public_key)}
    found = (keys.find(name, folder, engine.key_source) for name in sorted(names))
    return any(key is not None and key.public_key == public_key for key in found)


def _refuse_again(engine: Engine, file: VerifiedExport) -> None:
    """Raise if the file of a move was imported here before, under any name. The agent may have moved on since."""
    for name, stream, public_key, *_ in engine.store.read("all_agents"):
        if public_key != file.header.public_key:
            continue
        for at, arrival in arrivals_in(engine.store, stream):
            if arrival.file == file.end.sha256:
                known = f"this file was imported here on {moment_text(at)}, as agent {name!r}"
                raise AgentExists(f"{known}; nothing was imported", hint=_ONCE)


def _unlock_key(file: VerifiedExport, passphrase: str | None) -> keys.SigningKey | None:
    """Return the private key in the file, decrypted. Called before a store is created."""
    if passphrase is None:
        return None
    if file.key is None:
        raise WrongPassphrase("the file holds no private key and needs no passphrase; nothing was imported")
    return unlock(file.key, passphrase, file.header.public_key)


def _erase_here_too(engine: Engine, token: str) -> None:
    """Erase what the agent has forgotten while it was away from views, large values and logs of this store."""
    rebuild(engine.store)
    collect(engine.store)
    engine.store.scrub((), token)


def _refuse_key(engine: Engine, file: VerifiedExport, unlocked: keys.SigningKey | None) -> None:
    """Raise if a moved agent's key cannot be used: it is locked, or another key has its name here."""
    if not file.header.move:
        return
    if file.key is not None and unlocked is None:
        raise WrongPassphrase(
            "the private key in the file is locked; nothing was imported", hint="give its passphrase (passphrase=)"
        )
    keys.refuse_another(engine.name, keys.folder_of(engine.store), file.header.public_key)


def _key_for(engine: Engine, file: VerifiedExport, unlocked: keys.SigningKey | None) -> keys.SigningKey | None:
    """Return the agent's key: a new one for a child; for a moved agent its own, if it is in the file or here."""
    folder, header = keys.folder_of(engine.store), file.header
    if not header.move:
        return keys.create(engine.name, folder)
    if unlocked is not None:
        if folder is not None:
            keys.store_key(engine.name, folder, unlocked)
        return unlocked
    found = keys.find(engine.name, folder, engine.key_source)
    return found if found is not None and found.public_key == header.public_key else None


def _compare_contents(engine: Engine, file: VerifiedExport, progress: Callable[[int, int], None]) -> None:
    """Compare the imported contents in the store with the file. If they differ, the agent is retired."""
    if contents_of(engine, progress) == ContentDigests(file.end.contents, file.end.index):
        return
    reason = f"the imported contents differ from {file.path}"
    engine.store.submit(LeaveStore(engine, r.AgentLeft("retired", reason=reason)))
    raise JournalDamaged(f"{reason}: agent {engine.name!r} is retired", hint="keep the file, and report this")


def _take_back(engine: Engine, file: VerifiedExport, wanted: bool) -> Imported:
    """Cancel a move: the agent returns to its store of origin, where nothing has changed."""
    rows = engine.store.read("departure_of", (engine.name,))
    ends = engine.store.read("head_of", (engine.stream,)) if engine.is_known() else []
    if rows and ends and tuple(ends[0]) != file.head:
        refuse_departed(engine.name, rows)
    if not rows or not ends:
        raise AgentExists(f"agent {engine.name!r} is active here, and has continued since the file was written")
    if not wanted:
        raise AgentMoved(
            f"this is the store that agent {engine.name!r} has left; nothing was imported",
            hint="import it into another store; if that will never happen, take it back: take_back=True (--take-back)",
        )
    cancel_departure(engine)
    return _make_result(engine, file, "returned", engine.signer is not None)


def _make_result(
    engine: Engine, file: VerifiedExport, how: str, has_key: bool, notes: tuple[str, ...] = ()
) -> Imported:
    [(stream, public_key)] = engine.store.read("get_agent", (engine.name,))
    end = file.end
    counts = (end.streams, end.entries, end.objects, end.contents.hex(), file.signed, has_key)
    arrival = arrivals_in(engine.store, stream)[-1][1].number.hex()
    missed = waits.wait_notes([wait for wait in file.awaited if not waits.is_here(engine.store, wait)])
    stays = (*notes, *archives.note_missing_archives(file.absent), *missed) if how != "returned" else ()
    told = (*counts, file.archives, arrival, stays)
    return Imported(engine.name, how, file.agent, public_key.hex(), engine.shown_url, *told)
