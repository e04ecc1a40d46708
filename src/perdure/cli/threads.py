"""`perdure threads [THREAD]`: conversations that a framework has saved, without the framework. Only looks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ..errors import ThreadNotFound
from ..hints import meant
from ..threads import listing
from ..threads.listing import PointInfo, ThreadInfo
from ..threads.writing import Sealed
from ..trees import Change
from ..trees.tolerant import Unreadable
from .output import Output, ago, clean, counted, shown
from .stores import acting_as, agent_option, agents_meant, common, existing_store, must_be_one, url_of

if TYPE_CHECKING:
    from ..engine import Engine
    from ..store.base import Store

POINTS_SHOWN = 10
CHANGES_SHOWN = 8
"""Of one checkpoint on a screen; JSON has all of them."""


@click.command()
@click.argument("thread", required=False)
@agent_option
@click.option("--at", metavar="CHECKPOINT", help="Of a THREAD: as it was at this checkpoint, by its id.")
@click.option(
    "--last",
    type=click.IntRange(min=0),
    help=f"Of a THREAD: checkpoints to show; 0: all. Default: {POINTS_SHOWN}, with --json all.",
)
@common
def threads(
    thread: str | None, agent: str | None, at: str | None, last: int | None, url: str | None, as_json: bool
) -> int:
    """Show the threads that LangGraph has saved: their values, and what changed when.

    They are saved with perdure.adapters.langgraph.PerdureSaver.

    Of a THREAD it shows the values, and what changed with each checkpoint. LangGraph is not needed for that.
    """
    out = Output(as_json)
    if thread is not None:
        return show_thread(out, thread, agent, at, last, url)
    with existing_store(url) as store:
        names, now = list(agents_meant(store, agent)), store.clock.wall_ms()
    found: list[tuple[str, ThreadInfo]] = []
    for name in names:
        with acting_as(name, url_of(url)) as engine:
            found += [(name, info) for info in listing.listed(engine)]
    _print_list(out, sorted(found, key=lambda one: one[1].at), now)
    return 0


def has_thread(store: Store, thread: str, agent: str | None) -> bool:
    """Whether somebody has a thread of that id."""
    return bool(_having(store, thread, agent))


def _having(store: Store, thread: str, agent: str | None) -> dict[str, str]:
    """The agents that have a thread of that id."""
    found = agents_meant(store, agent).items()
    return {name: name for name, owner in found if store.read("thread_points_page", (owner, thread, "", 1, "", 1))}


def show_thread(out: Output, thread: str, agent: str | None, at: str | None, last: int | None, url: str | None) -> int:
    """Show one thread: its values, and what changed with each of its checkpoints."""
    with existing_store(url) as store:
        whose = must_be_one(_having(store, thread, agent), "thread")
        now, everybody = store.clock.wall_ms(), list(agents_meant(store, agent))
    if whose is None:
        raise _missing(thread, everybody, url)
    count = last if last is not None else 0 if out.as_json else POINTS_SHOWN
    with acting_as(whose, url_of(url)) as engine:
        points = listing.history(engine, thread, limit=count or None)
        values = listing.state(engine, thread, at)
        changes = [_changes(engine, point) for point in points]
        [info] = [it for it in listing.listed(engine) if it.id == thread]
    if out.as_json:
        out.json(_as_json(whose, info, at, values, points, changes))
        return 0
    _print_facts(out, whose, info, at, now)
    out.heading("values")
    out.table(
        ("CHANNEL", "VALUE"), [(clean(name), shown(_open(value))) for name, value in values.items() if not _inner(name)]
    )
    _print_points(out, info, points, changes)
    return 0


def _missing(thread: str, agents: Sequence[str], url: str | None) -> ThreadNotFound:
    there: list[str] = []
    for name in agents:
        with acting_as(name, url_of(url)) as engine:
            there += [it.id for it in listing.listed(engine)]
    hint = meant(thread, there, "graphs make them with PerdureSaver and a thread_id")
    return ThreadNotFound(clean(f"there is no thread {thread!r}"), hint=clean(hint))


def _changes(engine: Engine, point: PointInfo) -> list[Change]:
    """What a checkpoint has changed; of one whose parent is gone or was none, nothing can be said."""
    if not point.parent:
        return []
    try:
        return listing.diff(engine, point.thread, point.parent, point.id, ns=point.ns)
    except ThreadNotFound:
        return []


def _open(value: Any) -> Any:
    return Unreadable(f"<{len(value.data)} bytes of a serializer: {value.form}>") if type(value) is Sealed else value


def _inner(channel: str) -> bool:
    """Whether it only tells the framework where to go on; people are shown the others, JSON has all."""
    return channel.startswith(("__", "branch:"))


# -- printing ---------------------------------------------------------------------------------------------------------


def _print_list(out: Output, found: Sequence[tuple[str, ThreadInfo]], now: int) -> None:
    if out.as_json:
        out.json([{"agent": agent, **_told(info)} for agent, info in found])
    elif not found:
        out.line("no threads; LangGraph makes them with perdure.adapters.langgraph.PerdureSaver")
    else:
        rows = [(clean(it.id), clean(agent), str(it.checkpoints), _ago(it, now)) for agent, it in found]
        out.table(("THREAD", "AGENT", "CHECKPOINTS", "LAST"), rows)


def _ago(info: ThreadInfo, now: int) -> str:
    return ago(int(info.at.timestamp() * 1000), now)


def _print_facts(out: Output, agent: str, info: ThreadInfo, at: str | None, now: int) -> None:
    where = f"as it was at {clean(at)}" if at is not None else _ago(info, now)
    count = counted(info.checkpoints, "checkpoint")
    out.line(f"thread {clean(info.id)} of {clean(agent)}, {count}, {where}", style="bold")


def _print_points(out: Output, info: ThreadInfo, points: Sequence[PointInfo], changes: Sequence[list[Change]]) -> None:
    more = len(points) < info.checkpoints
    out.heading(f"checkpoints, the newest {len(points)} of {info.checkpoints}" if more else "checkpoints, newest first")
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
            out.line(f"  {counted(len(point.pending), 'task has', 'tasks have')} written since")


def _told(info: ThreadInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "checkpoints": info.checkpoints,
        "began_at": info.began.isoformat(),
        "at": info.at.isoformat(),
        "newest": info.newest,
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
            "at": point.at.isoformat(),
            "channels": point.channels,
            "pending": point.pending,
            "changes": [str(change) for change in changed],
        }
        for point, changed in zip(points, changes, strict=True)
    ]
    shown_values = {name: _open(value) for name, value in values.items()}
    return {"agent": agent, **_told(info), "shown": at or info.newest, "values": shown_values, "history": told}
