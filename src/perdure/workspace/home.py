"""The workspace of an agent at work: when its files are brought in step, committed, archived, and read at the start."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from .. import records as r
from .. import state
from ..errors import PerdureError, VersionConflict, WorkspaceNotFound
from ..failpoints import Site
from ..handoff.desk import RUNS_TOLD
from ..journal.landing import Unchanged
from ..limits import LOG_DAYS
from ..run.core import RunCore
from ..run.requests import Protocol, Read
from ..runs import must_exist, summary_of
from ..state import waiting_room
from ..tokens import Tokens
from . import git
from .boot import BUDGET, Bootstrap, Section, bootstrap, sections_of
from .documents import SPACE, Document, ask, encoded, shelf_of
from .layout import ARCHIVE, CONTEXTS, GENERATED, LOGS, MARKER, MEMORY, PROGRESS, TASKS, day_of, named, path_in
from .logs import Consolidate, consolidated, logged_since, old_logs, today, with_lines
from .logs import log as note_log
from .progress import all_said
from .progress_text import one_line, render
from .root import Root
from .syncing import Synced, files_in, marker_of, sync

if TYPE_CHECKING:
    from ..engine import Engine


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


def meant(path: str | os.PathLike[str] | None = None) -> str:
    """The folder that is meant: the named one, else the nearest workspace."""
    found = os.fspath(path) if path is not None else nearest()
    if found is None:
        raise WorkspaceNotFound(f"neither {os.getcwd()} nor a folder above it is a workspace")
    return found


def at_home(engine: Engine) -> Protocol[Home | None]:
    """The folder that is open, else the nearest one if it is this agent's."""
    path = nearest() if engine.home is None else None
    if path is None or (yield Read(marker_of, (Root(path),))).agent != engine.name:
        return engine.home
    return (yield from opened(engine, path, None))


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


def in_step(engine: Engine, home: Home, message: str = "", under: str = "") -> Protocol[Synced]:
    """Bring the folder in step, and commit it when something significant has changed."""
    yield Read(home.root.make)  # somebody may have removed it: then all of it is written again
    synced: Synced = yield from sync(engine, home.root, under)
    told = message or _message(synced)
    if home.git is False or not told:
        return synced
    done: git.Committed = yield Read(_commit, (engine, home, told, synced))
    notes = (*synced.notes, *((done.note,) if done.note else ()))
    return msgspec.structs.replace(synced, commit=done.commit, notes=notes)


def _commit(engine: Engine, home: Home, message: str, synced: Synced) -> git.Committed:
    folder = f"{LOGS}/{ARCHIVE}"
    archived = [f"{folder}/{name}" for name in home.root.names(folder) if name.endswith(".md")]
    body = "".join(f"\n- {path}" for path in synced.changed)
    return git.commit(home.root, engine.name, [*files_in(home.root), *archived], f"{message}\n{body}".strip() + "\n")


def _message(synced: Synced) -> str:
    """What happened, in a line; nothing when it is only a line in the log, which goes with the next commit."""
    edited, kept = [path for path in synced.read if path not in GENERATED], (*GENERATED, LOGS)
    written = [path for path in synced.written if not path.startswith(kept) and path not in synced.read]
    parts = [("Edited", edited), ("Wrote", written), ("Removed", synced.removed), ("Conflict in", synced.conflicts)]
    return "; ".join(f"{verb} {', '.join(paths)}" for verb, paths in parts if paths)


# -- what an agent does with it ---------------------------------------------------------------------------------------


def shown(engine: Engine, home: Home | None, message: str = "", under: str = "") -> Protocol[None]:
    """The files show what was written, if there are any. Inside a step nothing has landed yet: then they do later."""
    if home is not None and waiting_room(engine) is None:
        yield from in_step(engine, home, message, under)


def log(engine: Engine, text: str) -> Protocol[None]:
    """`agent.log`: noted in the journal, and shown in the file of the day."""
    yield from note_log(engine, text)
    yield from shown(engine, engine.home, under=f"{LOGS}/")


def reported(engine: Engine, what: dict[str, Any], run: str) -> Protocol[None]:
    """After `run.progress`: the file shows it."""
    done = f"Done: {'; '.join(map(one_line, what['done']))} ({one_line(run)})" if what.get("done") else ""
    yield from shown(engine, engine.home, done, PROGRESS)


