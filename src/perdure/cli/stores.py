"""The store that a command is about: options, opening it without making it, reading values of unknown types."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .. import objects
from ..errors import RunNotFound, StoreUnavailable, ValueProblem
from ..journal.rebuild import refresh
from ..runs import RunSummary, find_runs
from ..store import is_embedded, is_postgres, locate, open_store, sqlite_path, without_password
from .output import Unreadable, clean

if TYPE_CHECKING:
    from ..store.base import Store

F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of words.")
store_option = click.option(
    "--store",
    "url",
    metavar="URL",
    help="The store: sqlite:///path, a path, or postgresql://... Default: PERDURE_URL, else the nearest .perdure/, "
    "else ~/.perdure/.",
)
agent_option = click.option("--agent", metavar="NAME", help="Only this agent.")


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
def existing_store(url: str | None) -> Iterator[Store]:
    """Open a store that is there. Reading registers nobody as a holder of leases."""
    store = open_store(url_of(url), create=False)
    try:
        refresh(store)
        yield store
    finally:
        store.close()


def one_run(store: Store, run_id: str, agent: str | None) -> RunSummary:
    """The run of that id; of several agents that have one, the named agent's."""
    found = [run for run in find_runs(store, run_id) if agent in (None, run.agent)]
    if not found:
        whose = f"agent {agent!r} has" if agent is not None else "there is"
        raise RunNotFound(clean(f"{whose} no run {run_id!r}"))
    if len(found) > 1:
        names = ", ".join(clean(run.agent) for run in found)
        raise click.UsageError(f"several agents have a run of that id: {names}; say which one with --agent")
    return found[0]


def tolerant(store: Store) -> Callable[[bytes], Any]:
    """Decodes values, and says of the others why not: the types of a program are registered there, not here."""

    def unpack(packed: bytes) -> Any:
        try:
            return objects.unpack(store, packed)
        except ValueProblem as error:
            return Unreadable(f"<{error.message}>")

    return unpack
