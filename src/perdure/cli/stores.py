"""The store that a command is about: options, opening it without making it, reading values of unknown types."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..engine import Engine
from ..errors import RunNotFound, StoreUnavailable
from ..hints import meant, near
from ..journal.rebuild import refresh
from ..runs import RunSummary, find_queued, find_runs
from ..store import (
    DATABASE_NAME,
    FOLDER_NAME,
    is_embedded,
    is_postgres,
    locate,
    open_store,
    sqlite_path,
    without_password,
)
from .completed import completed_agents, completed_runs
from .output import clean

if TYPE_CHECKING:
    from ..store.base import Store

CLOSE_AMONG = 10_000
"""So many of the newest runs are looked through for one whose id was mistyped."""

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of words.")
store_option = click.option(
    "--store",
    "url",
    metavar="URL",
    help="The store: sqlite:///path, a path, or postgresql://... Default: PERDURE_URL, else the nearest .perdure/, "
    "else ~/.perdure/.",
)
agent_option = click.option("--agent", metavar="NAME", help="Only this agent.", shell_complete=completed_agents)
run_argument = click.argument("run", shell_complete=completed_runs)
run_option = click.option("--run", metavar="RUN", help="Only this run.", shell_complete=completed_runs)


def common(command: F) -> F:
    """The options that every command has."""
    return store_option(json_option(command))


def said_again(url: str | None, agent: str | None = None) -> str:
    """The options of a command that is printed to be copied: those that were given to this one.

    Without a password, which libpq finds elsewhere: what is printed ends up in logs.
    """
    shown = without_password(url) if url is not None and is_postgres(url) else url
    whose = f" --agent {shlex.quote(agent)}" if agent is not None else ""
    return whose + (f" --store {shlex.quote(shown)}" if shown is not None else "")


def path_of(url: str | None) -> str:
    """The file of the store that is meant; it must be there."""
    path = sqlite_path(locate(url))
    if path == ":memory:":
        raise StoreUnavailable("a store in memory is seen by its own process only", hint="give --store a file")
    if os.path.isdir(path):
        inside = [os.path.join(path, name) for name in (f"{FOLDER_NAME}/{DATABASE_NAME}", DATABASE_NAME)]
        there = next(filter(os.path.exists, inside), os.path.join(path, DATABASE_NAME))
        raise StoreUnavailable(f"{path} is a folder, and a store is a file", hint=f"give --store {shlex.quote(there)}")
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        raise StoreUnavailable(
            f"there is no store at {path}",
            hint=f"make one with `perdure init{said_again(url)}`, or say which one with --store",
        )
    return path


def url_of(url: str | None) -> str:
    """The URL of the store that is meant; if it is a file, it must be there."""
    located = locate(url)
    return f"sqlite:///{path_of(url)}" if is_embedded(located) else located


@contextmanager
def acting_as(agent: str, url: str) -> Iterator[Engine]:
    """An agent of a store, for as long as a command needs it."""
    engine = Engine(agent, store=url, wary=True)
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def existing_store(url: str | None) -> Iterator[Store]:
    """Open a store that is there. Reading registers nobody as a holder of leases."""
    store = open_store(url_of(url), create=False, wary=True)
    try:
        if store.read_only:
            click.echo(f"perdure: note: {clean(store.read_only)}", err=True)
        refresh(store)
        yield store
    finally:
        store.close()


def one_run(store: Store, run_id: str, agent: str | None, *, queued: bool = False) -> RunSummary:
    """The run of that id; of several agents that have one, the named agent's; also one that is only `queued`."""
    known: list[RunSummary] = [*find_runs(store, run_id), *(find_queued(store, run_id) if queued else ())]
    found = [run for run in known if agent in (None, run.agent)]
    if not found:
        raise _no_such_run(store, run_id, agent)
    if len(found) > 1:
        names = ", ".join(clean(run.agent) for run in found)
        raise click.UsageError(f"several agents have a run of that id: {names}; say which one with --agent")
    return found[0]


def _no_such_run(store: Store, run_id: str, agent: str | None) -> RunNotFound:
    if any(agent in (None, it.agent) for it in find_queued(store, run_id)):
        text = clean(f"run {run_id!r} is queued, and no worker has begun it")
        return RunNotFound(text, hint="`perdure show RUN` tells more of it")
    there = [row[2] for row in store.read("all_runs") if agent in (None, row[1])]
    text = clean(f"{f'agent {agent!r} has' if agent is not None else 'there is'} no run {run_id!r}")
    maybe = clean(near(run_id, there[:CLOSE_AMONG]))
    if agent is not None and not store.read("get_agent", (agent,)):
        close = clean(near(agent, [row[0] for row in store.read("all_agents")]))
        maybe = f"no agent here has that name{f'; {close}' if close else '.'}"
    return RunNotFound(text, hint=f"{maybe} {RunNotFound.hint}".strip())


def one_agent(store: Store, agent: str | None) -> tuple[str, int] | None:
    """The agent that is meant, and its stream: the named one, or the only one; None when there is none yet."""
    there = {name: stream for name, stream, *_ in store.read("all_agents")}
    if agent is not None and agent not in there:
        maybe = meant(agent, there)
        raise click.UsageError(clean(f"there is no agent {agent!r} in this store{f'; {maybe}' if maybe else ''}"))
    if agent is None and len(there) > 1:
        names = ", ".join(map(clean, there))
        raise click.UsageError(f"there are several agents: {names}; say which one with --agent")
    name = agent if agent is not None else next(iter(there), None)
    return None if name is None else (name, there[name])


def agents_meant(store: Store, agent: str | None) -> dict[str, int]:
    """The named agent, or all of them; by name, with the stream of each."""
    if agent is not None and (chosen := one_agent(store, agent)):
        return dict([chosen])
    return {name: stream for name, stream, *_ in store.read("all_agents")}


def must_be_one(having: Mapping[str, T], what: str) -> T | None:
    """What the only agent has that has such a thing; None when nobody has it."""
    if len(having) > 1:
        names = ", ".join(map(clean, having))
        raise click.UsageError(f"several agents have a {what} of that name: {names}; say which one with --agent")
    return next(iter(having.values()), None)


def moment(text: str) -> int | str:
    """What was said for a moment: the number of an entry, else a name."""
    return int(text) if text.isdecimal() else text
