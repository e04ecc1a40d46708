"""`perdure context RUN`: the context that a model would be sent now, and how it uses the token budget."""

from __future__ import annotations

from typing import Any

import click

from perdure.cli.output import CommandOutput, clean
from perdure.cli.store_option import (
    add_common_options,
    agent_option,
    find_run,
    open_engine,
    open_existing_store,
    run_argument,
    url_of,
)
from perdure.journal.trees.tolerant_read import tolerant
from perdure.kernel.protocol import drive_sync
from perdure.presence.context.context import Context
from perdure.presence.context.run_context import BUDGET, context_of, make_query

_PLAIN = str.maketrans({"█": "#", "░": ".", "…": "~"})


@click.command()
@run_argument
@click.option("--query", metavar="TEXT", help="The query for memories. Default: the last user message.")
@click.option("--budget", type=click.IntRange(min=1), default=BUDGET, show_default=True, help="Tokens at most.")
@click.option("--text", "as_text", is_flag=True, help="Print the context itself.")
@agent_option
@add_common_options
def context(
    run: str, query: str | None, budget: int, as_text: bool, agent: str | None, url: str | None, as_json: bool
) -> int:
    """Show the context that a run would send to a model, and how it uses the token budget.

    Lists the sections with their tokens, then what was shortened, masked or summarised, why, and where to read it.
    """
    out = CommandOutput(as_json)
    with open_existing_store(url) as store:
        found = find_run(store, run, agent)
    with open_engine(found.agent, url_of(url)) as engine:
        protocol = context_of(engine, found.id, make_query(query, budget), tolerant(engine.store))
        made = drive_sync(engine.store, protocol)
    if as_json:
        out.json(_as_json(made))
        return 0
    for line in (made.text if as_text else made.explain()).split("\n"):
        shown = clean(line)
        print(shown if out.unicode else shown.translate(_PLAIN))
    return 0


def _as_json(made: Context) -> dict[str, Any]:
    sections = [
        {
            "name": section.name,
            "title": section.title,
            "share": section.share,
            "room": section.room,
            "tokens": section.tokens,
            "wanted": section.wanted,
        }
        for section in made.sections
    ]
    dropped = [
        {"what": dropped_part.what, "why": dropped_part.why, "tokens": dropped_part.tokens, "ref": dropped_part.ref}
        for dropped_part in made.dropped
    ]
    return {
        "budget": made.budget,
        "tokens": made.tokens,
        "estimated": made.estimated,
        "stable": made.stable,
        "sections": sections,
        "dropped": dropped,
        "system": made.system,
        "messages": made.messages,
    }
