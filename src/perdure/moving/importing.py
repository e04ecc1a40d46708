"""From a file to an agent at work: whether the file is sound, whose key the agent gets, and that it has arrived."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from .. import keys
from .. import records as r
from ..clock import moment_text
from ..collect import collect
from ..errors import (
    AgentExists,
    AgentMoved,
    AlreadyAnswered,
    ExportDamaged,
    ExportUnsigned,
    JournalDamaged,
    StoreProblem,
    WrongPassphrase,
)
from ..identity import arrivals_in
from ..journal.departures import refuse_departed
from ..journal.rebuild import rebuild
from ..store.base import Overtaken, RowRefused
from . import archives, waits
from .arriving import Arrive, Brought, There
from .checking import Checked, check
from .claiming import claim
from .contents import Digests
from .leaving import Leave, come_back, contents_of
from .locked_key import unlock
from .returning import returning

if TYPE_CHECKING:
    from ..engine import Engine

Tell = Callable[[str, int, int], None]
"""Told what is being done, how much of it, and of how much."""

_ONCE = "a file of a move is imported once; for another agent export a copy, without move=True"


class Imported(msgspec.Struct, frozen=True):
    """An agent that has come out of a file."""

    agent: str
    how: str
    """`moved`: the same agent goes on here. `copied`: a child of the one in the file. `returned`: it had not gone."""
    parent: str
    """Who was in the file."""
    public_key: str
    store: str
    streams: int
    entries: int
    objects: int
    contents: str
    signed: bool
    """Whether the file was signed by the agent in it."""
    private_key: bool
    """Whether the agent's private key is here: without it, heads stay unsigned."""
    archives: int = 0
    """Files with folded entries and memories that were let go, which are beside this store now."""
    number: str = ""
    """Of this arrival, and no other: two agents that came out of one file have two numbers."""
    notes: tuple[str, ...] = ()
    """What did not come along, and who will miss it."""

    def __str__(self) -> str:
        whence = {"moved": "has moved in", "copied": f"is a child of {self.parent!r}", "returned": "is back"}[self.how]
        return f"agent {self.agent!r} {whence}: {self.entries} entries, {self.objects} objects"


def bring_in(
    engine: Engine,
    path: str,
    *,
    passphrase: str | None = None,
    take_back: bool = False,
    origin: str | None = None,
    accept_unsigned: bool = False,
    tell: Tell | None = None,
) -> Imported:
    """Import the agent in a file under the name of the engine. Refused or interrupted, nothing of it is there."""
    told: Tell = tell or (lambda what, done, total: None)
    file = check(path, partial(told, "checking"))
    _must_be_signed(file, accept_unsigned)
    unlocked = _unlocked(file, passphrase)
    _refuse_forgery(engine, file)
    if file.header.move and file.header.store == engine.store.identity and file.agent == engine.name:
        return _back(engine, file, take_back)
    if file.header.move:
        _refuse_again(engine, file)
    there = returning(engine, file) if engine.is_known() else {}
    _refuse_key(engine, file, unlocked)
    if origin is not None:
        claim(engine, file, origin)
    arrival = _Arrival(engine, file, there)
    arrival.write(unlocked, told)
    if arrival.token:
        _erase_here_too(engine, arrival.token)
    _must_be_the_same(engine, file, partial(told, "comparing"))
    how = "moved" if file.header.move else "copied"
    return _imported(engine, file, how, arrival.key is not None, arrival.notes)


