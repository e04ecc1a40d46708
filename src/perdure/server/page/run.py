"""One run: its waterfall, its entries, messages, state, events, memory, files and context, and what can be done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from perdure import records as r
from perdure.errors import RequestInvalid
from perdure.journal.trees.tolerant_read import tolerant
from perdure.presence.context.context import Context
from perdure.presence.context.stored_contexts import ContextLine, list_contexts, read_context
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
from perdure.server.page.entry import EntryDetails, ValueReader, describe_entry
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
    """The first entry of the window or of a list, or the moment of the state."""
    entry: int = 0
    """The entry in the detail pane, or the chosen context."""


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
    if query.tab == "context":
        shown |= await _read_context(call, shown["contexts"])
    return {
        "title": run_id,
        "agent": agent,
        "id": run_id,
        "tab": query.tab,
        "tabs": [(name, link("runs", agent, run_id, tab="" if name == "timeline" else name)) for name in TABS],
        "actions": actions_for(shown["head"].summary.status),
        "entry_number": query.entry,
        "query_at": query.at or "",
        "listed_from": 0,
        "listed_next": 0,
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
    if query.entry and query.tab != "context":
        shown["detail"] = _read_detail(store, row, query.entry, read)
    if query.tab == "timeline":
        shown |= _read_timeline(store, row, summary, query.at)
    elif query.tab in ("messages", "state"):
        at = min(query.at or head.last, head.last)
        shown |= _show_moment(read_moment(store, row, at), read)
    elif query.tab in _LISTS:
        shown |= _LISTS[query.tab](store, row, max(1, query.at), read)
    return shown


def _read_head(store: Store, row: RunRow, summary: RunSummary, read: ValueReader) -> RunHead:
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


def _read_detail(store: Store, row: RunRow, seq: int, read: ValueReader) -> EntryDetails | None:
    entry = read_run_entry(store, row, seq)
    if entry is None:
        return None
    around = read_window(store, row, max(1, seq - WINDOW // 2), WINDOW).entries
    return describe_entry(entry, around, read, row.agent, row.id)


def _show_moment(moment: RunMoment, read: ValueReader) -> Shown:
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


def _find_events(store: Store, row: RunRow, first: int, read: ValueReader) -> Shown:
    found = find_entries(store, row, lambda record: bool(_events_in(record)), most=LISTED + 1, first=first)
    shown, paging = _cut(found, first)
    events = [(entry.seq, entry.at, kind, read(value)) for entry in shown for kind, value in _events_in(entry.record)]
    return {"events": events, **paging}


def _cut(found: Sequence[Any], first: int) -> tuple[Sequence[Any], Shown]:
    """Return one page of a list, and where it begins and the next one, 0 for none. One more was looked for."""
    return found[:LISTED], {"listed_from": first, "listed_next": found[LISTED].seq if len(found) > LISTED else 0}


def _events_in(record: Any) -> list[tuple[str, bytes]]:
    writes = [*getattr(record, "writes", ()), *([record.write] if isinstance(record, r.Wrote) else [])]
    events = [(one.key, one.value) for one in writes if one.op == r.WriteOp.EVENT]
    return events + [(one.kind, one.value) for one in getattr(record, "landed", ()) if isinstance(one, r.EventAppended)]


def _find_memories(store: Store, row: RunRow, first: int, read: ValueReader) -> Shown:
    """Return the memories that a run has written, and those that its contexts have shown."""
    kept = find_entries(store, row, lambda record: True, most=LISTED + 1, kinds=_MEMORY_KINDS, first=first)
    shown, paging = _cut(kept, first)
    contexts = list_contexts(store, row, read, first=first, most=LISTED)
    upto = paging["listed_next"] or last_entry(store, row) + 1
    return {
        "memories": [(one, _show_memory(one.record, read)) for one in shown],
        "recalled": [one for one in contexts if one.recalled and one.seq < upto],
        **paging,
    }


def _show_memory(record: Any, read: ValueReader) -> str:
    packed = getattr(record, "value", b"")
    return str(read(packed)) if packed else ""


def _find_files(store: Store, row: RunRow, first: int, read: ValueReader) -> Shown:
    """Return the artifacts and checkpoints that a run has saved."""
    found = find_entries(store, row, lambda record: bool(_files_in(record)), most=LISTED + 1, first=first)
    shown, paging = _cut(found, first)
    files = [
        (entry.seq, entry.at, "artifact" if isinstance(one, r.ArtifactSaved) else "checkpoint", one.name, one.version)
        for entry in shown
        for one in _files_in(entry.record)
    ]
    return {"files": files, **paging}


def _files_in(record: Any) -> list[r.ArtifactSaved | r.CheckpointMade]:
    return [one for one in getattr(record, "landed", ()) if isinstance(one, r.ArtifactSaved | r.CheckpointMade)]


def _find_contexts(store: Store, row: RunRow, first: int, read: ValueReader) -> Shown:
    shown, paging = _cut(list_contexts(store, row, read, first=first, most=LISTED + 1), first)
    return {"contexts": shown, **paging}


async def _read_context(call: PageCall, listed: Sequence[ContextLine]) -> Shown:
    """Return the chosen context of a run, else the last one of the list."""
    seq = call.query.entry or (listed[-1].seq if listed else 0)
    if not seq:
        return {"context": None, "context_at": 0}
    agent = await call.agent()

    def read() -> Context | None:
        engine = agent._engine
        row = require_run(engine.store, call.path["agent"], call.path["run"])
        return read_context(engine, row, seq, tolerant(engine.store))

    return {"context": await asyncio.to_thread(read), "context_at": seq}


_LISTS: dict[str, Callable[[Store, RunRow, int, ValueReader], Shown]] = {
    "events": _find_events,
    "memory": _find_memories,
    "files": _find_files,
    "context": _find_contexts,
}
PAGE = Page(path="/runs/{agent}/{run}", show=show_run, template="run.html", query=RunQuery, live=True, section="Runs")
