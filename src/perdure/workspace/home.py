"""The workspace of an agent at work: when its files are brought in step, and what git is told."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from .. import records as r
from ..errors import PerdureError, WorkspaceNotFound
from ..handoff.progress import one_line
from ..run.core import RunCore
from ..run.requests import Protocol, Read
from ..runs import must_exist, summary_of
from ..state import waiting_room
from . import git
from .documents import shelf_of
from .layout import CONTEXTS, FOLDERS, GENERATED, HANDOFF, LOGS, MARKER, TASKS, TOP, named, path_in
from .logs import log as note_log
from .looking import Marker, Under, archived_in, files_in, is_sealed, marker_of
from .root import Root
from .syncing import Synced, sync

if TYPE_CHECKING:
    from ..engine import Engine


_AT_WORK = (*(path for path in TOP if path != HANDOFF), *(f"{folder}/" for folder in FOLDERS))
"""All but the handoff, which is written when a run ends."""


class Home(msgspec.Struct, frozen=True):
    """The folder of an agent in this process."""

    root: Root
    git: bool | None = None
    """Whether changes are committed: True makes a repository, False leaves one alone, None uses one that is there."""


def nearest() -> str | None:
    """The nearest workspace: the working folder or one above it."""
    folder, above = os.getcwd(), ""
    while folder != above:
        if os.path.isfile(os.path.join(folder, MARKER)):
            return folder
        above, folder = folder, os.path.dirname(folder)
    return None


def folder_meant(path: str | os.PathLike[str] | None = None) -> str:
    """The folder that is meant: the named one, else the nearest workspace."""
    found = os.fspath(path) if path is not None else nearest()
    if found is None:
        raise WorkspaceNotFound(f"neither {os.getcwd()} nor a folder above it is a workspace")
    return found


def at_home(engine: Engine) -> Protocol[Home | None]:
    """The folder that is open, else the nearest one if this agent has made it its own."""
    path = nearest() if engine.home is None else None
    marker = (yield Read(marker_of, (Root(path),))) if path is not None else Marker()
    if path is not None and marker.agent == engine.name:
        if (yield Read(is_sealed, (engine, marker))):
            engine.home = Home(Root(path))
        else:
            warnings.warn(f"{path} is left alone: {unsealed(engine)}", UserWarning, stacklevel=2)
    return engine.home


def unsealed(engine: Engine) -> str:
    """What is wrong with a folder that only says that it is an agent's."""
    return f"it says that it is the workspace of agent {engine.name!r}, and {engine.shown_url} has not made it one"


def opened(engine: Engine, path: str, use_git: bool | None) -> Protocol[Home]:
    """Make the folder a workspace of this agent, or go on with the one that it is."""
    root = Root(path)
    yield Read(root.make)
    marker = yield Read(marker_of, (root,))
    if marker.agent not in ("", engine.name):
        text = f"{root.path} is the workspace of agent {marker.agent!r}, not of {engine.name!r}"
        raise WorkspaceNotFound(text, hint="name another folder: two agents in one would write over each other")
    home = Home(root, use_git)
    note = yield Read(git.prepare, (root, use_git is True))
    engine.home = home
    yield from in_step(engine, home, "The workspace begins" if not marker.agent else "")
    if note:
        warnings.warn(note, UserWarning, stacklevel=2)
    return home


def in_step(engine: Engine, home: Home, message: str = "", under: Under = "") -> Protocol[Synced]:
    """Bring the folder in step, and commit it when something significant has changed."""
    yield Read(home.root.make)  # somebody may have removed it: then all of it is written again
    synced: Synced = yield from sync(engine, home.root, under)
    return (yield from committed(engine, home, synced, message))


def committed(engine: Engine, home: Home, synced: Synced, message: str = "") -> Protocol[Synced]:
    """Tell git what has changed, if that is significant."""
    told = message or _message(synced)
    if home.git is False or not told:
        return synced
    done: git.Committed = yield Read(_commit, (engine, home, told, synced))
    notes = (*synced.notes, *((done.note,) if done.note else ()))
    return msgspec.structs.replace(synced, commit=done.commit, notes=notes)


