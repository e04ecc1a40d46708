"""`perdure workspace` and `perdure bootstrap`: the files that people read, for agents in any language."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click
import msgspec

from ..engine import Engine
from ..errors import WorkspaceNotFound
from ..run.requests import Protocol, drive_sync
from ..store import file_of, is_embedded, locate
from ..workspace import documents
from ..workspace.boot import BUDGET, Section
from ..workspace.home import Home, folder_meant, in_step, log, must_have_context, nearest, opened, standing, unsealed
from ..workspace.layout import MARKER
from ..workspace.looking import Marker, is_sealed, marker_of
from ..workspace.root import Root
from ..workspace.syncing import Synced
from ..workspace.waking import booted
from .output import Output, clean, counted
from .stores import acting_as, agent_option, common, existing_store, one_agent, said_again, url_of

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

folder_option = click.option(
    "--path", "folder", metavar="PATH", help="The folder. Default: the nearest workspace above this one."
)
git_option = click.option(
    "--git/--no-git", "use_git", default=None, help="Make it a git repository; or leave git alone, though it is one."
)


def _command(command: F) -> F:
    return folder_option(agent_option(common(command)))


@click.command()
@click.option("--budget", type=click.IntRange(min=1), default=BUDGET, show_default=True, help="Tokens at most.")
@_command
def bootstrap(budget: int, folder: str | None, agent: str | None, url: str | None, as_json: bool) -> int:
    """Print what an agent reads when it wakes up, within a budget of tokens.

    Its identity first, then memory, the selected context, the logs of yesterday and today, active tasks, progress. The
    files are brought in step before. What did not fit is said on standard error. Tokens are counted with an installed
    tokeniser, else estimated.
    """
    out = Output(as_json)
    # Who says which agent is meant gets what the journal has of it where there is no folder.
    path = nearest() if folder is None and (agent or url) else folder_meant(folder)
    with _agent_of(path, agent, url) as engine:
        found = _done(engine, booted(engine, Home(Root(path)) if path is not None else None, budget))
    if as_json:
        sections = [{name: getattr(it, name) for name in Section.__struct_fields__} for it in found.sections]
        out.json({**_shown(found), "sections": sections})
        return 0
    for line in found.text.split("\n"):
        print(clean(line))
    for line in found.dropped:
        click.echo(clean(f"did not fit: {line}"), err=True)
    return 0


@click.group()
def workspace() -> None:
    """Make and sync the folder of files that people read and edit."""


@workspace.command()
@click.argument("path", default=".")
@git_option
@agent_option
@common
def init(path: str, use_git: bool | None, agent: str | None, url: str | None, as_json: bool) -> int:
    """Make PATH, or this folder, the workspace of an agent.

    Files that are there are taken over as they are. The store is made, if there is none yet, and the agent, which is
    called like the folder then unless you say how.
    """
    out = Output(as_json)
    with _at_home(path, agent, url, use_git, new=True) as (engine, home):
        found = standing(engine, home)
    if as_json:
        out.json(_shown(found))
        return 0
    out.line(clean(f"{found.path} is the workspace of {engine.name}: {', '.join(found.files)}"))
    out.line(clean(f"Edit them as you like, then: perdure bootstrap --path {path}{said_again(url)}"))
    return 0


@workspace.command()
@_command
def sync(folder: str | None, agent: str | None, url: str | None, as_json: bool) -> int:
    """Bring the files and the journal in step, and say what has changed."""
    out = Output(as_json)
    path = folder_meant(folder)
    with _agent_of(path, agent, url) as engine:
        synced: Synced = _done(engine, in_step(engine, Home(Root(path))))
    if as_json:
        out.json(_shown(synced))
        return 0
    out.line(clean(str(synced)))
    for line in (*([f"commit {synced.commit}"] if synced.commit else []), *synced.notes):
        out.line(clean(line))
    return 0


@workspace.command()
@_command
def show(folder: str | None, agent: str | None, url: str | None, as_json: bool) -> int:
    """Show what is in a workspace: files, the selected context, tasks."""
    out = Output(as_json)
    with _at_home(folder, agent, url) as (engine, home):
        found = standing(engine, home)
    if as_json:
        out.json({"agent": engine.name, **_shown(found)})
        return 0
    out.line(clean(f"{found.path}: {counted(len(found.files), 'file')} of {engine.name}"))
    for path in found.files:
        out.line(clean(f"  {path}{'  (selected)' if path == f'contexts/{found.context}.md' else ''}"))
    return 0


@workspace.command()
@click.argument("name")
@_command
def switch(name: str, folder: str | None, agent: str | None, url: str | None, as_json: bool) -> int:
    """Select contexts/NAME.md: it is part of the bootstrap from then on."""
    with _at_home(folder, agent, url) as (engine, home):
        must_have_context(engine, name)
        _done(engine, documents.switch(engine, name))
        found = standing(engine, home)
    _tell(as_json, f"the context is {name}", _shown(found))
    return 0


@workspace.command(name="log")
@click.argument("text")
@click.option("--trust", type=click.FloatRange(0, 1), help="How far it is believed, from 0 to 1.")
@click.option("--source", help="Where it comes from.")
@_command
def log_text(
    text: str,
    trust: float | None,
    source: str | None,
    folder: str | None,
    agent: str | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Note TEXT in the log of the day."""
    with _at_home(folder, agent, url) as (engine, _):
        _done(engine, log(engine, text, trust, source))
    _tell(as_json, "noted", {"noted": text})
    return 0


