"""Taking a text out of the documents: what else stands in them stays, and nothing of it comes back from a file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import objects, state
from .. import records as r
from ..errors import VersionConflict
from ..failpoints import Site
from ..journal.landing import Unchanged, Wanted, landed_at
from ..memory.forgetting import Redacted
from ..run.requests import Protocol, Read
from .documents import FORGOTTEN_LINES, SPACE, Document, Shelf, ask, decoded, shelf_of, stored
from .forgotten import FORGOTTEN, Striking, remembered
from .home import Home, committed
from .looking import Round, archived_in
from .placing import put_alone
from .syncing import TRIES, Synced, locked, rounds

if TYPE_CHECKING:
    from ..engine import Engine

_EVER = (1 << 62) - 1

Value = Mapping[str, Any] | str | None
"""Of a key of the documents; None is one that was removed."""


class Redaction:
    """Puts marks in place of texts, in all documents and in the files of the open folder.

    Nobody else is at work in the folder from then on until it is released: what is made from the journal has the texts
    for as long as that has them.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine, self._home = engine, engine.home
        self._lock = -1

    def look(self, texts: Sequence[str]) -> Protocol[Redacted]:
        """The logs that were put away: what else there is, the journal has too."""
        if self._home is None:
            return Redacted()
        found: dict[str, str] = yield Read(_archived, (self._home, Striking(texts)))
        return Redacted(files=tuple(found))

    def redact(self, texts: Sequence[str]) -> Protocol[Redacted]:
        """Take texts out; says where they were."""
        strike, home = Striking(texts), self._home
        if home is None:
            paths = yield from _of_documents(self._engine, strike)
            note = "a folder of the workspace that is not open here has it until it is synced"
            return Redacted(paths, notes=(note,) if paths else ())
        yield Read(home.root.make)
        if self._lock < 0:
            self._lock = yield from locked(home.root)
        archived: tuple[str, ...] = yield Read(_struck, (home, strike))
        paths = (*(yield from _of_folder(self._engine, home, strike)), *archived)
        in_git = os.path.exists(os.path.join(home.root.path, ".git"))
        note = f"git has what was committed of {', '.join(paths)}"
        return Redacted(paths, archived, (note,) if paths and in_git else ())

    def release(self) -> None:
        """Let others into the folder again."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _of_folder(engine: Engine, home: Home, strike: Striking) -> Protocol[tuple[str, ...]]:
    """What people have saved meanwhile is read in the same round, and struck before it is anywhere."""
    found, removed = dict[str, None](), dict[str, None]()

    def also(plan: Round) -> Sequence[Wanted]:
        texts = [it.file for it in plan.changes if it.file is not None and strike(it.file) != it.file]
        found.update(
            {it.path: None for it in plan.changes if _has(it.file, strike) or _has_document(it.document, strike)}
        )
        asks = _Past(engine, strike).asks(plan.shelf, texts)
        removed.update({key: None for key, it in asks.items() if it == stored(Document(FORGOTTEN))})
        written = {it.path for it in plan.changes if it.wanted != it.document}
        return [ask(engine, key, value) for key, value in asks.items() if key not in written]

    synced: Synced = yield from rounds(engine, home.root, "", strike, also)
    yield from _removed_again(engine, removed)
    yield from committed(engine, home, synced)
    return tuple(found)


def _of_documents(engine: Engine, strike: Striking) -> Protocol[tuple[str, ...]]:
    for _ in range(TRIES):
        shelf: Shelf = yield Read(shelf_of, (engine,))
        new = {path: Document(strike(it.text), strike(it.rendered)) for path, it in shelf.documents.items()}
        had = {path: it for path, it in new.items() if it != shelf.documents[path]}
        more: dict[str, Any] = yield Read(_Past(engine, strike).asks, (shelf, ()))
        asks = {**more, **{path: stored(it) for path, it in had.items()}}
        if not asks:
            return ()
        wanted = [ask(engine, key, value) for key, value in asks.items()]
        try:
            yield from state.land(engine, Site.STATE, [Unchanged((engine.stream, SPACE), shelf.revision), *wanted])
        except VersionConflict:
            continue  # somebody has written something: look again
        yield from _removed_again(engine, [key for key, it in more.items() if it == stored(Document(FORGOTTEN))])
        return tuple(had)
    raise VersionConflict("the documents change faster than they can be read")


def _removed_again(engine: Engine, keys: Sequence[str] | Mapping[str, None]) -> Protocol[None]:
    if keys:
        yield from state.land(engine, Site.STATE, [ask(engine, key, None) for key in keys])


def _has(text: str | None, strike: Striking) -> bool:
    return text is not None and strike(text) != text


def _has_document(it: Document | None, strike: Striking) -> bool:
    return it is not None and (_has(it.text, strike) or _has(it.rendered, strike))


class _Past:
    """What must be written beside the documents, so that the entries that have a text can be erased.

    An entry is erased as a whole. So what was written together with the text is written anew; and what was removed
    together with it, which needs something that can be.
    """

    def __init__(self, engine: Engine, strike: Striking) -> None:
        self._engine, self._strike = engine, strike
        self._entries: dict[tuple[int, int], list[r.StateChange]] = {}

    def asks(self, shelf: Shelf, texts: Sequence[str]) -> dict[str, Any]:
        """By key; and lines that a folder that is behind must not bring back, those of these texts too."""
        store, stream = self._engine.store, self._engine.stream
        last = {row[0]: row[2:] for row in store.read("entries_at", (stream, SPACE, _EVER, _EVER))}
        had = dict.fromkeys(texts)
        tainted = {place for key in last for place in self._tainted(key, had)}
        asks = {key: self._again(key) for key, place in last.items() if place in tainted}
        lines = remembered(store.secret, shelf.forgotten, had, self._strike)
        return asks | ({FORGOTTEN_LINES: lines} if lines != shelf.forgotten else {})

    def _tainted(self, key: str, had: dict[str, None]) -> Iterator[tuple[int, int]]:
        """The entries in which a key has the text, and what it was there."""
        for _, _, stream, seq, _ in self._engine.store.read("history_of", (self._engine.stream, SPACE, key)):
            for text in (text for it in self._changes(stream, seq) if it.key == key for text in self._texts(it)):
                if self._strike(text) != text:
                    had[text] = None
                    yield stream, seq

    def _changes(self, stream: int, seq: int) -> list[r.StateChange]:
        if (stream, seq) not in self._entries:
            found = landed_at(self._engine.store, stream, seq, r.StateChange)
            self._entries[stream, seq] = [it for it in found if it.space == SPACE and it.owner == self._engine.stream]
        return self._entries[stream, seq]

    def _texts(self, it: r.StateChange) -> list[str]:
        value = objects.unpack(self._engine.store, it.value) if it.value else None
        return [value[name] for name in ("text", "rendered") if name in value] if isinstance(value, dict) else []

    def _again(self, key: str) -> Any:
        """A key as it is; one that was removed gets something that can be removed."""
        seen = state.look(self._engine, (self._engine.stream, SPACE, key), ())
        return seen.value if seen.there else stored(Document(FORGOTTEN))


def _archived(home: Home, strike: Striking) -> dict[str, str]:
    """The logs that were put away and have one of the texts: they are files only."""
    there = {path: decoded(home.root.read(path) or b"") for path in archived_in(home.root)}
    return {path: text for path, text in there.items() if strike(text) != text}


def _struck(home: Home, strike: Striking) -> tuple[str, ...]:
    changed = dict[str, None]()
    for _ in range(TRIES):
        found = _archived(home, strike)
        changed.update(dict.fromkeys(found))
        missed = [path for path, it in found.items() if not put_alone(home.root, path, it, strike(it), strike)]
        if not missed:
            break
    return tuple(changed)