class _Arrival:
    """The key, the archives, the large values and the entries of a file, on their way into a store."""

    def __init__(self, engine: Engine, file: Checked, there: Mapping[int, There]) -> None:
        self._engine = engine
        self._file = file
        self._there = there
        self._beside = archives.Beside(engine.store, file.path, file.end.sha256, is_back=bool(there))
        self._brought = Brought(engine, file)
        self._key_is_new = False
        self.key: keys.SigningKey | None = None
        self.notes: tuple[str, ...] = ()
        self.token = ""

    def write(self, unlocked: keys.SigningKey | None, told: Tell) -> None:
        """Write all of it; if that fails, remove what was written."""
        try:
            self._write(unlocked, told)
        except BaseException:
            self._undo()
            raise
        finally:
            self._brought.close()

    def _write(self, unlocked: keys.SigningKey | None, told: Tell) -> None:
        engine, file = self._engine, self._file
        self._key_is_new = keys.kept(engine.name, keys.folder_of(engine.store)) is None
        self.key = _key_for(engine, file, unlocked)
        if file.archives:
            self.notes = self._beside.put()
        self._brought.all(partial(told, "large values"))
        arrive = Arrive(engine, file, self._brought, self.key, partial(told, "importing"), self._there)
        try:
            engine.store.submit(arrive)
        except (RowRefused, Overtaken, AlreadyAnswered) as error:
            text = f"{file.path}: what is in it contradicts itself ({error.message}); nothing was imported"
            raise ExportDamaged(text) from error
        self.token = arrive.token

    def _undo(self) -> None:
        """Remove what was written, unless the entries may have been committed: then the agent needs it."""
        try:
            if self._has_landed():
                return
        except StoreProblem:
            return  # nobody can tell now
        self._beside.remove()
        if self._key_is_new and self.key is not None:
            keys.discard(self._engine.name, keys.folder_of(self._engine.store), self.key)
        self._brought.remove()

    def _has_landed(self) -> bool:
        """Whether an agent of this name is there. One that comes back was there: then, whether it has arrived."""
        store = self._engine.store
        rows = store.read("get_agent", (self._engine.name,))
        if not rows or not self._there:
            return bool(rows)
        return any(it.file == self._file.end.sha256 for _, it in arrivals_in(store, rows[0][0]))


def _must_be_signed(file: Checked, accepted: bool) -> None:
    """Without a signature nothing proves who wrote the file, and its entries may be anybody's."""
    if file.signed:
        return
    if file.header.private_key:
        raise ExportUnsigned(
            f"{file.path} has the private key of agent {file.agent!r} in it, and is not signed by it: "
            "somebody has changed the file; nothing was imported",
            hint="take another copy of it, or export the agent again",
        )
    if not accepted:
        raise ExportUnsigned(f"{file.path} is not signed by agent {file.agent!r}; nothing was imported")


def _refuse_forgery(engine: Engine, file: Checked) -> None:
    """Where the agent's key is, an unsigned file is never its own: the key would sign what somebody else wrote."""
    if not file.signed and (_has_key(engine, file, None) or _has_key(engine, file, keys.folder_of(engine.store))):
        raise ExportUnsigned(
            f"{file.path} is not signed, and the private key of agent {file.agent!r} is here; nothing was imported",
            hint="export the agent again where its key is: PERDURE_KEY, key=, or its key file beside the store",
        )


def _has_key(engine: Engine, file: Checked, folder: str | None) -> bool:
    """Whether the private key of the agent in a file is in a key folder; without one, whether it was given.

    What was given is asked for first: that needs no store, and a file that is refused must not make one.
    """
    public_key = file.header.public_key
    rows = engine.store.read("all_agents") if folder is not None else []
    names = {engine.name, file.agent, *(str(name) for name, _, known, *_ in rows if known == public_key)}
    found = (keys.find(name, folder, engine.key_source) for name in sorted(names))
    return any(key is not None and key.public_key == public_key for key in found)


def _refuse_again(engine: Engine, file: Checked) -> None:
    """A file of a move is imported once into a store, under whatever name; it may have gone on from there since."""
    for name, stream, public_key, *_ in engine.store.read("all_agents"):
        if public_key != file.header.public_key:
            continue
        for at, it in arrivals_in(engine.store, stream):
            if it.file == file.end.sha256:
                known = f"this file was imported here on {moment_text(at)}, as agent {name!r}"
                raise AgentExists(f"{known}; nothing was imported", hint=_ONCE)


