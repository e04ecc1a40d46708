"""From a file to an agent at work: whether the file is sound, whose key the agent gets, and that it has arrived."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from .. import keys
from .. import records as r
from ..errors import AgentExists, AgentMoved, JournalDamaged, WrongPassphrase
from .arriving import Arrive, Brought
from .checking import Checked, check
from .contents import Digests
from .leaving import Leave, come_back, contents_of
from .locked_key import unlock
from .returning import returning

if TYPE_CHECKING:
    from ..engine import Engine

Tell = Callable[[str, int, int], None]
"""Told what is being done, how much of it, and of how much."""


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

    def __str__(self) -> str:
        whence = {"moved": "has moved in", "copied": f"is a child of {self.parent!r}", "returned": "is back"}[self.how]
        return f"agent {self.agent!r} {whence}: {self.entries} entries, {self.objects} objects"


def bring_in(
    engine: Engine, path: str, *, passphrase: str | None = None, take_back: bool = False, tell: Tell | None = None
) -> Imported:
    """Import the agent in a file under the name of the engine. Interrupted, nothing of it is there."""
    told: Tell = tell or (lambda what, done, total: None)
    file = check(path, partial(told, "checking"))
    if file.header.move and file.header.store == engine.store.identity and file.agent == engine.name:
        return _back(engine, file, take_back)
    there = returning(engine, file) if engine.is_known() else {}
    key = _key_for(engine, file, passphrase)
    with closing(Brought(engine, file)) as brought:
        brought.all(partial(told, "large values"))
        engine.store.submit(Arrive(engine, file, brought, key, partial(told, "importing"), there))
    _must_be_the_same(engine, file, partial(told, "comparing"))
    return _imported(engine, file, "moved" if file.header.move else "copied", key is not None)


def _key_for(engine: Engine, file: Checked, passphrase: str | None) -> keys.SigningKey | None:
    """Of a child one of its own; of one that has moved its key, if it came along or is here."""
    folder, header = keys.folder_of(engine.store), file.header
    unlocked = None
    if passphrase is not None:
        if file.key is None:
            raise WrongPassphrase("there is no private key in the file: it needs no passphrase; nothing was imported")
        unlocked = unlock(file.key, passphrase, header.public_key)
    if not header.move:
        return keys.create(engine.name, folder)
    if unlocked is not None:
        if folder is not None:
            keys.keep(engine.name, folder, unlocked)
        return unlocked
    if file.key is not None:
        raise WrongPassphrase(
            "the private key is in the file, and locked; nothing was imported", hint="give its passphrase (passphrase=)"
        )
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
    if not rows or not ends or tuple(ends[0]) != file.head:
        raise AgentExists(f"agent {engine.name!r} is at home here, and has gone on since the file was written")
    if not wanted:
        raise AgentMoved(
            f"this is the store that agent {engine.name!r} has left; nothing was imported",
            hint="import it into another store; if nobody has done so, and nobody will: take_back=True (--take-back)",
        )
    come_back(engine)
    return _imported(engine, file, "returned", engine.signer is not None)


def _imported(engine: Engine, file: Checked, how: str, has_key: bool) -> Imported:
    [(_, public_key)] = engine.store.read("get_agent", (engine.name,))
    end = file.end
    counts = (end.streams, end.entries, end.objects, end.contents.hex(), file.signed, has_key)
    return Imported(engine.name, how, file.agent, public_key.hex(), engine.shown_url, *counts)
