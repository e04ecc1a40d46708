"""`perdure cancel RUN`, `pause RUN` and `resume RUN`."""

from __future__ import annotations

import shlex

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
from perdure.errors import RunNotPaused
from perdure.kernel.protocol import drive_sync
from perdure.records import Order, RunStatus
from perdure.run.answers import find_current_user
from perdure.run.listing import RunSummary
from perdure.run.orders import order_run

_reason = click.option("--reason", metavar="TEXT", default="", help="The reason, recorded and shown.")
_LEFT = (RunStatus.CRASHED, RunStatus.FAILED, RunStatus.INTERRUPTED)
_by = click.option("--by", metavar="NAME", help="Your name, for the record. Default: user and host name.")


@click.command()
@run_argument
@_reason
@_by
@agent_option
@add_common_options
def cancel(run: str, reason: str, by: str | None, agent: str | None, url: str | None, as_json: bool) -> int:
    """Cancel a run and its child runs for good.

    A run that no process has open is cancelled at once. An open run stops after its current step; an async step and a
    wait end at once. Its program gets RunCancelled and may clean up.
    """
    return _order(Order.CANCEL, run, reason, by, agent, url, as_json)


@click.command()
@run_argument
@_reason
@_by
@agent_option
@add_common_options
def pause(run: str, reason: str, by: str | None, agent: str | None, url: str | None, as_json: bool) -> int:
    """Pause a run until `perdure resume RUN`.

    An open run stops after its current step. Until it is resumed, no process can open it.
    """
    return _order(Order.PAUSE, run, reason, by, agent, url, as_json)


@click.command()
@run_argument
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@_reason
@_by
@agent_option
@add_common_options
def resume(
    run: str,
    command: tuple[str, ...],
    reason: str,
    by: str | None,
    agent: str | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Continue a run: allow a paused one to go on, and start its program.

    \b
    perdure resume trip-42 -- python trip.py

    The program runs as with `perdure run`, and its exit code is returned. Without a program, a paused run may go on
    when you start its program yourself. A crashed or failed run needs only its program.
    """  # noqa: D301 - the literal \b tells click not to rewrap these lines
    located = url_of(url)
    with open_existing_store(located) as store:
        found = find_run(store, run, agent, queued=True)
    if found.status in _LEFT and not command:
        raise _needs_program(found)
    if found.status == RunStatus.PAUSED or not command:
        _order(Order.RESUME, run, reason, by, agent, url, as_json)
    if not command:
        return 0
    from perdure.cli.supervise import supervise

    return supervise(CommandOutput(as_json), located, command)


def _needs_program(found: RunSummary) -> RunNotPaused:
    return RunNotPaused(
        clean(f"run {found.id!r} is {found.status}, not paused: it needs only its program"),
        hint=clean(f"perdure resume {shlex.quote(found.id)} -- python PROGRAM.py"),
    )


def _order(
    order: Order, run: str, reason: str, by: str | None, agent: str | None, url: str | None, as_json: bool
) -> int:
    located = url_of(url)
    with open_existing_store(located) as store:
        found = find_run(store, run, agent, queued=True)
    try:
        with open_engine(found.agent, located) as engine:
            given = drive_sync(engine.store, order_run(engine, found.id, order, reason, by or find_current_user()))
    except (ValueError, TypeError) as error:
        raise click.UsageError(clean(str(error))) from error
    out = CommandOutput(as_json)
    if as_json:
        told = {"run": given.run, "agent": found.agent, "order": given.order, "obeyed": given.obeyed}
        out.json({**told, "reason": given.reason, "by": given.by, "parts": list(given.parts)})
        return 0
    out.line(clean(str(given)))
    if given.parts:
        out.line(f"also its child runs: {clean(', '.join(given.parts))}")
    if order == Order.RESUME and given.obeyed:
        out.line("Start its program again to continue the run.")
    return 0