def _unlocked(file: Checked, passphrase: str | None) -> keys.SigningKey | None:
    """The private key in the file, for who knows its passphrase; asked before there is a store."""
    if passphrase is None:
        return None
    if file.key is None:
        raise WrongPassphrase("there is no private key in the file: it needs no passphrase; nothing was imported")
    return unlock(file.key, passphrase, file.header.public_key)


def _erase_here_too(engine: Engine, token: str) -> None:
    """What it has forgotten while it was away is in no view, large value or log of this store either."""
    rebuild(engine.store)
    collect(engine.store)
    engine.store.scrub((), token)


def _refuse_key(engine: Engine, file: Checked, unlocked: keys.SigningKey | None) -> None:
    """An agent that has moved needs the key in its file, and no other one of its name may be here."""
    if not file.header.move:
        return
    if file.key is not None and unlocked is None:
        raise WrongPassphrase(
            "the private key is in the file, and locked; nothing was imported", hint="give its passphrase (passphrase=)"
        )
    keys.refuse_another(engine.name, keys.folder_of(engine.store), file.header.public_key)


def _key_for(engine: Engine, file: Checked, unlocked: keys.SigningKey | None) -> keys.SigningKey | None:
    """Of a child one of its own; of one that has moved its key, if it came along or is here."""
    folder, header = keys.folder_of(engine.store), file.header
    if not header.move:
        return keys.create(engine.name, folder)
    if unlocked is not None:
        if folder is not None:
            keys.keep(engine.name, folder, unlocked)
        return unlocked
    found = keys.find(engine.name, folder, engine.key_source)
    return found if found is not None and found.public_key == header.public_key else None


def _must_be_the_same(engine: Engine, file: Checked, progress: Callable[[int, int], None]) -> None:
    """All of it is read again, out of the store. What is not as it was in the file must not go on."""
    if contents_of(engine, progress) == Digests(file.end.contents, file.end.index):
        return
    reason = f"what was imported from {file.path} is not what is in it"
    engine.store.submit(Leave(engine, r.AgentLeft("retired", reason=reason)))
    raise JournalDamaged(f"{reason}: agent {engine.name!r} is retired", hint="keep the file, and report this")


def _back(engine: Engine, file: Checked, wanted: bool) -> Imported:
    """Into the store that it comes from: it never went anywhere, and nothing has changed since."""
    rows = engine.store.read("departure_of", (engine.name,))
    ends = engine.store.read("head_of", (engine.stream,)) if engine.is_known() else []
    if rows and ends and tuple(ends[0]) != file.head:
        refuse_departed(engine.name, rows)
    if not rows or not ends:
        raise AgentExists(f"agent {engine.name!r} is at home here, and has gone on since the file was written")
    if not wanted:
        raise AgentMoved(
            f"this is the store that agent {engine.name!r} has left; nothing was imported",
            hint="import it into another store; if nobody has done so, and nobody will: take_back=True (--take-back)",
        )
    come_back(engine)
    return _imported(engine, file, "returned", engine.signer is not None)


def _imported(engine: Engine, file: Checked, how: str, has_key: bool, notes: tuple[str, ...] = ()) -> Imported:
    [(stream, public_key)] = engine.store.read("get_agent", (engine.name,))
    end = file.end
    counts = (end.streams, end.entries, end.objects, end.contents.hex(), file.signed, has_key)
    arrival = arrivals_in(engine.store, stream)[-1][1].number.hex()
    missed = waits.told([it for it in file.awaited if not waits.is_here(engine.store, it)])
    stays = (*notes, *archives.told(file.absent), *missed) if how != "returned" else ()
    told = (*counts, file.archives, arrival, stays)
    return Imported(engine.name, how, file.agent, public_key.hex(), engine.shown_url, *told)
