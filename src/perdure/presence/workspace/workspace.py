"""The workspace of a running agent: when files are synced, and what is committed to git."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import records as r
from perdure.errors import PerdureError, WorkspaceNotFound, WorkspaceReadOnly, WrongType
from perdure.kernel.protocol import Protocol, Read
from perdure.kernel.write_routing import enclosing_buffer
from perdure.presence.handoff import progress
from perdure.presence.handoff.progress import join_lines
from perdure.presence.workspace import git
from perdure.presence.workspace.documents import shelf_of
from perdure.presence.workspace.layout import (
    CONTEXTS,
    FOLDERS,
    GENERATED,
    HANDOFF,
    LOGS,
    MARKER,
    TASKS,
    TOP,
    list_names,
    path_in,
)
from perdure.presence.workspace.logs import log as note_log
from perdure.presence.workspace.open_folder import OpenFolder, home_of
from perdure.presence.workspace.root import WorkspaceRoot
from perdure.presence.workspace.scan import FolderMarker, PathPrefix, files_in, is_sealed, list_archived, marker_of
from perdure.presence.workspace.sync import Synced, sync
from perdure.run.core import RunCore
from perdure.run.listing import require_run, summary_of

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine


_AT_WORK = (*(path for path in TOP if path != HANDOFF), *(f"{folder}/" for folder in FOLDERS))
"""Everything but the handoff, which is written when a run ends."""


class WorkspaceFolder(msgspec.Struct, frozen=True):
    """The folder of an agent in this process."""

    root: WorkspaceRoot
    git: bool | None = None
    """Whether to commit changes: True creates a repository, False ignores one, None uses an existing one."""


def find_nearest() -> str | None:
    """Return the nearest workspace: the working directory or one above it."""
    folder, above = os.getcwd(), ""
    while folder != above:
        if os.path.isfile(os.path.join(folder, MARKER)):
            return folder
        above, folder = folder, os.path.dirname(folder)
    return None


def resolve_folder(path: str | os.PathLike[str] | None = None) -> str:
    """Return the named folder, or the nearest workspace."""
    if path is not None and not isinstance(path, str | os.PathLike):
        raise WrongType(f"path={path!r} must be a folder's path", hint='for example agent.workspace("~/travel")')
    found = os.fspath(path) if path is not None else find_nearest()
    if found is None:
        raise WorkspaceNotFound(f"neither {os.getcwd()} nor a folder above it is a workspace")
    return found


def find_folder(engine: Engine) -> Protocol[WorkspaceFolder | None]:
    """Return the open folder, or the nearest one if this agent has created it."""
    path = find_nearest() if home_of(engine) is None else None
    marker = (yield Read(marker_of, (WorkspaceRoot(path),))) if path is not None else FolderMarker()
    if path is not None and marker.agent == engine.name:
        if (yield Read(is_sealed, (engine, marker))):
            engine.parts.get(OpenFolder).home = WorkspaceFolder(WorkspaceRoot(path))
        else:
            warnings.warn(f"{path} is left alone: {explain_unsealed(engine)}", UserWarning, stacklevel=2)
    return home_of(engine)


def explain_unsealed(engine: Engine) -> str:
    """Explain why a folder that claims to belong to an agent is not used."""
    return f"it claims to be the workspace of agent {engine.name!r}, but was not created from {engine.shown_url}"


def open_workspace(engine: Engine, path: str, use_git: bool | None) -> Protocol[WorkspaceFolder]:
    """Make the folder a workspace of this agent, or continue with an existing one."""
    before = home_of(engine)
    try:
        return (yield from _open_folder(engine, path, use_git))
    except PerdureError:
        raise
    except OSError as error:
        engine.parts.get(OpenFolder).home = before
        raise WorkspaceReadOnly(f"{path} cannot be written: {error.strerror or error}") from error


def _open_folder(engine: Engine, path: str, use_git: bool | None) -> Protocol[WorkspaceFolder]:
    root = WorkspaceRoot(path)
    yield Read(root.make)
    marker = yield Read(marker_of, (root,))
    if marker.agent not in ("", engine.name):
        text = f"{root.path} is the workspace of agent {marker.agent!r}, not of {engine.name!r}"
        raise WorkspaceNotFound(text, hint="name another folder: two agents in one would overwrite each other")
    home = WorkspaceFolder(root, use_git)
    note = yield Read(git.prepare, (root, use_git is True))
    engine.parts.get(OpenFolder).home = home
    yield from sync_folder(engine, home, "The workspace begins" if not marker.agent else "", at_start=True)
    if note:
        warnings.warn(note, UserWarning, stacklevel=2)
    return home


def sync_folder(
    engine: Engine, home: WorkspaceFolder, message: str = "", under: PathPrefix = "", *, at_start: bool = False
) -> Protocol[Synced]:
    """Sync the folder, and commit it to git if something significant has changed.

    At the start of a process everything is significant: the process before may have died before its commit.
    """
    yield Read(home.root.make)  # if it was removed, all files are written again
    synced: Synced = yield from sync(engine, home.root, under)
    left_over = "Commit what an earlier process left" if at_start else ""
    return (yield from commit_folder(engine, home, synced, message or _message(synced) or left_over))


def commit_folder(engine: Engine, home: WorkspaceFolder, synced: Synced, message: str = "") -> Protocol[Synced]:
    """Commit to git if something significant has changed."""
    told = message or _message(synced)
    if home.git is False or not told:
        return synced
    done: git.GitCommit = yield Read(_commit, (engine, home, told, synced))
    notes = (*synced.notes, *((done.note,) if done.note else ()))
    return msgspec.structs.replace(synced, commit=done.commit, notes=notes)


def _commit(engine: Engine, home: WorkspaceFolder, message: str, synced: Synced) -> git.GitCommit:
    body = "".join(f"\n- {path}" for path in synced.changed)
    return git.commit(
        home.root, engine.name, [*files_in(home.root), *list_archived(home.root)], f"{message}\n{body}".strip() + "\n"
    )


def _message(synced: Synced) -> str:
    """Return a commit message; empty if only log lines were added, which go with the next commit."""
    edited, kept = [path for path in synced.read if path not in GENERATED], (*GENERATED, LOGS)
    written = [path for path in synced.written if not path.startswith(kept) and path not in synced.read]
    marked = [path for path in synced.conflicts if path in synced.changed]  # others were reported before
    parts = [("Edited", edited), ("Wrote", written), ("Removed", synced.removed), ("Conflict in", marked)]
    return "; ".join(f"{verb} {', '.join(paths)}" for verb, paths in parts if paths)


# -- used by the agent ------------------------------------------------------------------------------------------------


def update_files(
    engine: Engine, home: WorkspaceFolder | None, message: str = "", under: PathPrefix = ""
) -> Protocol[None]:
    """Update the files, if there is a folder. Inside a step nothing is committed yet, so they are updated later."""
    if home is not None and enclosing_buffer(engine) is None:
        yield from warn_on_failure(home, sync_folder(engine, home, message, under))


def warn_on_failure(home: WorkspaceFolder, showing: Protocol[Any]) -> Protocol[None]:
    """Run a protocol that updates files. Failures become warnings: everything is in the journal already."""
    try:
        yield from showing
    except (PerdureError, OSError) as trouble:
        text = f"the files in {home.root.path} are not up to date yet: {trouble}"
        warnings.warn(text, UserWarning, stacklevel=2)


def log(engine: Engine, text: str, trust: float | str | None = None, source: str | None = None) -> Protocol[None]:
    """`agent.log`: recorded in the journal, and shown in the file of the day."""
    yield from note_log(engine, text, trust, source)
    yield from update_files(engine, home_of(engine), under=f"{LOGS}/")


def report(run: RunCore, what: dict[str, Any]) -> Protocol[None]:
    """Record `run.progress` and update the files, including logs and writes of committed steps.

    When a resumed run repeats what it reported before, git gets no second "Done:".
    """
    new = yield from progress.report(run, what)
    yield from update_files(
        run.engine, home_of(run.engine), _describe_done(run, what.get("done", ())) if new else "", _AT_WORK
    )


def show_item(run: RunCore, home: WorkspaceFolder, writes: Sequence[r.RunWrite]) -> Protocol[None]:
    """Show what an item has reported. Called outside of the item's frame."""
    done = progress.find_done(run, writes)
    if done is not None:
        yield from update_files(run.engine, home, _describe_done(run, done), _AT_WORK)


