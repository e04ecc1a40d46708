"""The store, agent and run that a command works on: options, and lookup with helpful errors."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from perdure.cli.completion_values import complete_agents, complete_runs
from perdure.cli.output import clean
from perdure.errors import RunNotFound, StoreUnavailable
from perdure.journal.rebuild import refresh
from perdure.run.listing import RunSummary, find_queued, find_runs
from perdure.store import (
    DATABASE_NAME,
    FOLDER_NAME,
    hide_password,
    is_embedded,
    is_postgres,
    locate,
    open_store,
    sqlite_path,
)
from perdure.store.rows import read_runs
from perdure.values.hints import did_you_mean, name_hint

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine
    from perdure.store.base import Store

CLOSE_AMONG = 10_000
"""How many of the newest runs are searched for an id similar to a mistyped one."""

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
store_option = click.option(
    "--store",
    "url",
    metavar="URL",
    help="The store: sqlite:///path, a path, or postgresql://... Default: PERDURE_URL, else the nearest .perdure/, "
    "else ~/.perdure/.",
)
agent_option = click.option("--agent", metavar="NAME", help="Only this agent.", shell_complete=complete_agents)
run_argument = click.argument("run", shell_complete=complete_runs)
run_option = click.option("--run", metavar="RUN", help="Only this run.", shell_complete=complete_runs)


def add_common_options(command: F) -> F:
    """Add the options that every command has."""
    return store_option(json_option(command))


def repeat_options(url: str | None, agent: str | None = None) -> str:
    """Return the options for a printed command, as given to this one.

    A password is left out, because output ends up in logs; libpq can find it elsewhere.
    """
    shown = hide_password(url) if url is not None and is_postgres(url) else url
    whose = f" --agent {shlex.quote(agent)}" if agent is not None else ""
    return whose + (f" --store {shlex.quote(shown)}" if shown is not None else "")


def path_of(url: str | None) -> str:
    """Return the file of the selected store, which must exist."""
    path = sqlite_path(locate(url))
    if path == ":memory:":
        raise StoreUnavailable("only its own process can see a store in memory", hint="give --store a file")
    if os.path.isdir(path):
        inside = [os.path.join(path, name) for name in (f"{FOLDER_NAME}/{DATABASE_NAME}", DATABASE_NAME)]
        there = next(filter(os.path.exists, inside), os.path.join(path, DATABASE_NAME))
        raise StoreUnavailable(f"{path} is a folder; a store is a file", hint=f"give --store {shlex.quote(there)}")
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        raise StoreUnavailable(
            f"there is no store at {path}",
            hint=f"create one with `perdure init{repeat_options(url)}`, or choose another with --store",
        )
    return path


def url_of(url: str | None) -> str:
    """Return the URL of the selected store; a file must exist."""
    located = locate(url)
    return f"sqlite:///{path_of(url)}" if is_embedded(located) else located


@contextmanager
def open_engine(agent: str, url: str) -> Iterator[Engine]:
    """Open an agent for the duration of a command."""
    from perdure.kernel.engine import Engine  # late: most commands only read

    engine = Engine(agent, store=url, wary=True)
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def open_existing_store(url: str | None) -> Iterator[Store]:
    """Open an existing store. Reading does not register this process as a holder of leases."""
    store = open_store(url_of(url), create=False, wary=True)
    try:
        if store.read_only:
            click.echo(f"perdure: note: {clean(store.read_only)}", err=True)
        refresh(store)
        yield store
    finally:
        store.close()


def find_run(store: Store, run_id: str, agent: str | None, *, queued: bool = False) -> RunSummary:
    """Return the run with that id, of the named agent if several have one. `queued` includes queued runs."""
    known: list[RunSummary] = [*find_runs(store, run_id), *(find_queued(store, run_id) if queued else ())]
    found = [run for run in known if agent in (None, run.agent)]
    if not found:
        raise _run_not_found_error(store, run_id, agent)
    if len(found) > 1:
        names = ", ".join(clean(run.agent) for run in found)
        raise click.UsageError(f"several agents have a run with that id: {names}; choose one with --agent")
    return found[0]


def _run_not_found_error(store: Store, run_id: str, agent: str | None) -> RunNotFound:
    if any(agent in (None, run.agent) for run in find_queued(store, run_id)):
        text = clean(f"run {run_id!r} is queued, and no worker has started it")
        return RunNotFound(text, hint=clean(f"`perdure show {shlex.quote(run_id)}` shows more"))
    there = [run.id for run in read_runs(store) if agent in (None, run.agent)]
    text = clean(f"{f'agent {agent!r} has' if agent is not None else 'there is'} no run {run_id!r}")
    maybe = clean(did_you_mean(run_id, there[:CLOSE_AMONG]))
    if agent is not None and not store.read("get_agent", (agent,)):
        close = clean(did_you_mean(agent, [name for name, *_ in store.read("all_agents")]))
        maybe = f"no agent here has that name{f'; {close}' if close else '.'}"
    return RunNotFound(text, hint=f"{maybe} {RunNotFound.hint}".strip())


def find_agent(store: Store, agent: str | None) -> tuple[str, int] | None:
    """Return the named agent, or the only one, with its stream; None if the store has no agent yet."""
    there = {name: stream for name, stream, *_ in store.read("all_agents")}
    if agent is not None and agent not in there:
        maybe = name_hint(agent, there)
        raise click.UsageError(clean(f"there is no agent {agent!r} in this store{f'; {maybe}' if maybe else ''}"))
    if agent is None and len(there) > 1:
        names = ", ".join(map(clean, there))
        raise click.UsageError(f"there are several agents: {names}; choose one with --agent")
    name = agent if agent is not None else next(iter(there), None)
    return None if name is None else (name, there[name])


def select_agents(store: Store, agent: str | None) -> dict[str, int]:
    """Return the streams of the named agent, or of all agents, by name."""
    if agent is not None and (chosen := find_agent(store, agent)):
        return dict([chosen])
    return {name: stream for name, stream, *_ in store.read("all_agents")}


def require_one_agent(having: Mapping[str, T], what: str) -> T | None:
    """Return the value of the only agent that has one; None if no agent does."""
    if len(having) > 1:
        names = ", ".join(map(clean, having))
        raise click.UsageError(f"several agents have a {what} of that name: {names}; choose one with --agent")
    return next(iter(having.values()), None)


def moment(text: str) -> int | str:
    """Parse a moment: the number of an entry, else a name."""
    return int(text) if text.isdecimal() else text
