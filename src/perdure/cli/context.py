"""`perdure context RUN`: what a model would be shown of a run now, as a picture of the budget."""

from __future__ import annotations

from typing import Any

import click

from ..context.running import BUDGET, asked, context_of
from ..context.shown import Context
from ..run.requests import drive_sync
from ..trees.tolerant import tolerant
from .output import Output, clean
from .stores import acting_as, agent_option, common, existing_store, one_run, run_argument, url_of

_PLAIN = str.maketrans({"█": "#", "░": ".", "…": "~"})


@click.command()
@run_argument
@click.option("--query", metavar="TEXT", help="What memories are looked for. Default: the last words of the user.")
@click.option("--budget", type=click.IntRange(min=1), default=BUDGET, show_default=True, help="Tokens at most.")
@click.option("--text", "as_text", is_flag=True, help="Print the context itself.")
@agent_option
@common
def context(
    run: str, query: str | None, budget: int, as_text: bool, agent: str | None, url: str | None, as_json: bool
) -> int:
    """Show what a model would be shown of a run: a picture of the budget of tokens.

    Sections in their order, with their tokens; then what was shortened, masked or summarised, why, and where it is.
    """
    out = Output(as_json)
    with existing_store(url) as store:
        found = one_run(store, run, agent)
    with acting_as(found.agent, url_of(url)) as engine:
        protocol = context_of(engine, found.id, asked(query, budget), tolerant(engine.store))
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
            "name": it.name,
            "title": it.title,
            "share": it.share,
            "room": it.room,
            "tokens": it.tokens,
            "wanted": it.wanted,
        }
        for it in made.sections
    ]
    dropped = [{"what": it.what, "why": it.why, "tokens": it.tokens, "ref": it.ref} for it in made.dropped]
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
