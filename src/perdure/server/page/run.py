"""One run: its waterfall, its entries, messages, state, events, memory, files and context, and what can be done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from perdure import records as r
from perdure.errors import PerdureError, RequestInvalid
from perdure.journal.trees.tolerant_read import tolerant
from perdure.run.inbox import InboxQuestion, list_inbox
from perdure.run.listing import RunSummary, children_of, require_run, summary_of
from perdure.run.usage import Savings, Usage, savings_lines, savings_of, usage_lines, usage_of
from perdure.run.window import (
    RunMoment,
    RunWindow,
    find_entries,
    last_entry,
    read_moment,
    read_run_entry,
    read_window,
)
from perdure.server.page.entry import EntryDetails, describe_entry
from perdure.server.page.page import Page, PageCall, Shown
from perdure.server.page.render import link
from perdure.server.page.waterfall import Waterfall, draw_waterfall
from perdure.store.base import Store
from perdure.store.rows import RunRow
from perdure.values.clock import SYSTEM_CLOCK

WINDOW = 300
"""Entries on one page."""
LISTED = 200
TABS = ("timeline", "messages", "state", "events", "memory", "files", "context")
STOPPED = (r.RunStatus.FINISHED, r.RunStatus.CANCELLED)
_MEMORY_KINDS = frozenset({r.EntryKind.MEMORY_KEPT, r.EntryKind.MEMORY_WITHDRAWN, r.EntryKind.MEMORY_FORGOTTEN})


class RunQuery(msgspec.Struct, frozen=True):
    """What to show of a run."""

    tab: str = "timeline"
    at: int = 0
    """The first entry of the window, or the moment of the state."""
    entry: int = 0
    """The entry in the detail pane."""


class RunHead(msgspec.Struct, frozen=True):
    """What every tab shows of a run."""

    summary: RunSummary
    last: int
    usage: Usage
    savings: Savings
    questions: list[InboxQuestion]
    parent: tuple[str, str] | None
    origin: tuple[str, int] | None
    input: Any
    outcome: Any


async def show_run(call: PageCall) -> Shown:
    """Show a run."""
    query: RunQuery = call.query
    if query.tab not in TABS or query.at < 0 or query.entry < 0:
        raise RequestInvalid("there is no such part of a run")
    agent, run_id = call.path["agent"], call.path["run"]
    call.principal.require_agent(agent)
    shown: Shown = await call.read(_read, agent, run_id, query)
    context = await _read_context(call) if query.tab == "context" else ""
    return {
        "title": run_id,
        "agent": agent,
        "id": run_id,
        "tab": query.tab,
        "tabs": [(name, link("runs", agent, run_id, tab="" if name == "timeline" else name)) for name in TABS],
        "actions": actions_for(shown["head"].summary.status),
        "entry_number": query.entry,
        "context": context,
        **shown,
    }


def actions_for(status: r.RunStatus) -> list[str]:
    """Return what can be done with a run in this status."""
    if status in STOPPED:
        return ["fork"]
    given = ["resume"] if status == r.RunStatus.PAUSED else ["pause"]
    given += ["retry"] if status == r.RunStatus.FAILED else []
    return [*given, "fork", "cancel"]


def _read(store: Store, agent: str, run_id: str, query: RunQuery) -> Shown:
    row, read = require_run(store, agent, run_id), tolerant(store)
    summary = summary_of(store, row)
    head = _read_head(store, row, summary, read)
    shown: Shown = {"head": head, "detail": None}
    if query.entry:
        shown["detail"] = _read_detail(store, row, query.entry, read)
    if query.tab == "timeline":
        shown |= _read_timeline(store, row, summary, query.at)
    elif query.tab in ("messages", "state"):
        at = min(query.at or head.last, head.last)
        shown |= _show_moment(read_moment(store, row, at), read)
    elif query.tab == "events":
        shown["events"] = _find_events(store, row, read)
    elif query.tab == "memory":
        shown["memories"] = find_entries(store, row, lambda record: True, most=LISTED, kinds=_MEMORY_KINDS)
    elif query.tab == "files":
        shown["files"] = _find_files(store, row)
    return shown


def _read_head(store: Store, row: RunRow, summary: RunSummary, read: Callable[[bytes], Any]) -> RunHead:
    first = read_run_entry(store, row, 1)
    ended = read_run_entry(store, row, row.outcome) if row.outcome else None
    started, outcome = first.record if first is not None else None, ended.record if ended is not None else None
    packed = getattr(started, "input", b"")
    value = getattr(outcome, "result", b"") or getattr(outcome, "error", b"")
    return RunHead(
        summary,
        last_entry(store, row),
        usage_of(usage_lines(store, row.agent, row.id)),
        savings_of(savings_lines(store, row.agent, row.id)),
        [one for one in list_inbox(store, row.agent) if one.run == row.id],
        _named(store, row.parent) if row.parent else None,
        (_named(store, row.forked_from)[1], row.forked_at) if row.is_fork else None,
        read(packed) if packed else None,
        read(value) if value else None,
    )


def _named(store: Store, stream: int) -> tuple[str, str]:
    """Return the agent and the id of the run in a stream."""
    found = [RunRow(*columns) for columns in store.read("run_in", (stream,))]
    return (found[0].agent, found[0].id) if found else ("", str(stream))


def _read_timeline(store: Store, row: RunRow, summary: RunSummary, at: int) -> Shown:
    last = last_entry(store, row)
    first = min(at, last) if at else max(1, last - WINDOW + 1)
    window = read_window(store, row, first, WINDOW)
    return {
        "picture": _draw(window, summary),
        "children": children_of(store, row.stream)[:LISTED],
        "first": first,
        "until": min(last, first + WINDOW - 1),
        "window": WINDOW,
    }


def _draw(window: RunWindow, summary: RunSummary) -> Waterfall:
    held = bool(summary.holder)
    now = SYSTEM_CLOCK.wall_ms() // 1000 * 1000  # in seconds, so that a page does not change more often than it is read
    return draw_waterfall(window.entries, "" if held else summary.status.value, now)


def _read_detail(store: Store, row: RunRow, seq: int, read: Callable[[bytes], Any]) -> EntryDetails | None:
    entry = read_run_entry(store, row, seq)
    if entry is None:
        return None
    around = read_window(store, row, max(1, seq - WINDOW // 2), WINDOW).entries
    return describe_entry(entry, around, read, row.agent, row.id)


def _show_moment(moment: RunMoment, read: Callable[[bytes], Any]) -> Shown:
    changes = [
        (key, *(read(side[key]) if key in side else None for side in (moment.before, moment.state)))
        for key in sorted({*moment.before, *moment.state})
        if moment.before.get(key) != moment.state.get(key)
    ]
    return {
        "at": moment.at,
        "changed_by": moment.changed_by,
        "state": [(key, read(value)) for key, value in sorted(moment.state.items())],
        "changes": changes,
        "messages": [_show_message(read(value)) for value in moment.messages[-LISTED:]],
        "left_out": max(0, len(moment.messages) - LISTED),
    }


def _show_message(message: Any) -> tuple[str, Any]:
    """Return the role and the content of a message in any of the usual forms."""
    if isinstance(message, dict) and "content" in message:
        rest = {name: value for name, value in message.items() if name not in ("role", "content", "type")}
        content = message["content"]
        role = str(message.get("role") or message.get("type") or "message")
        return role, {"content": content, **rest} if rest and any(rest.values()) else content
    return ("user" if isinstance(message, str) else "message"), message


def _find_events(store: Store, row: RunRow, read: Callable[[bytes], Any]) -> list[tuple[int, int, str, Any]]:
    found = []
    for entry in find_entries(store, row, lambda record: bool(_events_in(record)), most=LISTED):
        found += [(entry.seq, entry.at, kind, read(value)) for kind, value in _events_in(entry.record)]
    return found


def _events_in(record: Any) -> list[tuple[str, bytes]]:
    writes = [*getattr(record, "writes", ()), *([record.write] if isinstance(record, r.Wrote) else [])]
    events = [(one.key, one.value) for one in writes if one.op == r.WriteOp.EVENT]
    return events + [(one.kind, one.value) for one in getattr(record, "landed", ()) if isinstance(one, r.EventAppended)]


def _find_files(store: Store, row: RunRow) -> list[tuple[int, int, str, str, int]]:
    """Return the artifacts and checkpoints that a run has saved."""
    found = []
    for entry in find_entries(store, row, lambda record: bool(getattr(record, "landed", ())), most=LISTED):
        for change in getattr(entry.record, "landed", ()):
            if isinstance(change, r.ArtifactSaved | r.CheckpointMade):
                kind = "artifact" if isinstance(change, r.ArtifactSaved) else "checkpoint"
                found.append((entry.seq, entry.at, kind, change.name, change.version))
    return found


async def _read_context(call: PageCall) -> str:
    agent = await call.agent()
    try:
        return (await agent.runs.context(call.path["run"])).explain()
    except PerdureError as error:
        return error.message


PAGE = Page(path="/runs/{agent}/{run}", show=show_run, template="run.html", query=RunQuery, live=True, section="Runs")
