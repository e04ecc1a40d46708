"""`perdure runs`: what there is, and what needs somebody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click
import msgspec

from ..errors import JournalDamaged, StoreTooNew
from ..hints import near
from ..journal.departures import in_words
from ..journal.lineage import events_of
from ..journal.walk import folded_in
from ..records import KIND_OF, Kind, Status
from ..runs import RunSummary, get_run, list_runs
from .output import Output, ago, clean, when
from .stores import agent_option, common, existing_store

if TYPE_CHECKING:
    from ..store.base import Store

RUNS_SHOWN = 50

_CALLS_DONE = (Kind.STEP_DONE, Kind.EFFECT_DONE)
_ANSWERED = "answered; start its program again"


class Row(msgspec.Struct, frozen=True):
    """One run of the list."""

    run: RunSummary
    done: int
    """Steps and effects that will not run again."""
    in_doubt: tuple[str, ...]
    waits_for: tuple[str, ...]
    last_entry_at: int
    note: str = ""
    """What else to know, in words."""


@click.command()
@click.option("--status", type=click.Choice([status.value for status in Status]), help="Only runs in this status.")
@agent_option
@click.option("--limit", type=click.IntRange(min=0), default=RUNS_SHOWN, show_default=True, help="How many; 0: all.")
@common
def runs(status: str | None, agent: str | None, limit: int, url: str | None, as_json: bool) -> int:
    """List the runs, the one that was started, resumed or ended last first.

    A run is `crashed` when it was running and its process is gone: start it again under the same id.
    """
    out = Output(as_json)
    with existing_store(url) as store:
        found = list_runs(store, agent, status)
        rows = [row_of(store, run) for run in (found[:limit] if limit else found)]
        now = store.clock.wall_ms()
        maybe = "" if found or agent is None else near(agent, [name for name, *_ in store.read("all_agents")])
    if as_json:
        out.json([_as_json(row) for row in rows])
        return 0
    if not found:
        out.line("no runs" if status is None and agent is None else f"no such runs{maybe and f'; {clean(maybe)}'}")
        return 0
    out.table(("RUN", "AGENT", "STATUS", "DONE", "LAST ENTRY", "WAITS FOR"), [_as_cells(row, now) for row in rows])
    if len(found) > len(rows):
        out.line(f"{len(found) - len(rows)} more; --limit 0 shows all")
    return 0


def row_of(store: Store, run: RunSummary) -> Row:
    """How far a run is, and what it needs: nothing, if its agent has left."""
    row = _row_of(store, run)
    if not run.status.over and in_words(store, run.agent):
        return Row(run, row.done, (), (), row.last_entry_at, "its agent is not here any more")
    return row


def _row_of(store: Store, run: RunSummary) -> Row:
    counts = _counts(store, run)
    done = sum(counts.get(kind, 0) for kind in _CALLS_DONE)
    if Kind.FOLDED in counts:
        folded = folded_in(store.read("last_folded", (run.stream,)))
        done += folded.done if folded is not None else 0
    asked = store.read("open_questions", (run.stream,))
    waits_for = tuple(text for _, about, _, text, _ in asked if not _answered(store, run, about))
    last = _last_entry_at(store, run)
    note = _told(store, run) or (_ANSWERED if asked and not waits_for else "")
    if Kind.EFFECT_INTENDED not in counts or run.status in (Status.FINISHED, Status.RUNNING, Status.CANCELLING):
        return Row(run, done, (), waits_for, last, note)
    try:
        # Only the whole stream tells which of its intents have no outcome.
        effects = get_run(store, run.agent, run.id, unpack=bytes).in_doubt
    except JournalDamaged:
        return Row(run, done, (), waits_for, last, "its journal is damaged; `perdure verify` says where")
    except StoreTooNew:
        return Row(run, done, (), waits_for, last, "a later version of Perdure works on it")
    unknown = tuple(effect.name for effect in effects if not _answered(store, run, effect.about))
    if effects and not unknown:
        return Row(run, done, (), (), last, _ANSWERED)
    return Row(run, done, unknown, waits_for, last, "" if unknown else note)


def _counts(store: Store, run: RunSummary) -> Mapping[int, int]:
    """How many entries of each kind it has; of a fork, those that it shares too."""
    if not run.origin:
        return {int(kind): int(count) for kind, count in store.read("progress_of", (run.stream,))}
    try:
        return Counter(KIND_OF[type(event.record)] for event in events_of(store, run.stream, fork=True))
    except (JournalDamaged, StoreTooNew):
        return {int(Kind.EFFECT_INTENDED): 1}  # looked at once more, and told


def _told(store: Store, run: RunSummary) -> str:
    """What a run was told, and has not done yet."""
    if run.status not in (Status.RUNNING, Status.WAITING, Status.CRASHED):
        return ""
    rows = store.read("standing_orders", (f"[{run.stream}]",))
    return f"told to {rows[0][2]} by {rows[0][4]}" if rows and rows[0][2] != "resume" else ""


def _last_entry_at(store: Store, run: RunSummary) -> int:
    """When it last did anything. A run that has ended did so with its last entry."""
    if run.status not in (Status.RUNNING, Status.WAITING, Status.CRASHED, Status.CANCELLING):
        return run.changed_at
    rows = [row for seq, _ in store.read("head_of", (run.stream,)) for row in store.read("event_at", (run.stream, seq))]
    return int(rows[0][2]) if rows else run.changed_at


def _answered(store: Store, run: RunSummary, about: int) -> bool:
    return bool(store.read("get_answer", (run.stream, about)))


def _as_cells(row: Row, now: int) -> tuple[str, ...]:
    run = row.run
    # Of a run that is over nobody waits for an answer: why it ended says more.
    in_doubt = f"in doubt: {', '.join(row.in_doubt)}" if row.in_doubt and not run.status.over else ""
    shown = clean(row.note or "; ".join(row.waits_for) or in_doubt or run.error)
    cells = clean(run.id), clean(run.agent), run.status.value, str(row.done), ago(row.last_entry_at, now)
    return *cells, shown if len(shown) <= 80 else shown[:79] + "…"


def _as_json(row: Row) -> dict[str, object]:
    run = row.run
    return {
        "id": run.id,
        "agent": run.agent,
        "status": run.status.value,
        "done": row.done,
        "resumes": run.resumes,
        "forked_at": run.cut or None,
        "started_at": when(run.started_at),
        "changed_at": when(run.changed_at),
        "last_entry_at": when(row.last_entry_at),
        "holder": run.holder,
        "error": run.error,
        "in_doubt": list(row.in_doubt),
        "waits_for": list(row.waits_for),
        "note": row.note,
    }
