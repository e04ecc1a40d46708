"""`perdure workspace` and `perdure bootstrap`: workspace files, for agents in any language."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click
import msgspec

from perdure.cli.output import CommandOutput, clean, format_count
from perdure.cli.store_option import (
    add_common_options,
    agent_option,
    find_agent,
    open_engine,
    open_existing_store,
    repeat_options,
    url_of,
)
from perdure.errors import WorkspaceNotFound
from perdure.kernel.engine import Engine
from perdure.kernel.protocol import Protocol, drive_sync
from perdure.presence.workspace import documents
from perdure.presence.workspace.bootstrap import BUDGET, BootSection
from perdure.presence.workspace.layout import MARKER
from perdure.presence.workspace.root import WorkspaceRoot
from perdure.presence.workspace.scan import FolderMarker, is_sealed, marker_of
from perdure.presence.workspace.sync import Synced
from perdure.presence.workspace.wake_up import boot
from perdure.presence.workspace.workspace import (
    WorkspaceFolder,
    check_context,
    explain_unsealed,
    find_nearest,
    log,
    open_workspace,
    read_status,
    resolve_folder,
    sync_folder,
)
from perdure.store import file_of, is_embedded, locate

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

folder_option = click.option(
    "--path", "folder", metavar="PATH", help="The folder. Default: the nearest workspace above this one."
)
git_option = click.option(
    "--git/--no-git", "use_git", default=None, help="Initialise a git repository; or never use git."
)


def _command(command: F) -> F:
    return folder_option(agent_option(add_common_options(command)))


@click.command()
@click.option("--budget", type=click.IntRange(min=1), default=BUDGET, show_default=True, help="Tokens at most.")
@_command
def bootstrap(budget: int, folder: str | None, agent: str | None, url: str | None, as_json: bool) -> int:
    """Print what an agent should read when it starts, within a token budget.

    Prints identity, memory, the selected context, the logs of yesterday and today, active tasks and progress, after a
    sync of the files. Standard error lists what did not fit. An installed tokeniser counts tokens, else they are
    estimated.
    """
    out = CommandOutput(as_json)
    # With --agent and no folder, the text comes from the journal.
    path = find_nearest() if folder is None and (agent or url) else resolve_folder(folder)
    with _agent_of(path, agent, url) as engine:
        found = _execute(
            engine, boot(engine, WorkspaceFolder(WorkspaceRoot(path)) if path is not None else None, budget)
        )
    if as_json:
        sections = [
            {name: getattr(section, name) for name in BootSection.__struct_fields__} for section in found.sections
        ]
        out.json({**_to_json_types(found), "sections": sections})
        return 0
    for line in found.text.split("\n"):
        print(clean(line))
    for line in found.dropped:
        click.echo(clean(f"did not fit: {line}"), err=True)
    return 0


@click.group()
def workspace() -> None:
    """Create and sync the folder of files that people read and edit."""


@workspace.command()
@click.argument("path", default=".")
@git_option
@agent_option
@add_common_options
def init(path: str, use_git: bool | None, agent: str | None, url: str | None, as_json: bool) -> int:
    """Make PATH, or this folder, the workspace of an agent.

    Existing files are kept. The store and the agent are created if necessary; the agent is named after the folder
    unless --agent is given.
    """
    out = CommandOutput(as_json)
    with _open_workspace(path, agent, url, use_git, new=True) as (engine, home):
        found = read_status(engine, home)
    if as_json:
        out.json(_to_json_types(found))
        return 0
    out.line(clean(f"{found.path} is the workspace of {engine.name}: {', '.join(found.files)}"))
    out.line(clean(f"Edit them as you like, then: perdure bootstrap --path {path}{repeat_options(url)}"))
    return 0


@workspace.command()
@_command
def sync(folder: str | None, agent: str | None, url: str | None, as_json: bool) -> int:
    """Sync the files and the journal, and print what has changed."""
    out = CommandOutput(as_json)
    path = resolve_folder(folder)
    with _agent_of(path, agent, url) as engine:
        synced: Synced = _execute(engine, sync_folder(engine, WorkspaceFolder(WorkspaceRoot(path))))
    if as_json:
        out.json(_to_json_types(synced))
        return 0
    out.line(clean(str(synced)))
    for line in (*([f"commit {synced.commit}"] if synced.commit else []), *synced.notes):
        out.line(clean(line))
    return 0


@workspace.command()
@_command
def show(folder: str | None, agent: str | None, url: str | None, as_json: bool) -> int:
    """Show the files, the selected context and the tasks of a workspace."""
    out = CommandOutput(as_json)
    with _open_workspace(folder, agent, url) as (engine, home):
        found = read_status(engine, home)
    if as_json:
        out.json({"agent": engine.name, **_to_json_types(found)})
        return 0
    out.line(clean(f"{found.path}: {format_count(len(found.files), 'file')} of {engine.name}"))
    for path in found.files:
        out.line(clean(f"  {path}{'  (selected)' if path == f'contexts/{found.context}.md' else ''}"))
    return 0


@workspace.command()
@click.argument("name")
@_command
def switch(name: str, folder: str | None, agent: str | None, url: str | None, as_json: bool) -> int:
    """Select contexts/NAME.md for the bootstrap."""
    with _open_workspace(folder, agent, url) as (engine, home):
        check_context(engine, name)
        _execute(engine, documents.switch(engine, name))
        found = read_status(engine, home)
    _print_result(as_json, f"the context is {name}", _to_json_types(found))
    return 0


@workspace.command(name="log")
@click.argument("text")
@click.option("--trust", type=click.FloatRange(0, 1), help="How reliable it is, from 0 to 1.")
@click.option("--source", help="Its origin.")
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
    """Append TEXT to the log of the day."""
    with _open_workspace(folder, agent, url) as (engine, _):
        _execute(engine, log(engine, text, trust, source))
    _print_result(as_json, "noted", {"noted": text})
    return 0


def _print_result(as_json: bool, words: str, told: dict[str, Any]) -> None:
    out = CommandOutput(as_json)
    if as_json:
        out.json(told)
    else:
        out.line(clean(words))


def _to_json_types(struct: msgspec.Struct) -> dict[str, Any]:
    return msgspec.structs.asdict(struct)


def _execute(engine: Engine, protocol: Protocol[T]) -> T:
    return drive_sync(engine.store, protocol)


@contextmanager
def _open_workspace(
    folder: str | None, agent: str | None, url: str | None, use_git: bool | None = None, *, new: bool = False
) -> Iterator[tuple[Engine, WorkspaceFolder]]:
    """Open the agent of a workspace and its synced folder."""
    path = resolve_folder(folder)
    with _agent_of(path, agent, url, new=new) as engine:
        yield engine, _execute(engine, open_workspace(engine, path, use_git))


@contextmanager
def _agent_of(path: str | None, agent: str | None, url: str | None, *, new: bool = False) -> Iterator[Engine]:
    """Open the named agent, else that of the folder, else the only one of the store, else a new one."""
    marker = (
        marker_of(WorkspaceRoot(path))
        if path is not None and os.path.exists(os.path.join(path, MARKER))
        else FolderMarker()
    )
    if path is not None and not marker.agent and not new:  # only `init` turns a folder into a workspace
        hint = f"make it one: `perdure workspace init {path}`"
        raise WorkspaceNotFound(f"{path} is not a workspace", hint=hint)
    named = url if url is not None else os.environ.get("PERDURE_URL")
    chosen = named or _store_of(marker) or None
    if not new or (chosen and not named):
        url_of(chosen)  # fails if it does not exist: looking must not create a store
    name = (
        agent or marker.agent or _find_only_agent(chosen) or (os.path.basename(os.path.realpath(path)) if path else "")
    )
    with open_engine(name, locate(chosen)) as engine:
        if path is not None and marker.agent and not (agent and url):
            _require_seal(engine, path, marker)
        yield engine


def _store_of(marker: FolderMarker) -> str:
    """Return the store that a folder names. A server is refused: a folder could make us send it a password."""
    if marker.store and not is_embedded(marker.store):
        text = f"the folder names the store {marker.store}, but a folder may not choose a server"
        raise WorkspaceNotFound(text, hint="name the store yourself: --store URL, or PERDURE_URL")
    return marker.store


def _require_seal(engine: Engine, path: str, marker: FolderMarker) -> None:
    """Refuse a folder that its agent has not sealed: a foreign folder, such as a clone, could name any agent."""
    if not is_sealed(engine, marker):
        names = (shlex.quote(name) for name in (path, engine.name, engine.shown_url))
        how = "perdure workspace init {} --agent {} --store {}".format(*names)
        hint = f"if it is yours and you trust its files: `{how}`"
        raise WorkspaceNotFound(f"{path} was not used: {explain_unsealed(engine)}", hint=hint)


def _find_only_agent(url: str | None) -> str | None:
    """Return the agent of a store that has only one; with several, --agent is needed."""
    located = locate(url)
    if is_embedded(located) and not os.path.exists(file_of(located) or ""):
        return None
    with open_existing_store(url) as store:
        found = find_agent(store, None)
    return found[0] if found is not None else None
