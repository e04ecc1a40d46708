"""A folder and the journal in step, both ways.

One round: read the files, find out what each was last in step with, merge, commit what people have changed, and only
then write what the journal has. A process that is killed in between leaves a folder that is in step with less than it
could be, and the next round does the rest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from .. import records as r
from .. import state
from ..errors import StoreBusy, VersionConflict
from ..failpoints import Site
from ..handoff.desk import desk_of
from ..journal.landing import Settled, Unchanged, Wanted
from ..limits import ASIDE_SECONDS, LOCK_SECONDS_MAX
from ..objects import pack
from ..run.requests import Pause, Protocol, Read
from .documents import LOGGED, SPACE, Document, Shelf, ask, decoded, digest, encoded, shelf_of, stored, text_of
from .layout import (
    FOLDERS,
    GENERATED,
    HANDOFF,
    IDENTITY,
    LOGS,
    MARKER,
    MEMORY,
    NEW,
    OLD_PROGRESS,
    PROGRESS,
    TOP,
    is_path,
)
from .logs import Logged, logged_since, with_lines
from .merging import merge, merge_notes
from .progress import KIND, Said, gather
from .progress_text import edits, render
from .root import Root

if TYPE_CHECKING:
    from ..engine import Engine

TRIES = 20
"""Rounds, when others change the documents or the files at the same time."""
POLL_SECONDS = 0.02


class Synced(msgspec.Struct, frozen=True):
    """What a sync has done."""

    read: tuple[str, ...] = ()
    """Files that somebody had edited: the edits are in the journal now."""
    written: tuple[str, ...] = ()
    """Files that were brought up to date."""
    removed: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    """Files in which both sides had changed the same lines: both versions are there, marked."""
    commit: str = ""
    """Of git, when one was made."""
    notes: tuple[str, ...] = ()
    """What could not be done, and why."""

    def __str__(self) -> str:
        parts = ("read", "written", "removed", "conflicts")
        told = [f"{name} {', '.join(getattr(self, name))}" for name in parts if getattr(self, name)]
        return "; ".join(told) or "nothing has changed"

    @property
    def changed(self) -> tuple[str, ...]:
        """All files that are not what they were."""
        return tuple(dict.fromkeys((*self.read, *self.written, *self.removed)))


class Marker(msgspec.Struct, frozen=True):
    """What a folder says of itself."""

    agent: str = ""
    store: str = ""
    """Where the agent is, for commands that are given in the folder."""
    base: dict[str, str] = {}
    """By file, the digest of the text that it was last in step with."""


class Change(msgspec.Struct, frozen=True):
    """What becomes of one file; None is a file or a document that is not there."""

    path: str
    file: str | None
    document: Document | None
    wanted: Document | None
    conflict: bool = False


class Round(msgspec.Struct, frozen=True):
    """What one round is about to do."""

    shelf: Shelf
    marker: Marker
    changes: tuple[Change, ...]
    logged: Logged
    said: tuple[Said, ...]


def sync(engine: Engine, root: Root, under: str = "") -> Protocol[Synced]:
    """Bring a folder and the journal in step; of all files those whose path begins like that."""
    if under.startswith(f"{LOGS}/"):
        under = f"{LOGS}/"  # one position in the events says what is in all of them
    yield Read(engine.ensure_agent)
    lock = yield from _locked(root)
    try:
        for _ in range(TRIES):
            plan: Round = yield Read(_planned, (engine, root, under))
            asks: Sequence[Wanted] = yield Read(_asks, (engine, plan))
            try:
                if asks:
                    yield from state.land(engine, Site.STATE, asks)
            except VersionConflict:
                continue  # somebody has changed a document between our look and the commit: look again
            if (yield Read(_write, (engine, root, plan))):
                return _told(plan)
    finally:
        os.close(lock)
    raise VersionConflict("the files of the workspace change faster than they can be read")


def _locked(root: Root) -> Protocol[int]:
    """Two rounds in one folder would write over each other."""
    waited = 0.0
    while (lock := (yield Read(root.lock))) is None:
        if waited >= LOCK_SECONDS_MAX:
            raise StoreBusy(f"another process is at work in {root.path}")
        yield Pause(POLL_SECONDS)
        waited += POLL_SECONDS
    return int(lock)


# -- looking ----------------------------------------------------------------------------------------------------------


def marker_of(root: Root) -> Marker:
    """What a folder says; one that says nothing that can be read is as good as new."""
    data = root.read(MARKER)
    try:
        return msgspec.json.decode(data or b"{}", type=Marker)
    except msgspec.DecodeError:
        return Marker()


def files_in(root: Root) -> list[str]:
    """The files of a workspace that are there."""
    paths = [name for name in root.names() if name in TOP]
    return paths + [path for folder in FOLDERS for name in root.names(folder) if is_path(path := f"{folder}/{name}")]


def _planned(engine: Engine, root: Root, under: str) -> Round:
    shelf, marker = shelf_of(engine), marker_of(root)
    if marker.agent not in ("", engine.name):
        marker = Marker()  # it was another agent's: what it was in step with is none of ours
    there, logged = files_in(root), Logged({}, shelf.logged)
    if f"{LOGS}/".startswith(under):
        logged = logged_since(engine, shelf.logged)
    wanted = {*there, *marker.base, *shelf.documents, *logged.lines, *IDENTITY, MEMORY, *GENERATED}
    files = {path: _file(root, path) for path in sorted(wanted) if is_path(path) and path.startswith(under)}
    said = tuple(_edits(engine, shelf, marker, files))
    made = _made(engine, {*files} & {*GENERATED}, said)
    looks = (_Look(engine, path, files[path], shelf, marker) for path in files)
    changes = tuple(look.change(logged.lines.get(look.path, ""), made.get(look.path)) for look in looks)
    return Round(shelf, marker, changes, logged, said)


def _file(root: Root, path: str) -> str | None:
    data = root.read(path)
    return None if data is None else decoded(data)


def _edits(engine: Engine, shelf: Shelf, marker: Marker, files: dict[str, str | None]) -> Iterator[Said]:
    """What people have said by editing the files that tell of progress."""
    for path in (PROGRESS, OLD_PROGRESS):
        file, known = files.get(path), shelf.documents.get(path)
        if file is not None and (known is None or file != known.text):
            base = _base(engine, path, known, marker)
            yield from edits(base if base is not None else known.text if known is not None else "", file)


def _made(engine: Engine, wanted: set[str], said: Sequence[Said]) -> dict[str, str]:
    """The files that are made from the journal, as they are now; those that are wanted."""
    if not wanted:
        return {}
    desk = desk_of(engine)
    makers = {PROGRESS: lambda: render(gather(desk, said)), HANDOFF: desk.markdown}
    return {path: makers[path]() for path in wanted}


def _base(engine: Engine, path: str, known: Document | None, marker: Marker) -> str | None:
    """What a file was last in step with. Mostly it is what the journal has: then nothing is looked up."""
    wanted = marker.base.get(path)
    if wanted is None:
        return None
    return known.text if known is not None and digest(known.text) == wanted else text_of(engine, path, wanted)


class _Look:
    """One file: what it is, what the journal has, and what both were when they were last in step."""

    def __init__(self, engine: Engine, path: str, file: str | None, shelf: Shelf, marker: Marker) -> None:
        self._engine, self.path, self._file, self._marker = engine, path, file, marker
        self._known = shelf.documents.get(path)
        self._new = not shelf.revision

    def change(self, lines: str, made: str | None) -> Change:
        """What becomes of it."""
        ours = self._ours(lines, made)
        if self._file is None:
            return self._end(self._without_file(ours))
        if ours is None:
            return self._end(self._without_document(self._file))
        if made is not None:
            base = self._base()
            if base is None:
                base = self._known.text if self._known is not None else ""
            return self._end(Document(merge_notes(base, ours.text, self._file), made))
        merged = merge(self._base(), ours.text, self._file)
        return self._end(Document(merged.text), merged.conflict)

    def _end(self, wanted: Document | None, conflict: bool = False) -> Change:
        return Change(self.path, self._file, self._known, wanted, conflict)

    def _base(self) -> str | None:
        return _base(self._engine, self.path, self._known, self._marker)

    def _ours(self, lines: str, made: str | None) -> Document | None:
        """What the journal has, with what was logged and what is made anew."""
        known = self._known
        if made is not None:
            if known is None:
                return Document(made, made)
            return Document(merge_notes(known.rendered, made, known.text), made)
        if lines:
            return Document(with_lines(known.text if known is not None else None, self.path, lines))
        return Document(NEW[self.path]) if self._new and self._file is None and self.path in NEW else known

    def _without_file(self, ours: Document | None) -> Document | None:
        """Somebody has removed it, and the journal has nothing new: then it is removed. Else it is written again."""
        removed = self.path in self._marker.base and self.path not in GENERATED
        if removed and ours is not None and ours == self._known and digest(ours.text) == self._marker.base[self.path]:
            return None
        return ours

    def _without_document(self, file: str) -> Document | None:
        """The journal has removed it, and nobody has edited it since; or it is new."""
        return None if self._marker.base.get(self.path) == digest(file) else Document(file)


# -- doing ------------------------------------------------------------------------------------------------------------


def _asks(engine: Engine, plan: Round) -> list[Wanted]:
    """What is committed: nothing, when the journal has it all."""
    asks: list[Wanted] = [
        ask(engine, it.path, stored(it.wanted) if it.wanted is not None else None)
        for it in plan.changes
        if it.wanted != it.document
    ]
    if plan.logged.upto != plan.shelf.logged:
        asks.append(ask(engine, LOGGED, plan.logged.upto))
    for run, what in plan.said:
        payload: dict[str, Any] = {"run": run, **what}
        packed, made = pack(engine.store, payload, f"event {KIND}")
        asks.append(Settled(r.Happened(engine.stream, KIND, packed, 0, 0), made))
    return [Unchanged((engine.stream, SPACE), plan.shelf.revision), *asks] if asks else []


def _write(engine: Engine, root: Root, plan: Round) -> bool:
    """Write what is not as it should be; False when somebody has edited a file since it was read."""
    settled, base = True, dict(plan.marker.base)
    for it in plan.changes:
        if it.wanted is None:
            base.pop(it.path, None)
            settled = _remove(root, it) and settled
            continue
        wrote = it.wanted.text == it.file or _put(root, it.path, it.file, it.wanted.text)
        settled = wrote and settled
        if wrote or it.file is not None:  # else somebody else has made it, and we have not seen it yet
            base[it.path] = digest(it.wanted.text)
    marker = Marker(engine.name, engine.absolute_url, base)
    if marker != plan.marker:
        root.write(MARKER, msgspec.json.encode(marker))
        before = engine.store.clock.wall_ms() / 1000 - ASIDE_SECONDS
        for folder in ("", *FOLDERS):
            root.drop_asides(folder, before)
    return settled


def _put(root: Root, path: str, before: str | None, text: str) -> bool:
    """Write one file; False when it has become more than that, because somebody has saved it at that moment."""
    if before is None:
        return root.make_new(path, encoded(text))
    wanted, now = text, text
    while (found := root.exchange(path, encoded(now))) is not None and (saved := decoded(found)) != before:
        before, now = now, merge(before, now, saved).text
    return now == wanted


def _remove(root: Root, it: Change) -> bool:
    if it.file is None:
        return True
    if _file(root, it.path) != it.file:
        return False
    root.remove(it.path)
    return True


def _told(plan: Round) -> Synced:
    edited = [it for it in plan.changes if it.file is not None and it.wanted is not None and _is_edit(it, plan.marker)]
    gone = [it for it in plan.changes if it.wanted is None and (it.file is not None or it.document is not None)]
    return Synced(
        read=tuple(it.path for it in edited),
        written=tuple(it.path for it in plan.changes if it.wanted is not None and it.wanted.text != it.file),
        removed=tuple(it.path for it in gone),
        conflicts=tuple(it.path for it in plan.changes if it.conflict),
    )


def _is_edit(it: Change, marker: Marker) -> bool:
    """Whether the file is not what we have written."""
    assert it.file is not None
    if it.document is not None and it.document.text == it.file:
        return False
    return marker.base.get(it.path) != digest(it.file)
