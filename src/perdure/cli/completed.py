"""The runs and agents that a shell offers when somebody presses Tab. Quick and silent: a line is being typed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..errors import PerdureError

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem

    from ..store.base import Rows

OFFERED_MAX = 200
_PLAIN = re.compile(r"[\w@%+:,./-]+", re.ASCII)
"""What no shell takes for anything but text. Others are not offered: an id may be whatever an agent was told."""


def completed_runs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """The newest runs whose id begins like this, each with its agent and status."""
    rows = _rows(context, "runs_like", (incomplete, OFFERED_MAX))
    wanted = context.params.get("agent")
    return _offered((run, f"{status}, of {agent}") for run, agent, status in rows if wanted in (None, agent))


def completed_agents(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """The agents whose name begins like this."""
    rows = _rows(context, "all_agents", ())
    return _offered((name, "") for name, *_ in rows[:OFFERED_MAX] if name.startswith(incomplete))


def _offered(found: Iterable[tuple[str, str]]) -> list[CompletionItem[str]]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(value, help=told) for value, told in found if _PLAIN.fullmatch(value)]


def _rows(context: click.Context, query: str, parameters: tuple[object, ...]) -> Rows:
    from ..store import open_store, versions_of
    from .stores import url_of

    try:
        url = url_of(context.params.get("url"))
        if versions_of(url).steps:
            return []  # an old store is brought forward by whoever works with it, not by a key
        store = open_store(url, create=False, wary=True)
        try:
            return store.read(query, parameters)
        finally:
            store.close()
    except PerdureError:
        return []  # a wrong store or none: the command will say so, when there is one
