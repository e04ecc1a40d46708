"""`perdure runs`: list runs, and what needs a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click
import msgspec

from perdure.cli.output import CommandOutput, clean, format_age, format_time
from perdure.cli.store_option import add_common_options, agent_option, open_existing_store
from perdure.errors import JournalDamaged, StoreTooNew
from perdure.journal.departures import describe_departure
from perdure.journal.lineage import events_of
from perdure.journal.stream_reader import compaction_in
from perdure.records import KIND_OF, EntryKind, RunStatus
from perdure.run.listing import RunSummary, get_run, list_runs, run_counts
from perdure.store.rows import first_number, read_entry
from perdure.values.hints import did_you_mean

if TYPE_CHECKING:
    from perdure.store.base import Store

RUNS_SHOWN = 50

_CALLS_DONE = (EntryKind.STEP_DONE, EntryKind.EFFECT_DONE)
_ANSWERED = "answered; start its program again"


class ListedRun(msgspec.Struct, frozen=True):
    """One run of the list."""

    run: RunSummary
    done: int
    """Steps and effects that will not run again."""
    in_doubt: tuple[str, ...]
    waits_for: tuple[str, ...]
    last_entry_at: int
    note: str = ""
    """A remark, in words."""


@click.command()
@click.option("--status", type=click.Choice(RunStatus.listed()), help="Only runs in this status.")
@agent_option
@click.option("--limit", type=click.IntRange(min=0), default=RUNS_SHOWN, show_default=True, help="How many; 0: all.")
@add_common_options
def runs(status: str | None, agent: str | None, limit: int, url: str | None, as_json: bool) -> int:
    """List runs, most recently active first.

    A run is `crashed` if it was running and its process is gone: start it again under the same id.
    """
    out = CommandOutput(as_json)
    with open_existing_store(url) as store:
        found = list_runs(store, agent, status, limit=limit or None)
        more = _count(store, agent, status) - len(found) if limit and len(found) == limit and not as_json else 0
        rows = [row_of(store, run) for run in found]
        now = store.clock.wall_ms()
        maybe = "" if found or agent is None else did_you_mean(agent, [name for name, *_ in store.read("all_agents")])
    if as_json:
        out.json([_as_json(row) for row in rows])
        return 0
    if not found:
        out.line("no runs" if status is None and agent is None else f"no such runs{maybe and f'; {clean(maybe)}'}")
        return 0
    out.table(("RUN", "AGENT", "STATUS", "DONE", "LAST ENTRY", "WAITS FOR"), [_make_cells(row, now) for row in rows])
    if more > 0:
        out.line(f"{more} more; --limit 0 shows all")
    return 0


def _count(store: Store, agent: str | None, status: str | None) -> int:
    if status in (RunStatus.RUNNING, RunStatus.CRASHED):  # told apart only by their holders
        return len(list_runs(store, agent, status))
    counts = run_counts(store).items()
    return sum(count for (name, one), count in counts if agent in (None, name) and status in (None, one))


def row_of(store: Store, run: RunSummary) -> ListedRun:
    """Return the progress of a run and what it needs: nothing, if its agent has moved or retired."""
    row = _row_of(store, run)
    if not run.status.over and describe_departure(store, run.agent):
        return ListedRun(run, row.done, (), (), row.last_entry_at, "its agent is no longer active here")
    return row


def _row_of(store: Store, run: RunSummary) -> ListedRun:
    counts = _counts(store, run)
    done = sum(counts.get(kind, 0) for kind in _CALLS_DONE)
    if EntryKind.STREAM_COMPACTED in counts:
        compaction = compaction_in(store.read("last_compaction", (run.stream,)))
        done += compaction.done if compaction is not None else 0
    asked = store.read("open_questions", (run.stream,))
    waits_for = tuple(text for _, about, _, text, _ in asked if not _is_answered(store, run, about))
    last = _read_last_entry_time(store, run)
    note = _describe_pending_order(store, run) or (_ANSWERED if asked and not waits_for else "")
    if EntryKind.EFFECT_INTENDED not in counts or run.status in (
        RunStatus.FINISHED,
        RunStatus.RUNNING,
        RunStatus.CANCELLING,
    ):
        return ListedRun(run, done, (), waits_for, last, note)
    try:
        # Only the whole stream shows which intents have no outcome.
        effects = get_run(store, run.agent, run.id, unpack=bytes).in_doubt
    except JournalDamaged:
        return ListedRun(run, done, (), waits_for, last, "its journal is damaged; `perdure verify` shows where")
    except StoreTooNew:
        return ListedRun(run, done, (), waits_for, last, "it was written by a later version of Perdure")
    unknown = tuple(effect.name for effect in effects if not _is_answered(store, run, effect.about))
    if effects and not unknown:
        return ListedRun(run, done, (), (), last, _ANSWERED)
    return ListedRun(run, done, unknown, waits_for, last, "" if unknown else note)


def _counts(store: Store, run: RunSummary) -> Mapping[int, int]:
    """Count the entries of each kind, including those that a fork shares."""
    if not run.origin:
        return {int(kind): int(count) for kind, count in store.read("entry_counts", (run.stream,))}
    try:
        return Counter(KIND_OF[type(event.record)] for event in events_of(store, run.stream, fork=True))
    except (JournalDamaged, StoreTooNew):
        return {int(EntryKind.EFFECT_INTENDED): 1}  # makes the caller read the stream, which reports the error


def _describe_pending_order(store: Store, run: RunSummary) -> str:
    """Describe an order that the run has not carried out yet."""
    if run.status not in (RunStatus.RUNNING, RunStatus.WAITING, RunStatus.CRASHED):
        return ""
    orders = [order for _, *order in store.read("standing_orders", (f"[{run.stream}]",))]
    return next((f"{what} requested by {by}" for _, what, _, by in orders if what != "resume"), "")


def _read_last_entry_time(store: Store, run: RunSummary) -> int:
    """Return when the run last wrote an entry. For an ended run that is its end."""
    if run.status not in (RunStatus.RUNNING, RunStatus.WAITING, RunStatus.CRASHED, RunStatus.CANCELLING):
        return run.changed_at
    last = read_entry(store, run.stream, first_number(store.read("head_of", (run.stream,))))
    return last.at if last is not None else run.changed_at


def _is_answered(store: Store, run: RunSummary, about: int) -> bool:
    return bool(store.read("get_answer", (run.stream, about)))


def _make_cells(row: ListedRun, now: int) -> tuple[str, ...]:
    run = row.run
    # An ended run waits for no answer: why it ended says more.
    in_doubt = f"in doubt: {', '.join(row.in_doubt)}" if row.in_doubt and not run.status.over else ""
    shown = clean(row.note or "; ".join(row.waits_for) or in_doubt or run.error)
    cells = clean(run.id), clean(run.agent), run.status.value, str(row.done), format_age(row.last_entry_at, now)
    return *cells, shown if len(shown) <= 80 else shown[:79] + "…"


def _as_json(row: ListedRun) -> dict[str, object]:
    run = row.run
    return {
        "id": run.id,
        "agent": run.agent,
        "status": run.status.value,
        "done": row.done,
        "resumes": run.resumes,
        "forked_at": run.cut or None,
        "started_at": format_time(run.started_at),
        "changed_at": format_time(run.changed_at),
        "last_entry_at": format_time(row.last_entry_at),
        "holder": run.holder,
        "error": run.error,
        "in_doubt": list(row.in_doubt),
        "waits_for": list(row.waits_for),
        "note": row.note,
    }
