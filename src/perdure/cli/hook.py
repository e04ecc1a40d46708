"""`perdure hook`: answers one hook of a coding agent."""

from __future__ import annotations

import click

from perdure.cli.store_option import store_option
from perdure.hooks.client import main


@click.command()
@click.argument("event")
@click.option("--tool", metavar="TOOL", default="", help="The coding agent that calls, such as claude-code.")
@click.option("--agent", metavar="NAME", default="", help="Whose memory it is. Default: PERDURE_AGENT, else assistant.")
@store_option
def hook(event: str, tool: str, agent: str, url: str | None) -> int:
    """Answer one hook of a coding agent: the payload on standard input, the answer on standard output.

    `perdure connect TOOL` adds it. It never fails: what went wrong is in ~/.perdure/hooks/hooks.log.
    """
    return main([event, "--tool", tool, "--agent", agent, "--store", url or ""])
