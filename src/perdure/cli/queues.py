"""`perdure queues`: what waits for workers, pausing it, and `perdure retry` for what is dead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ..answers import whoever
from ..engine import Engine
from ..run.requests import Protocol, drive_sync
from ..store.base import Store
from ..tasks.queues import QueueInfo, change_rules, list_queues
from ..tasks.starting import again
from .output import Output, ago, clean, when
from .stores import acting_as, agent_option, common, existing_store, one_run, run_argument, url_of


@click.group(invoke_without_command=True)
@agent_option
@common
@click.pass_context
def queues(context: click.Context, agent: str | None, url: str | None, as_json: bool) -> int:
    """Show the queues of the agents: what waits, runs, is parked and is dead."""
    if context.invoked_subcommand is not None:
        return 0
    out = Output(as_json)
    with existing_store(url) as store:
        found = [(name, it) for name, owner in _agents(store, agent) for it in list_queues(store, owner)]
        now = store.clock.wall_ms()
    if as_json:
        out.json([_as_json(name, it) for name, it in found])
    elif not found:
        out.line("Nothing was queued. `task.start(id, ...)` queues a run, `perdure worker module:agent` does it.")
    else:
        headers = ("agent", "queue", "queued", "running", "parked", "dead", "oldest", "limits", "tasks that wait")
        out.table(headers, [_row(name, it, now) for name, it in found])
    return 0


@queues.command("pause")
@click.argument("name")
@agent_option
@common
def pause_queue(name: str, agent: str | None, url: str | None, as_json: bool) -> int:
    """Begin nothing more of a queue; what is at work goes on."""
    return _changed(name, agent, url, as_json, paused=True)


@queues.command("resume")
@click.argument("name")
@agent_option
@common
def resume_queue(name: str, agent: str | None, url: str | None, as_json: bool) -> int:
    """Go on with a queue that was paused."""
    return _changed(name, agent, url, as_json, paused=False)


@click.command()
@run_argument
@agent_option
@click.option("--by", metavar="NAME", help="Who says so. Default: your user and host name.")
@common
def retry(run: str, agent: str | None, by: str | None, url: str | None, as_json: bool) -> int:
    """Queue a run again that has failed for good; what it had done is kept."""
    with existing_store(url) as store:
        found = one_run(store, run, agent)
    who = by or whoever()
    _do(found.agent, url, lambda engine: again(engine, found.id, who))
    out = Output(as_json)
    if as_json:
        out.json({"run": found.id, "agent": found.agent, "queued": True, "by": who})
    else:
        out.line(f"queued again: run {clean(found.id)} of agent {clean(found.agent)}, by {clean(who)}")
    return 0


def _changed(name: str, agent: str | None, url: str | None, as_json: bool, *, paused: bool) -> int:
    outer = click.get_current_context().parent
    given = outer.params if outer is not None else {}
    url, agent, as_json = url or given.get("url"), agent or given.get("agent"), as_json or bool(given.get("as_json"))
    with existing_store(url) as store:
        there = [found for found, _ in _agents(store, agent)]
    if len(there) != 1:
        raise click.UsageError(f"say which agent with --agent: {', '.join(map(clean, there)) or 'there is none'}")
    _do(there[0], url, lambda engine: change_rules(engine, name, paused=paused))
    out = Output(as_json)
    if as_json:
        out.json({"agent": there[0], "queue": name, "paused": paused})
    else:
        out.line(f"queue {clean(name)} of agent {clean(there[0])} {'is paused' if paused else 'goes on'}")
    return 0


def _do(agent: str, url: str | None, make: Callable[[Engine], Protocol[Any]]) -> None:
    with acting_as(agent, url_of(url)) as engine:
        drive_sync(engine.store, make(engine))


def _agents(store: Store, wanted: str | None) -> list[tuple[str, int]]:
    return [(name, stream) for name, stream, *_ in store.read("all_agents") if wanted in (None, name)]


def _row(agent: str, it: QueueInfo, now: int) -> tuple[str, ...]:
    counts = [str(count) for count in (it.queued, it.running, it.parked, it.dead)]
    oldest = ago(it.oldest_at, now) if it.oldest_at else ""
    return (
        clean(agent),
        clean(it.name),
        *counts,
        oldest,
        _limits(it),
        ", ".join(map(clean, sorted(set(it.waiting_tasks)))),
    )


def _limits(it: QueueInfo) -> str:
    rules = it.rules
    parts = ["paused"] if rules.paused else []
    parts += [f"{rules.concurrency} at a time"] if rules.concurrency else []
    parts += [f"{rules.per_key} per key"] if rules.per_key else []
    parts += [f"{rules.rate} in {rules.rate_ms / 1000:g} s"] if rules.rate else []
    return ", ".join(parts)


def _as_json(agent: str, it: QueueInfo) -> dict[str, Any]:
    rules = it.rules
    return {
        "agent": agent,
        "queue": it.name,
        "queued": it.queued,
        "running": it.running,
        "parked": it.parked,
        "dead": it.dead,
        "oldest": when(it.oldest_at) if it.oldest_at else None,
        "paused": rules.paused,
        "concurrency": rules.concurrency or None,
        "per_key": rules.per_key or None,
        "rate": [rules.rate, rules.rate_ms / 1000] if rules.rate else None,
        "tasks": sorted(set(it.waiting_tasks)),
    }
