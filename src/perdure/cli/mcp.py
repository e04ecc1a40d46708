"""`perdure mcp`: the Model Context Protocol on standard input and output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from perdure.cli.store_option import repeat_options, store_option
from perdure.mcp.handshake import DEFAULT_AGENT

if TYPE_CHECKING:
    from perdure.mcp.stdio import StdioChannel
    from perdure.mcp.stdio_loop import StdioLoop


@click.command()
@click.option(
    "--agent",
    metavar="NAME",
    default=DEFAULT_AGENT,
    envvar="PERDURE_AGENT",
    show_default=True,
    help="Whose memory it is.",
)
@store_option
def mcp(agent: str, url: str | None) -> int:
    """Give an agent's memory to a model: the Model Context Protocol on standard input and output.

    A client starts this command by itself: `perdure connect TOOL` tells it to. `/mcp` of `perdure serve` is the same
    over HTTP.
    """
    from perdure.mcp.stdio import StdioChannel, serve_stdio

    channel = StdioChannel.take_standard_streams()

    def make_loop(channel: StdioChannel) -> StdioLoop:
        from perdure.mcp.stdio_loop import StdioLoop

        return StdioLoop(channel, agent, url, repeat_options(url, agent))

    serve_stdio(channel, make_loop)
    return 0