def _describe_done(run: RunCore, done: Sequence[str]) -> str:
    return f"Done: {'; '.join(map(join_lines, done))} ({join_lines(run.id)})" if done else ""


def update_all_files(engine: Engine, home: WorkspaceFolder | None) -> Protocol[None]:
    """`agent.handoff`: update all files."""
    yield from update_files(engine, home, "Handed over")


def update_after_run(run: RunCore, error: BaseException | None) -> Protocol[None]:
    """Update the files at the end of a run."""
    home = home_of(run.engine)
    if home is not None and run.root.parent is None and not run.finished:
        yield from warn_on_failure(home, _update_after_run(run, home, error))


def _update_after_run(run: RunCore, home: WorkspaceFolder, error: BaseException | None) -> Protocol[None]:
    ending = yield Read(_describe_ending, (run, error))
    yield from sync_folder(run.engine, home, f"Run {join_lines(run.id)} {ending}")


def _describe_ending(run: RunCore, error: BaseException | None) -> str:
    status = summary_of(run.store, require_run(run.store, run.engine.name, run.id)).status
    return f"{status}: {type(error).__name__}" if status == r.RunStatus.FAILED else str(status)


class WorkspaceStatus(msgspec.Struct, frozen=True):
    """The contents of a workspace."""

    path: str
    files: tuple[str, ...]
    context: str
    contexts: tuple[str, ...]
    tasks: tuple[str, ...]


def read_status(engine: Engine, home: WorkspaceFolder) -> WorkspaceStatus:
    """Return the current contents."""
    shelf = shelf_of(engine)
    paths: Sequence[str] = sorted(shelf.documents)
    contexts, tasks = tuple(list_names(paths, CONTEXTS)), tuple(list_names(paths, TASKS))
    return WorkspaceStatus(home.root.path, tuple(paths), shelf.context, contexts, tasks)


def check_context(engine: Engine, name: str) -> None:
    """Raise if a context has no file."""
    from perdure.values.hints import name_hint

    path, there = path_in(CONTEXTS, name), shelf_of(engine).documents
    if path not in there:
        hint = name_hint(name, list_names(there, CONTEXTS), f"write {path} first")
        raise WorkspaceNotFound(f"context {name!r} does not exist", hint=hint)