def handed_over(engine: Engine, home: Home | None) -> Protocol[None]:
    """`agent.handoff`: all files say how it stands now."""
    yield from shown(engine, home, "Handed over")


def run_ended(run: RunCore, error: BaseException | None) -> Protocol[None]:
    """At the end of a run the files say how it ended. The run has ended either way: trouble with files is a warning."""
    home, engine = run.engine.home, run.engine
    if home is None or run.root.parent is not None or run.finished:
        return
    try:
        ending = yield Read(_ending, (run, error))
        yield from in_step(engine, home, f"Run {one_line(run.id)} {ending}")
    except (PerdureError, OSError) as trouble:
        text = f"the files in {home.root.path} do not show yet how run {run.id!r} ended: {trouble}"
        warnings.warn(text, UserWarning, stacklevel=2)


def _ending(run: RunCore, error: BaseException | None) -> str:
    status = summary_of(run.store, must_exist(run.store, run.engine.name, run.id)).status
    return f"{status}: {type(error).__name__}" if status == r.Status.FAILED else str(status)


def booted(
    engine: Engine, home: Home | None, budget: int = BUDGET, tokens: Tokens | None = None
) -> Protocol[Bootstrap]:
    """What an agent reads when it wakes up; with a folder, in step with its files, and with old logs put away."""
    if home is not None:
        yield from compact(engine, home)
    sections = yield Read(waking, (engine, tokens))
    if not sections:
        raise WorkspaceNotFound(f"agent {engine.name!r} has no workspace, and there is none above {os.getcwd()}")
    return bootstrap(sections, budget, tokens)


def waking(engine: Engine, tokens: Tokens | None = None) -> tuple[Section, ...]:
    """The same whole, from the journal alone: it is there on a host that has no folder of the agent, too."""
    if not engine.is_known():
        return ()
    shelf, now = shelf_of(engine), today(engine)
    documents = dict(shelf.documents)
    for path, lines in logged_since(engine, shelf.logged, now - timedelta(days=1)).lines.items():
        before = documents.get(path)
        documents[path] = Document(with_lines(before.text if before is not None else None, path, lines))
    if PROGRESS not in documents:  # no folder has shown any yet
        said = all_said(engine.store, engine.name, engine.stream)
        documents[PROGRESS] = Document(render([*said.values()][-RUNS_TOLD:]))
    return sections_of(msgspec.structs.replace(shelf, documents=documents), now, tokens)


def compact(
    engine: Engine, home: Home, days: int = LOG_DAYS, consolidate: Consolidate | None = None
) -> Protocol[tuple[str, ...]]:
    """Put logs away that are older than some days; what `consolidate` makes of each goes to MEMORY.md."""
    if type(days) is not int or days < 1:
        raise ValueError(f"days={days!r}: a number from 1")
    yield from in_step(engine, home)
    shelf = yield Read(shelf_of, (engine,))
    moved = list[str]()
    for path in old_logs(shelf.documents, today(engine), days):
        day, text = day_of(path), shelf.documents[path].text
        assert day is not None
        kept = (yield Read(consolidate, (day, text))) if consolidate is not None else ""
        yield from _put_away(engine, home, path, day, text, str(kept or ""))
        moved.append(path)
    if moved:
        yield from in_step(engine, home, f"Archived {len(moved)} old {'log' if len(moved) == 1 else 'logs'}")
    return tuple(moved)


def _put_away(engine: Engine, home: Home, path: str, day: date, text: str, kept: str) -> Protocol[None]:
    """The archive is on disk before the document goes; what is kept of it lands in the same commit."""
    shelf = yield Read(shelf_of, (engine,))
    if path not in shelf.documents or shelf.documents[path].text != text:
        raise VersionConflict(f"{path} was edited while it was put away", hint="try again")
    yield Read(home.root.write, (f"{LOGS}/{ARCHIVE}/{day.isoformat()}.md", encoded(text)))
    asks = [ask(engine, path, None)]
    if kept.strip():
        memory = shelf.documents[MEMORY].text if MEMORY in shelf.documents else ""
        asks.append(ask(engine, MEMORY, {"text": consolidated(memory, day, kept)}))
    yield from state.land(engine, Site.STATE, [Unchanged((engine.stream, SPACE), shelf.revision), *asks])


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