def _commit(engine: Engine, home: Home, message: str, synced: Synced) -> git.Committed:
    body = "".join(f"\n- {path}" for path in synced.changed)
    return git.commit(
        home.root, engine.name, [*files_in(home.root), *archived_in(home.root)], f"{message}\n{body}".strip() + "\n"
    )


def _message(synced: Synced) -> str:
    """What happened, in a line; nothing when it is only a line in the log, which goes with the next commit."""
    edited, kept = [path for path in synced.read if path not in GENERATED], (*GENERATED, LOGS)
    written = [path for path in synced.written if not path.startswith(kept) and path not in synced.read]
    marked = [path for path in synced.conflicts if path in synced.changed]  # the others are known
    parts = [("Edited", edited), ("Wrote", written), ("Removed", synced.removed), ("Conflict in", marked)]
    return "; ".join(f"{verb} {', '.join(paths)}" for verb, paths in parts if paths)


# -- what an agent does with it ---------------------------------------------------------------------------------------


def shown(engine: Engine, home: Home | None, message: str = "", under: Under = "") -> Protocol[None]:
    """The files show what was written, if there are any. Inside a step nothing has landed yet: then they do later."""
    if home is not None and waiting_room(engine) is None:
        yield from trying(home, in_step(engine, home, message, under))


def trying(home: Home, showing: Protocol[Any]) -> Protocol[None]:
    """What has happened is in the journal, and nobody's work ends because of a file: trouble with one is a warning."""
    try:
        yield from showing
    except (PerdureError, OSError) as trouble:
        text = f"the files in {home.root.path} do not show yet what has happened: {trouble}"
        warnings.warn(text, UserWarning, stacklevel=2)


def log(engine: Engine, text: str, trust: float | str | None = None, source: str | None = None) -> Protocol[None]:
    """`agent.log`: noted in the journal, and shown in the file of the day."""
    yield from note_log(engine, text, trust, source)
    yield from shown(engine, engine.home, under=f"{LOGS}/")


def reported(engine: Engine, what: dict[str, Any], run: str) -> Protocol[None]:
    """After `run.progress`: the files show it, and what steps that have landed have logged and written."""
    done = f"Done: {'; '.join(map(one_line, what['done']))} ({one_line(run)})" if what.get("done") else ""
    yield from shown(engine, engine.home, done, _AT_WORK)


def handed_over(engine: Engine, home: Home | None) -> Protocol[None]:
    """`agent.handoff`: all files say how it stands now."""
    yield from shown(engine, home, "Handed over")


def run_ended(run: RunCore, error: BaseException | None) -> Protocol[None]:
    """At the end of a run the files say how it ended."""
    home = run.engine.home
    if home is not None and run.root.parent is None and not run.finished:
        yield from trying(home, _ended(run, home, error))


def _ended(run: RunCore, home: Home, error: BaseException | None) -> Protocol[None]:
    ending = yield Read(_ending, (run, error))
    yield from in_step(run.engine, home, f"Run {one_line(run.id)} {ending}")


def _ending(run: RunCore, error: BaseException | None) -> str:
    status = summary_of(run.store, must_exist(run.store, run.engine.name, run.id)).status
    return f"{status}: {type(error).__name__}" if status == r.Status.FAILED else str(status)


class Standing(msgspec.Struct, frozen=True):
    """What is in a workspace."""

    path: str
    files: tuple[str, ...]
    context: str
    contexts: tuple[str, ...]
    tasks: tuple[str, ...]


def standing(engine: Engine, home: Home) -> Standing:
    """What there is now."""
    shelf = shelf_of(engine)
    paths: Sequence[str] = sorted(shelf.documents)
    contexts, tasks = tuple(named(paths, CONTEXTS)), tuple(named(paths, TASKS))
    return Standing(home.root.path, tuple(paths), shelf.context, contexts, tasks)


def must_have_context(engine: Engine, name: str) -> None:
    """A context that is selected has a file."""
    from ..hints import meant

    path, there = path_in(CONTEXTS, name), shelf_of(engine).documents
    if path not in there:
        hint = meant(name, named(there, CONTEXTS), f"write {path} first")
        raise WorkspaceNotFound(f"there is no context {name!r}", hint=hint)
