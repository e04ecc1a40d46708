"""A folder and the journal in step, both ways.

One round: read the files, find out what each was last in step with, merge, commit what people have changed, and only
then write what the journal has. A process that is killed in between leaves a folder that is in step with less than it
could be, and the next round does the rest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from .. import records as r
from .. import state
from ..errors import StoreBusy, VersionConflict
from ..failpoints import Site
from ..handoff import readable
from ..handoff.progress import KIND
from ..journal.landing import Settled, Unchanged, Wanted
from ..limits import ASIDE_SECONDS, LOCK_SECONDS_MAX
from ..objects import pack
from ..run.requests import Pause, Protocol, Read
from .documents import LOGGED, SPACE, ask, digest, shelf_of, stored
from .layout import ARCHIVED, FOLDERS, LOGS, MARKER, OLD_PROGRESS, PROGRESS
from .looking import Change, Marker, Round, Saves, Under, archived_in, files_in, marker_of, planned, seal_of
from .merging import is_marked
from .placing import Outcome, Strike, as_it_is, let_go, put, rescue, take_away
from .root import Root

if TYPE_CHECKING:
    from ..engine import Engine

TRIES = 20
"""Rounds, when others change the documents or the files at the same time."""
POLL_SECONDS = 0.02

Also = Callable[[Round], Sequence[Wanted]]
"""What is to be committed with a round."""


class Synced(msgspec.Struct, frozen=True):
    """What a sync has done."""

    read: tuple[str, ...] = ()
    """Files that somebody had edited: the edits are in the journal now."""
    written: tuple[str, ...] = ()
    """Files that were brought up to date."""
    removed: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    """Files in which both sides had changed the same lines: both versions are there, marked, until somebody decides."""
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


def sync(engine: Engine, root: Root, under: Under = "") -> Protocol[Synced]:
    """Bring a folder and the journal in step; of all files those whose path begins like that."""
    lock = yield from locked(root)
    try:
        return (yield from rounds(engine, root, under))
    finally:
        os.close(lock)


def locked(root: Root) -> Protocol[int]:
    """A descriptor: until it is closed, nobody else is at work in the folder. Two would write over each other."""
    waited = 0.0
    while (lock := (yield Read(root.lock))) is None:
        if waited >= LOCK_SECONDS_MAX:
            raise StoreBusy(f"another process is at work in {root.path}")
        yield Pause(POLL_SECONDS)
        waited += POLL_SECONDS
    return int(lock)


def _nothing(_: Round) -> Sequence[Wanted]:
    return ()


def rounds(
    engine: Engine, root: Root, under: Under = "", strike: Strike = as_it_is, also: Also = _nothing
) -> Protocol[Synced]:
    """The same for who has locked the folder; nothing of what is to be struck is written anywhere."""
    if isinstance(under, str) and under.startswith(f"{LOGS}/"):
        under = f"{LOGS}/"  # one position in the events says what is in all of them
    yield Read(engine.ensure_agent)
    bases = dict[str, str]()  # texts that stood in files, by the tags of what has lost its place
    for _ in range(TRIES):
        saves: Saves = yield Read(_rescue, (engine, root, bases, strike))
        plan: Round = yield Read(planned, (engine, root, under, strike, saves))
        try:
            yield from _commit(engine, plan, also)
        except VersionConflict:
            continue  # somebody has changed a document between our look and the commit: look again
        yield Read(let_go, (root, plan.saved))  # now the journal has it, whatever somebody saves over the file
        done: Mapping[str, Outcome] = yield Read(_write, (engine, root, plan, bases, strike))
        if {*done.values()} <= {Outcome.WRITTEN, Outcome.PROTECTED}:
            for error in plan.refused:
                raise error  # all else is in step
            return _told(plan, [path for path, outcome in done.items() if outcome == Outcome.PROTECTED])
    raise VersionConflict("the files of the workspace change faster than they can be read")


def _rescue(engine: Engine, root: Root, bases: Mapping[str, str], strike: Strike) -> Saves:
    """Most of the time there is nothing, and then nothing else is looked at."""
    if not any(root.asides(folder) for folder in ("", *FOLDERS, ARCHIVED)):
        return {}
    paths = {*files_in(root), *marker_of(root).base, *shelf_of(engine).documents, *archived_in(root)}
    return rescue(engine, root, paths, bases, strike)


# -- doing ------------------------------------------------------------------------------------------------------------


def _commit(engine: Engine, plan: Round, also: Also) -> Protocol[None]:
    """Nothing, when the journal has it all.

    What people have said of progress lands with the page that says it, and apart from the rest: it stays when the text
    of another document is erased, and its entry with it.
    """
    revision = plan.shelf.revision
    groups: Sequence[Sequence[Wanted]] = yield Read(_asks, (engine, plan, also))
    for asks in groups:
        landed = yield from state.land(engine, Site.STATE, [Unchanged((engine.stream, SPACE), revision), *asks])
        revision = max([revision, *(it.revision for it in landed if isinstance(it, r.StateChange))])


def _asks(engine: Engine, plan: Round, also: Also) -> list[list[Wanted]]:
    of_progress = [*_changed(engine, plan, lambda path: path in (PROGRESS, OLD_PROGRESS)), *_said(engine, plan)]
    others: list[Wanted] = _changed(engine, plan, lambda path: path not in (PROGRESS, OLD_PROGRESS))
    if plan.logged.upto != plan.shelf.logged:
        others.append(ask(engine, LOGGED, plan.logged.upto))
    others += also(plan)
    groups = [of_progress, others] if plan.said else [[*of_progress, *others]]
    return [asks for asks in groups if asks]


def _changed(engine: Engine, plan: Round, wanted: Callable[[str], bool]) -> list[Wanted]:
    return [
        ask(engine, it.path, stored(it.wanted) if it.wanted is not None else None)
        for it in plan.changes
        if it.wanted != it.document and wanted(it.path)
    ]


def _said(engine: Engine, plan: Round) -> Iterator[Wanted]:
    for run, what in plan.said:
        payload: dict[str, Any] = {"run": run, **what}
        packed, made = pack(engine.store, payload, f"event {KIND}")
        yield Settled(r.Happened(engine.stream, KIND, packed, 0, 0), made)


def _write(engine: Engine, root: Root, plan: Round, bases: dict[str, str], strike: Strike) -> Mapping[str, Outcome]:
    """Write what is not as it should be; says what became of each file."""
    base = dict(plan.marker.base)
    done = {it.path: _written(root, it, bases, strike) for it in plan.changes}
    for it in plan.changes:
        if done[it.path] == Outcome.PROTECTED:
            base[it.path] = digest(it.file or "")  # all that it has is in the journal
        elif it.wanted is None:
            base.pop(it.path, None)
        elif done[it.path] != Outcome.MISSED:  # else somebody has made or removed it, and we have not seen that yet
            base[it.path] = digest(it.wanted.text)
    marker = Marker(engine.name, engine.absolute_url, base, seal_of(engine))
    if marker != plan.marker:
        root.write(MARKER, msgspec.json.encode(marker))
        before = engine.store.clock.wall_ms() / 1000 - ASIDE_SECONDS
        for folder in ("", *FOLDERS):
            root.drop_asides(folder, before)
    return done


def _written(root: Root, it: Change, bases: dict[str, str], strike: Strike) -> Outcome:
    if it.file == (it.wanted.text if it.wanted is not None else None):
        return Outcome.WRITTEN
    if it.file is not None and strike is as_it_is and root.is_protected(it.path):
        return Outcome.PROTECTED
    if it.wanted is None:
        return take_away(root, it.path, it.file or "")
    return put(root, it.path, it.file, it.wanted.text, bases, strike)


def _told(plan: Round, protected: Sequence[str]) -> Synced:
    changes = [it for it in plan.changes if it.path not in protected]
    edited = [it for it in changes if it.file is not None and it.wanted is not None and _is_edit(it, plan.marker)]
    gone = [it for it in changes if it.wanted is None and (it.file is not None or it.document is not None)]
    return Synced(
        read=tuple(it.path for it in edited),
        written=tuple(it.path for it in changes if it.wanted is not None and it.wanted.text != it.file),
        removed=tuple(it.path for it in gone),
        conflicts=tuple(it.path for it in plan.changes if it.wanted is not None and is_marked(it.wanted.text)),
        notes=(*(f"{path} is read-only, and stays as it is" for path in protected), *_unreadable(plan)),
    )


def _unreadable(plan: Round) -> Iterator[str]:
    for it in plan.changes:
        if it.wanted is not None and readable(it.wanted.text) != it.wanted.text:
            yield f"{it.path} is not UTF-8: its bytes stay, and models are shown U+FFFD instead"


def _is_edit(it: Change, marker: Marker) -> bool:
    """Whether what was saved in the file is not what we have written."""
    assert it.seen is not None
    if it.document is not None and it.document.text == it.seen:
        return False
    return marker.base.get(it.path) != digest(it.seen)