def _tell(as_json: bool, words: str, told: dict[str, Any]) -> None:
    out = Output(as_json)
    if as_json:
        out.json(told)
    else:
        out.line(clean(words))


def _shown(it: msgspec.Struct) -> dict[str, Any]:
    return msgspec.structs.asdict(it)


def _done(engine: Engine, protocol: Protocol[T]) -> T:
    return drive_sync(engine.store, protocol)


@contextmanager
def _at_home(
    folder: str | None, agent: str | None, url: str | None, use_git: bool | None = None, *, new: bool = False
) -> Iterator[tuple[Engine, Home]]:
    """The agent of a workspace, and the folder, in step."""
    path = folder_meant(folder)
    with _agent_of(path, agent, url, new=new) as engine:
        yield engine, _done(engine, opened(engine, path, use_git))


@contextmanager
def _agent_of(path: str | None, agent: str | None, url: str | None, *, new: bool = False) -> Iterator[Engine]:
    """The agent that is meant: the named one, that of the folder, the only one of the store, else a new one."""
    marker = marker_of(Root(path)) if path is not None and os.path.exists(os.path.join(path, MARKER)) else Marker()
    if path is not None and not marker.agent and not new:  # a folder is not made one unasked
        hint = f"make it one: `perdure workspace init {path}`"
        raise WorkspaceNotFound(f"{path} is no workspace", hint=hint)
    named = url if url is not None else os.environ.get("PERDURE_URL")
    chosen = named or _store_of(marker) or None
    if not new or (chosen and not named):
        url_of(chosen)  # it must be there: nobody makes one by looking for it
    name = agent or marker.agent or _only_agent(chosen) or (os.path.basename(os.path.realpath(path)) if path else "")
    with acting_as(name, locate(chosen)) as engine:
        if path is not None and marker.agent and not (agent and url):
            _must_be_sealed(engine, path, marker)
        yield engine


def _store_of(marker: Marker) -> str:
    """The store that a folder names. A server is not asked because a folder says so: it may be sent a password."""
    if marker.store and not is_embedded(marker.store):
        text = f"the folder names the store {marker.store}, and a folder does not choose which server is contacted"
        raise WorkspaceNotFound(text, hint="name the store yourself: --store URL, or PERDURE_URL")
    return marker.store


def _must_be_sealed(engine: Engine, path: str, marker: Marker) -> None:
    """A folder from somewhere else, a clone for instance, may say that it is any agent's."""
    if not is_sealed(engine, marker):
        names = (shlex.quote(name) for name in (path, engine.name, engine.shown_url))
        how = "perdure workspace init {} --agent {} --store {}".format(*names)
        hint = f"if it is yours, and you trust the files in it: `{how}`"
        raise WorkspaceNotFound(f"{path} is left alone: {unsealed(engine)}", hint=hint)


def _only_agent(url: str | None) -> str | None:
    """The agent of a store that has one; of a store that has several, somebody must say which."""
    located = locate(url)
    if is_embedded(located) and not os.path.exists(file_of(located) or ""):
        return None
    with existing_store(url) as store:
        found = one_agent(store, None)
    return found[0] if found is not None else None
