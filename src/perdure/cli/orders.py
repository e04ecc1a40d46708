"""`perdure cancel RUN`, `pause RUN` and `resume RUN`: a run is told to stop, or to go on."""

from __future__ import annotations

import click

from ..answers import whoever
from ..orders import order_run
from ..records import Order
from ..run.requests import drive_sync
from .output import Output, clean
from .stores import acting_as, agent_option, common, existing_store, one_run, run_argument, url_of

_reason = click.option("--reason", metavar="TEXT", default="", help="Why; it is kept, and shown.")
_by = click.option("--by", metavar="NAME", help="Who says so. Default: your user and host name.")


@click.command()
@run_argument
@_reason
@_by
@agent_option
@common
def cancel(run: str, reason: str, by: str | None, agent: str | None, url: str | None, as_json: bool) -> int:
    """End a run for good, and all runs that are part of it.

    A run that no process has open is cancelled at once. An open one ends when the step that it is at has ended; an
    async step and a wait end at once. Its program hears of it as RunCancelled, and may clean up.
    """
    return _order(Order.CANCEL, run, reason, by, agent, url, as_json)


@click.command()
@run_argument
@_reason
@_by
@agent_option
@common
def pause(run: str, reason: str, by: str | None, agent: str | None, url: str | None, as_json: bool) -> int:
    """Let a run rest until `perdure resume RUN`.

    An open one stops when the step that it is at has ended. Until it is resumed, nobody can open it.
    """
    return _order(Order.PAUSE, run, reason, by, agent, url, as_json)


@click.command()
@run_argument
@_reason
@_by
@agent_option
@common
def resume(run: str, reason: str, by: str | None, agent: str | None, url: str | None, as_json: bool) -> int:
    """Let a paused run go on, when its program is started again.

    A run that crashed or failed needs no permission: start its program again.
    """
    return _order(Order.RESUME, run, reason, by, agent, url, as_json)


def _order(
    order: Order, run: str, reason: str, by: str | None, agent: str | None, url: str | None, as_json: bool
) -> int:
    located = url_of(url)
    with existing_store(located) as store:
        found = one_run(store, run, agent, queued=True)
    try:
        with acting_as(found.agent, located) as engine:
            given = drive_sync(engine.store, order_run(engine, found.id, order, reason, by or whoever()))
    except (ValueError, TypeError) as error:
        raise click.UsageError(clean(str(error))) from error
    out = Output(as_json)
    if as_json:
        told = {"run": given.run, "agent": found.agent, "order": given.order, "obeyed": given.obeyed}
        out.json({**told, "reason": given.reason, "by": given.by, "parts": list(given.parts)})
        return 0
    out.line(clean(str(given)))
    if given.parts:
        out.line(f"told the same, as part of it: {clean(', '.join(given.parts))}")
    if order == Order.RESUME and given.obeyed:
        out.line("Start its program again, and the run goes on.")
    return 0
