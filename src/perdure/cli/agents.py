"""`perdure agents`: lists the agents of a store."""

from __future__ import annotations

from collections import Counter

import click

from perdure.cli.output import CommandOutput, clean, format_time
from perdure.cli.store_option import add_common_options, open_existing_store
from perdure.journal.departures import describe_departure
from perdure.run.listing import run_counts


@click.command()
@add_common_options
def agents(url: str | None, as_json: bool) -> int:
    """List the agents of a store, with their runs."""
    out = CommandOutput(as_json)
    with open_existing_store(url) as store:
        counts = Counter[tuple[str, bool]]()
        for (agent, status), count in run_counts(store).items():
            counts[agent, status.over] += count
        found = [
            {
                "name": name,
                "created_at": format_time(at),
                "runs": counts[name, True] + counts[name, False],
                "unfinished": counts[name, False],
                "note": describe_departure(store, name),
            }
            for name, _, _, at, _ in store.read("all_agents")
        ]
    if as_json:
        out.json(found)
    elif not found:
        out.line("no agents")
    else:
        out.table(
            ("AGENT", "CREATED", "RUNS", "UNFINISHED", "NOTE"),
            [tuple(clean(str(value)) for value in row.values()) for row in found],
        )
    return 0
