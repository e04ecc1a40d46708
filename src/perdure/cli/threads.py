"""`perdure threads [THREAD]`: shows the conversations of `agent.thread` and of frameworks, read-only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from perdure.cli.output import CommandOutput, clean, format_age, format_count, format_moment, format_value
from perdure.cli.store_option import (
    add_common_options,
    agent_option,
    open_engine,
    open_existing_store,
    require_one_agent,
    select_agents,
    url_of,
)
from perdure.errors import ThreadNotFound
from perdure.journal.trees import Change
from perdure.journal.trees.tolerant_read import Unreadable
from perdure.values.hints import name_hint
from perdure.work.threads import listing
from perdure.work.threads.conversations import REGISTRY, read_index
from perdure.work.threads.history import turns_of
from perdure.work.threads.listing import PointInfo, ThreadInfo
from perdure.work.threads.write import ForeignValue

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine
    from perdure.store.base import Store

POINTS_SHOWN = 10
CHANGES_SHOWN = 8
"""How many changes of a checkpoint are printed; JSON has all of them."""


@click.command()
@click.argument("thread", required=False)
@agent_option
@click.option("--at", metavar="CHECKPOINT", help="With THREAD: the id of the checkpoint to show.")
@click.option(
    "--last",
    type=click.IntRange(min=0),
    help=f"With THREAD: checkpoints to show; 0: all. Default: {POINTS_SHOWN}, with --json all.",
)
@add_common_options
def threads(
    thread: str | None, agent: str | None, at: str | None, last: int | None, url: str | None, as_json: bool
) -> int:
    """Show conversations: those of agent.thread, and those that LangGraph saved.

    Lists all threads, or shows one THREAD: the turns and the state of agent.thread, or the values and changes of
    perdure.adapters.langgraph.PerdureSaver. LangGraph need not be installed.
    """
    out = CommandOutput(as_json)
    if thread is not None:
        return show_thread(out, thread, agent, at, last, url)
    with open_existing_store(url) as store:
        names, now = list(select_agents(store, agent)), store.clock.wall_ms()
    found: list[tuple[str, ThreadInfo]] = []
    for name in names:
        with open_engine(name, url_of(url)) as engine:
            found += [(name, info) for info in listing.list_threads(engine)]
    _print_list(out, sorted(found, key=lambda one: one[1].at), now)
    return 0


def has_thread(store: Store, thread: str, agent: str | None) -> bool:
    """Whether an agent has a thread with that id."""
    return bool(_find_owners(store, thread, agent))


def _find_owners(store: Store, thread: str, agent: str | None) -> dict[str, str]:
    """Return the agents that have a thread with that id."""
    found = select_agents(store, agent).items()
    return {name: name for name, owner in found if _has(store, owner, thread)}


def _has(store: Store, owner: int, thread: str) -> bool:
    if store.read("thread_checkpoints_page", (owner, thread, "", 1, "", 1)):
        return True
    return any(value for value, *_ in store.read("get_state_value", (owner, REGISTRY, thread)))


def show_thread(
    out: CommandOutput, thread: str, agent: str | None, at: str | None, last: int | None, url: str | None
) -> int:
    """Show one thread: its values, and the changes of each checkpoint."""
    with open_existing_store(url) as store:
        whose = require_one_agent(_find_owners(store, thread, agent), "thread")
        now, everybody = store.clock.wall_ms(), list(select_agents(store, agent))
    if whose is None:
        raise _not_found_error(thread, everybody, url)
    count = last if last is not None else 0 if out.as_json else POINTS_SHOWN
    with open_engine(whose, url_of(url)) as engine:
        [own] = [item for item in listing.list_threads(engine) if item.id == thread]
        if own.framework == "perdure":
            return _show_turns(out, engine, own, count, now)
        points = listing.history(engine, thread, limit=count or None)
        values = listing.state(engine, thread, at)
        changes = [_changes(engine, point) for point in points]
    if out.as_json:
        out.json(_as_json(whose, own, at, values, points, changes))
        return 0
    _print_facts(out, whose, own, at, now)
    out.print_heading("values")
    out.table(
        ("CHANNEL", "VALUE"),
        [(clean(name), format_value(_unpack(value))) for name, value in values.items() if not _inner(name)],
    )
    _print_points(out, own, points, changes)
    return 0


def _show_turns(out: CommandOutput, engine: Engine, info: ThreadInfo, count: int, now: int) -> int:
    """Show a thread of `agent.thread`: its state, its turns, and what waits."""
    index, turns = read_index(engine, info.id), turns_of(engine, info.id)[-count:]
    if out.as_json:
        told = [{**msgspec.structs.asdict(turn), "began": format_moment(turn.began)} for turn in turns]
        queued = [one.input for one in index.queued]
        out.json(
            {"agent": engine.name, **_thread_as_json(info), "values": index.state, "history": told, "pending": queued}
        )
        return 0
    facts = (
        f"thread {clean(info.id)} of {clean(engine.name)}, {format_count(info.turns, 'turn')}, {_format_age(info, now)}"
    )
    out.line(facts, style="bold")
    if index.state:
        out.print_heading("state")
        out.table(("KEY", "VALUE"), [(clean(key), format_value(value)) for key, value in index.state.items()])
    out.print_heading("turns")
    rows = [(clean(turn.run), turn.status.value, format_value(turn.input), format_value(turn.result)) for turn in turns]
    out.table(("RUN", "STATUS", "INPUT", "REPLY"), rows)
    for one in index.queued:
        out.line(f"queued: {format_value(one.input)}")
    return 0


def _not_found_error(thread: str, agents: Sequence[str], url: str | None) -> ThreadNotFound:
    there: list[str] = []
    for name in agents:
        with open_engine(name, url_of(url)) as engine:
            there += [info.id for info in listing.list_threads(engine)]
    hint = name_hint(thread, there, "agent.thread(id) creates them, and graphs with PerdureSaver and a thread_id")
    return ThreadNotFound(clean(f"there is no thread {thread!r}"), hint=clean(hint))


def _changes(engine: Engine, point: PointInfo) -> list[Change]:
    """Return the changes of a checkpoint; none if its parent does not exist."""
    if not point.parent:
        return []
    try:
        return listing.diff(engine, point.thread, point.parent, point.id, ns=point.ns)
    except ThreadNotFound:
        return []


def _unpack(value: Any) -> Any:
    return (
        Unreadable(f"<{len(value.data)} bytes of a serializer: {value.form}>") if type(value) is ForeignValue else value
    )


def _inner(channel: str) -> bool:
    """Whether a channel is internal to the framework. Such channels are shown only in JSON."""
    return channel.startswith(("__", "branch:"))


# -- printing ---------------------------------------------------------------------------------------------------------


def _print_list(out: CommandOutput, found: Sequence[tuple[str, ThreadInfo]], now: int) -> None:
    if out.as_json:
        out.json([{"agent": agent, **_thread_as_json(info)} for agent, info in found])
    elif not found:
        out.line(
            "no threads; agent.thread(id) creates them, and LangGraph with perdure.adapters.langgraph.PerdureSaver"
        )
    else:
        rows = [
            (clean(thread.id), clean(agent), thread.framework, _size(thread), _format_age(thread, now))
            for agent, thread in found
        ]
        out.table(("THREAD", "AGENT", "FRAMEWORK", "SIZE", "LAST"), rows)


def _size(info: ThreadInfo) -> str:
    return format_count(info.turns, "turn") if info.turns else format_count(info.checkpoints, "checkpoint")


def _format_age(info: ThreadInfo, now: int) -> str:
    return format_age(int(info.at.timestamp() * 1000), now)


def _print_facts(out: CommandOutput, agent: str, info: ThreadInfo, at: str | None, now: int) -> None:
    where = f"as it was at {clean(at)}" if at is not None else _format_age(info, now)
    count = format_count(info.checkpoints, "checkpoint")
    out.line(f"thread {clean(info.id)} of {clean(agent)}, {count}, {where}", style="bold")


def _print_points(
    out: CommandOutput, info: ThreadInfo, points: Sequence[PointInfo], changes: Sequence[list[Change]]
) -> None:
    more = len(points) < info.checkpoints
    out.print_heading(
        f"checkpoints, the newest {len(points)} of {info.checkpoints}" if more else "checkpoints, newest first"
    )
    for point, changed in zip(points, changes, strict=True):
        where = f" of {clean(point.ns)}" if point.ns else ""
        step = f"step {point.step}" if point.step is not None else ""
        told = ", ".join(part for part in (step, clean(point.source), f"{point.at:%Y-%m-%d %H:%M:%S}") if part)
        out.line(f"{clean(point.id)}{where}  {told}", style="bold")
        lines = [clean(str(change)) for change in changed if not _inner(str(change.steps[0]))]
        for line in lines[:CHANGES_SHOWN]:
            out.line(f"  {line}")
        if len(lines) > CHANGES_SHOWN:
            out.line(f"  … {len(lines) - CHANGES_SHOWN} more; --json shows all")
        if point.pending:
            out.line(f"  {format_count(len(point.pending), 'task has', 'tasks have')} written since")


def _thread_as_json(info: ThreadInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "checkpoints": info.checkpoints,
        "began_at": format_moment(info.began),
        "at": format_moment(info.at),
        "newest": info.newest,
        "framework": info.framework,
        "turns": info.turns,
    }


def _as_json(
    agent: str,
    info: ThreadInfo,
    at: str | None,
    values: dict[str, Any],
    points: Sequence[PointInfo],
    changes: Sequence[list[Change]],
) -> dict[str, Any]:
    told = [
        {
            **{name: getattr(point, name) for name in ("ns", "id", "parent", "run", "step", "source")},
            "at": format_moment(point.at),
            "channels": point.channels,
            "pending": point.pending,
            "changes": [str(change) for change in changed],
        }
        for point, changed in zip(points, changes, strict=True)
    ]
    shown_values = {name: _unpack(value) for name, value in values.items()}
    return {
        "agent": agent,
        **_thread_as_json(info),
        "shown": at or info.newest,
        "values": shown_values,
        "history": told,
    }
