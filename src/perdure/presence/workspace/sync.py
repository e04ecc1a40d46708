"""Syncs a folder with the journal, in both directions.

One round reads the files, finds the last common versions, merges, commits people's changes, and only then writes the
files. A process killed in between leaves a folder that is partly synced, and the next round does the rest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import records as r
from perdure.errors import StoreBusy, VersionConflict
from perdure.journal.agent_writes import AgentWrite, RequireRevision, UnconditionalWrite
from perdure.journal.objects import pack
from perdure.kernel.protocol import Pause, Protocol, Read
from perdure.kernel.write_routing import land
from perdure.platform.failpoints import Site
from perdure.presence.handoff import readable
from perdure.presence.handoff.progress import KIND
from perdure.presence.workspace.documents import LOGGED, SPACE, ask, digest, shelf_of, to_state_value
from perdure.presence.workspace.layout import ARCHIVED, FOLDERS, LOGS, MARKER, OLD_PROGRESS, PROGRESS
from perdure.presence.workspace.merge import is_marked
from perdure.presence.workspace.playbook_pages import make_version_writes
from perdure.presence.workspace.replace_file import (
    PlacementOutcome,
    RedactText,
    keep_text,
    place_file,
    release_displaced,
    remove_unchanged,
    rescue,
)
from perdure.presence.workspace.root import WorkspaceRoot
from perdure.presence.workspace.scan import (
    FileChange,
    FolderMarker,
    PathPrefix,
    SavedCopies,
    SyncRound,
    files_in,
    list_archived,
    marker_of,
    plan_sync,
    seal_of,
)
from perdure.values.limits import ASIDE_SECONDS, LOCK_SECONDS_MAX

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

TRIES = 20
"""Maximum number of rounds while others change the documents or files."""
POLL_SECONDS = 0.02

ExtraWrites = Callable[[SyncRound], Sequence[AgentWrite]]
"""Returns further writes to commit with a round."""


class Synced(msgspec.Struct, frozen=True):
    """The result of a sync."""

    read: tuple[str, ...] = ()
    """Edited files, whose edits are in the journal now."""
    written: tuple[str, ...] = ()
    """Files that were updated."""
    removed: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    """Files in which both sides changed the same lines: both versions are there, marked, until a person decides."""
    commit: str = ""
    """The id of the git commit, if one was made."""
    notes: tuple[str, ...] = ()
    """What could not be done, and why."""

    def __str__(self) -> str:
        parts = ("read", "written", "removed", "conflicts")
        told = [f"{name} {', '.join(getattr(self, name))}" for name in parts if getattr(self, name)]
        return "; ".join(told) or "nothing has changed"

    @property
    def changed(self) -> tuple[str, ...]:
        """All files that have changed."""
        return tuple(dict.fromkeys((*self.read, *self.written, *self.removed)))


def sync(engine: Engine, root: WorkspaceRoot, under: PathPrefix = "") -> Protocol[Synced]:
    """Sync a folder with the journal, or the files whose paths have a prefix."""
    lock = yield from lock_folder(root)
    try:
        return (yield from rounds(engine, root, under))
    finally:
        os.close(lock)


def lock_folder(root: WorkspaceRoot) -> Protocol[int]:
    """Lock the folder, so that no two processes overwrite each other. Returns a descriptor; closing it unlocks."""
    waited = 0.0
    while (lock := (yield Read(root.lock))) is None:
        if waited >= LOCK_SECONDS_MAX:
            raise StoreBusy(f"another process is working in {root.path}")
        yield Pause(POLL_SECONDS)
        waited += POLL_SECONDS
    return int(lock)


def _add_nothing(_: SyncRound) -> Sequence[AgentWrite]:
    return ()


def rounds(
    engine: Engine,
    root: WorkspaceRoot,
    under: PathPrefix = "",
    strike: RedactText = keep_text,
    also: ExtraWrites = _add_nothing,
) -> Protocol[Synced]:
    """Sync a folder that the caller has locked. `strike` removes forgotten texts from everything that is written."""
    if isinstance(under, str) and under.startswith(f"{LOGS}/"):
        under = f"{LOGS}/"  # one position covers all logs
    yield Read(engine.ensure_agent)
    bases = dict[str, str]()  # texts of files, by the tags of displaced files
    for _ in range(TRIES):
        saves: SavedCopies = yield Read(_rescue, (engine, root, bases, strike))
        plan: SyncRound = yield Read(plan_sync, (engine, root, under, strike, saves))
        try:
            yield from _commit(engine, plan, also)
        except VersionConflict:
            continue  # a document changed before the commit: look again
        yield Read(release_displaced, (root, plan.saved))  # the journal has it now, even if the file is overwritten
        done: Mapping[str, PlacementOutcome] = yield Read(_write, (engine, root, plan, bases, strike))
        if {*done.values()} <= {PlacementOutcome.WRITTEN, PlacementOutcome.PROTECTED}:
            for error in plan.refused:
                raise error  # everything else is synced
            return _summary(plan, [path for path, outcome in done.items() if outcome == PlacementOutcome.PROTECTED])
    raise VersionConflict("the files of the workspace change faster than they can be read")


def _rescue(engine: Engine, root: WorkspaceRoot, bases: Mapping[str, str], strike: RedactText) -> SavedCopies:
    """Find displaced saves. Mostly there are none, and nothing else is read."""
    if not any(root.asides(folder) for folder in ("", *FOLDERS, ARCHIVED)):
        return {}
    paths = {*files_in(root), *marker_of(root).base, *shelf_of(engine).documents, *list_archived(root)}
    return rescue(engine, root, paths, bases, strike)


# -- doing ------------------------------------------------------------------------------------------------------------


def _commit(engine: Engine, plan: SyncRound, also: ExtraWrites) -> Protocol[None]:
    """Commit the changes, if any.

    Reported progress is committed with its page and apart from the rest, so that it survives if the text of another
    document is erased together with its entry.
    """
    revision = plan.shelf.revision
    groups: Sequence[Sequence[AgentWrite]] = yield Read(_make_write_batches, (engine, plan, also))
    for asks in groups:
        landed = yield from land(engine, Site.STATE, [RequireRevision((engine.stream, SPACE), revision), *asks])
        ours = [one for one in landed if isinstance(one, r.StateChange) and one.space == SPACE]
        revision = max([revision, *(one.revision for one in ours)])


def _make_write_batches(engine: Engine, plan: SyncRound, also: ExtraWrites) -> list[list[AgentWrite]]:
    of_progress = [
        *_make_document_writes(engine, plan, lambda path: path in (PROGRESS, OLD_PROGRESS)),
        *_make_progress_writes(engine, plan),
    ]
    others: list[AgentWrite] = _make_document_writes(engine, plan, lambda path: path not in (PROGRESS, OLD_PROGRESS))
    if plan.logged.upto != plan.shelf.logged:
        others.append(ask(engine, LOGGED, plan.logged.upto))
    others += make_version_writes(engine, plan.playbooks, plan.pages.versions)
    others += also(plan)
    groups = [of_progress, others] if plan.said else [[*of_progress, *others]]
    return [asks for asks in groups if asks]


def _make_document_writes(engine: Engine, plan: SyncRound, wanted: Callable[[str], bool]) -> list[AgentWrite]:
    return [
        ask(engine, change.path, to_state_value(change.wanted) if change.wanted is not None else None)
        for change in plan.changes
        if change.wanted != change.document and wanted(change.path)
    ]


def _make_progress_writes(engine: Engine, plan: SyncRound) -> Iterator[AgentWrite]:
    for run, what in plan.said:
        payload: dict[str, Any] = {"run": run, **what}
        packed, made = pack(engine.store, payload, f"event {KIND}")
        yield UnconditionalWrite(r.EventAppended(engine.stream, KIND, packed, 0, 0), made)


def _write(
    engine: Engine, root: WorkspaceRoot, plan: SyncRound, bases: dict[str, str], strike: RedactText
) -> Mapping[str, PlacementOutcome]:
    """Write the files that differ. Returns the outcome by file."""
    base = dict(plan.marker.base)
    done = {state_change.path: _write_change(root, state_change, bases, strike) for state_change in plan.changes}
    for change in plan.changes:
        if done[change.path] == PlacementOutcome.PROTECTED:
            base[change.path] = digest(change.file or "")  # the journal has all of it
        elif change.wanted is None:
            base.pop(change.path, None)
        elif (
            done[change.path] != PlacementOutcome.MISSED
        ):  # otherwise it was created or removed meanwhile, which the next round sees
            base[change.path] = digest(change.wanted.text)
    marker = FolderMarker(engine.name, engine.absolute_url, base, seal_of(engine))
    if marker != plan.marker:
        root.write(MARKER, msgspec.json.encode(marker))
        before = engine.store.clock.wall_ms() / 1000 - ASIDE_SECONDS
        for folder in ("", *FOLDERS):
            root.drop_asides(folder, before)
    return done


def _write_change(
    root: WorkspaceRoot, change: FileChange, bases: dict[str, str], strike: RedactText
) -> PlacementOutcome:
    if change.file == (change.wanted.text if change.wanted is not None else None):
        return PlacementOutcome.WRITTEN
    if change.file is not None and strike is keep_text and root.is_protected(change.path):
        return PlacementOutcome.PROTECTED
    if change.wanted is None:
        return remove_unchanged(root, change.path, change.file or "")
    return place_file(root, change.path, change.file, change.wanted.text, bases, strike)


def _summary(plan: SyncRound, protected: Sequence[str]) -> Synced:
    changes = [change for change in plan.changes if change.path not in protected]
    edited = [
        change
        for change in changes
        if change.file is not None and change.wanted is not None and _is_edit(change, plan.marker)
    ]
    gone = [
        change
        for change in changes
        if change.wanted is None and (change.file is not None or change.document is not None)
    ]
    return Synced(
        read=tuple(change.path for change in edited),
        written=tuple(
            change.path for change in changes if change.wanted is not None and change.wanted.text != change.file
        ),
        removed=tuple(change.path for change in gone),
        conflicts=tuple(
            change.path for change in plan.changes if change.wanted is not None and is_marked(change.wanted.text)
        ),
        notes=(
            *(f"{path} is read-only, and stays as it is" for path in protected),
            *_unreadable(plan),
            *plan.pages.notes,
        ),
    )


def _unreadable(plan: SyncRound) -> Iterator[str]:
    for change in plan.changes:
        if change.wanted is not None and readable(change.wanted.text) != change.wanted.text:
            yield f"{change.path} is not UTF-8: its bytes stay, and models are shown U+FFFD instead"


def _is_edit(change: FileChange, marker: FolderMarker) -> bool:
    """Return whether the file has a text that we did not write."""
    assert change.seen is not None
    if change.document is not None and change.document.text == change.seen:
        return False
    return marker.base.get(change.path) != digest(change.seen)
