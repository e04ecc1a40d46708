"""Completion of runs and agents when the user presses Tab. It must be quick and silent."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from perdure.errors import PerdureError

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem

    from perdure.store.base import Rows

OFFERED_MAX = 200
_PLAIN = re.compile(r"[\w@%+:,./-]+", re.ASCII)
"""Characters without a meaning in any shell. Ids with others are not offered: their text may be hostile."""


def complete_runs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Return the newest runs whose id starts with the typed text, each with its agent and status."""
    rows = _rows(context, "runs_with_prefix", (incomplete, OFFERED_MAX))
    wanted = context.params.get("agent")
    return _make_items((run, f"{status}, of {agent}") for run, agent, status in rows if wanted in (None, agent))


def complete_agents(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Return the agents whose name starts with the typed text."""
    rows = _rows(context, "all_agents", ())
    return _make_items((name, "") for name, *_ in rows[:OFFERED_MAX] if name.startswith(incomplete))


def _make_items(found: Iterable[tuple[str, str]]) -> list[CompletionItem[str]]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(value, help=told) for value, told in found if _PLAIN.fullmatch(value)]


def _rows(context: click.Context, query: str, parameters: tuple[object, ...]) -> Rows:
    from perdure.cli.store_option import url_of
    from perdure.store import open_store, versions_of

    try:
        url = url_of(context.params.get("url"))
        if versions_of(url).steps:
            return []  # a key press must not migrate an old store
        store = open_store(url, create=False, wary=True)
        try:
            return store.read(query, parameters)
        finally:
            store.close()
    except PerdureError:
        return []  # a wrong or missing store: the command itself will report it
