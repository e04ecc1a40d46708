"""`perdure queues`: show, pause and resume queues; `perdure retry`: queue a dead run again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from perdure.cli.output import CommandOutput, clean, format_age, format_time
from perdure.cli.store_option import (
    add_common_options,
    agent_option,
    find_run,
    open_engine,
    open_existing_store,
    run_argument,
    url_of,
)
from perdure.kernel.engine import Engine
from perdure.kernel.protocol import Protocol, drive_sync
from perdure.run.answers import find_current_user
from perdure.store.base import Store
from perdure.work.tasks.queues import QueueInfo, change_rules, list_queues
from perdure.work.tasks.submission import retry_run


@click.group(invoke_without_command=True)
@agent_option
@add_common_options
@click.pass_context
def queues(context: click.Context, agent: str | None, url: str | None, as_json: bool) -> int:
    """Show the queues of agents: queued, running, parked and dead runs."""
    if context.invoked_subcommand is not None:
        return 0
    out = CommandOutput(as_json)
    with open_existing_store(url) as store:
        found = [(name, queue) for name, owner in _agents(store, agent) for queue in list_queues(store, owner)]
        now = store.clock.wall_ms()
    if as_json:
        out.json([_as_json(name, queue) for name, queue in found])
    elif not found:
        out.line("no queues; `task.start(id, ...)` queues a run, `perdure worker module:agent` executes it")
    else:
        headers = ("agent", "queue", "queued", "running", "parked", "dead", "oldest", "limits", "queued tasks")
        out.table(headers, [_row(name, queue, now) for name, queue in found])
    return 0


@queues.command("pause")
@click.argument("name")
@agent_option
@add_common_options
def pause_queue(name: str, agent: str | None, url: str | None, as_json: bool) -> int:
    """Start no more runs of a queue. Runs in progress continue."""
    return _set_paused(name, agent, url, as_json, paused=True)


@queues.command("resume")
@click.argument("name")
@agent_option
@add_common_options
def resume_queue(name: str, agent: str | None, url: str | None, as_json: bool) -> int:
    """Start runs of a paused queue again."""
    return _set_paused(name, agent, url, as_json, paused=False)


@click.command()
@run_argument
@agent_option
@click.option("--by", metavar="NAME", help="Your name, for the record. Default: user and host name.")
@add_common_options
def retry(run: str, agent: str | None, by: str | None, url: str | None, as_json: bool) -> int:
    """Queue a dead run again. Its finished steps are kept.

    Steps whose results could not be stored run again, also in a run that no worker executes.
    """
    with open_existing_store(url) as store:
        found = find_run(store, run, agent)
    who = by or find_current_user()
    queued = _do(found.agent, url, lambda engine: retry_run(engine, found.id, who))
    out = CommandOutput(as_json)
    if as_json:
        out.json({"run": found.id, "agent": found.agent, "queued": queued, "by": who})
    else:
        told = "queued again" if queued else "its program retries it"
        out.line(f"{told}: run {clean(found.id)} of agent {clean(found.agent)}, by {clean(who)}")
    return 0


def _set_paused(name: str, agent: str | None, url: str | None, as_json: bool, *, paused: bool) -> int:
    outer = click.get_current_context().parent
    given = outer.params if outer is not None else {}
    url, agent, as_json = url or given.get("url"), agent or given.get("agent"), as_json or bool(given.get("as_json"))
    with open_existing_store(url) as store:
        there = [found for found, _ in _agents(store, agent)]
    if len(there) != 1:
        raise click.UsageError(f"choose the agent with --agent: {', '.join(map(clean, there)) or 'there is none'}")
    _do(there[0], url, lambda engine: change_rules(engine, name, paused=paused))
    out = CommandOutput(as_json)
    if as_json:
        out.json({"agent": there[0], "queue": name, "paused": paused})
    else:
        out.line(f"queue {clean(name)} of agent {clean(there[0])} {'is paused' if paused else 'is resumed'}")
    return 0


def _do(agent: str, url: str | None, make: Callable[[Engine], Protocol[Any]]) -> Any:
    with open_engine(agent, url_of(url)) as engine:
        return drive_sync(engine.store, make(engine))


def _agents(store: Store, wanted: str | None) -> list[tuple[str, int]]:
    return [(name, stream) for name, stream, *_ in store.read("all_agents") if wanted in (None, name)]


def _row(agent: str, queue: QueueInfo, now: int) -> tuple[str, ...]:
    counts = [str(count) for count in (queue.queued, queue.running, queue.parked, queue.dead)]
    oldest = format_age(queue.oldest_at, now) if queue.oldest_at else ""
    return (
        clean(agent),
        clean(queue.name),
        *counts,
        oldest,
        _limits(queue),
        ", ".join(map(clean, sorted(set(queue.waiting_tasks)))),
    )


def _limits(queue: QueueInfo) -> str:
    rules = queue.rules
    parts = ["paused"] if rules.paused else []
    parts += [f"{rules.concurrency} at a time"] if rules.concurrency else []
    parts += [f"{rules.per_key} per key"] if rules.per_key else []
    parts += [f"{rules.rate} in {rules.rate_ms / 1000:g} s"] if rules.rate else []
    return ", ".join(parts)


def _as_json(agent: str, queue: QueueInfo) -> dict[str, Any]:
    rules = queue.rules
    return {
        "agent": agent,
        "queue": queue.name,
        "queued": queue.queued,
        "running": queue.running,
        "parked": queue.parked,
        "dead": queue.dead,
        "oldest": format_time(queue.oldest_at) if queue.oldest_at else None,
        "paused": rules.paused,
        "concurrency": rules.concurrency or None,
        "per_key": rules.per_key or None,
        "rate": [rules.rate, rules.rate_ms / 1000] if rules.rate else None,
        "tasks": sorted(set(queue.waiting_tasks)),
    }
