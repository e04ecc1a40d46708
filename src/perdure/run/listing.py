"""Reads runs from outside: lists, status, progress and open questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from perdure import records as r
from perdure.errors import ResultErased, RunDeleted, RunNotFinished, RunNotFound, WrongValue
from perdure.journal import objects
from perdure.journal.leases import lease_of
from perdure.journal.lineage import events_of
from perdure.run.data_view import view_of
from perdure.run.history import effective
from perdure.run.ledger import Ledger
from perdure.run.unstorable import unstorable_calls
from perdure.run.usage import Savings, Usage, savings_lines, savings_of, usage_lines, usage_of
from perdure.store.base import Statement, Store
from perdure.store.rows import RunRow, read_entry, read_run
from perdure.values.numbers import require_whole_number

_EVERY = (1 << 31) - 1

ListPlace = tuple[int, int, str, str]
"""A place in a list of runs: time, stream, agent, id. Queued runs have no stream."""

NEWEST: ListPlace = (1 << 62, 0, "", "")
"""The beginning of a list."""


class RunSummary(msgspec.Struct, frozen=True):
    """One line of `perdure runs`."""

    stream: int
    agent: str
    id: str
    status: r.RunStatus
    parent: int
    started_at: int
    changed_at: int
    """When the status was last set: started, resumed, waiting or ended. Entries may be newer."""
    resumes: int
    error: str
    holder: str
    origin: int = 0
    """In a fork: the stream that holds its beginning, up to the entry `cut`."""
    cut: int = 0

    @property
    def place(self) -> ListPlace:
        """Its place in a list. A run that becomes active moves to the front."""
        return (self.changed_at, self.stream, self.agent, self.id)


class EffectInDoubt(msgspec.Struct, frozen=True):
    """An effect whose outcome is unknown."""

    name: str
    key: str
    arguments: Any
    about: int


class Question(msgspec.Struct, frozen=True):
    """An open question of a run."""

    seq: int
    about: int
    kind: str
    text: str
    at: int
    choices: Any = None
    """The allowed answers, if they are limited."""


class RunInfo(msgspec.Struct, frozen=True):
    """A run and everything recorded about it."""

    summary: RunSummary
    input: Any
    result: Any
    state: dict[str, Any]
    messages: list[Any]
    in_doubt: list[EffectInDoubt]
    questions: list[Question]
    events: list[r.JournalEntry]
    finished: bool
    usage: Usage
    """The cost of its model calls."""
    savings: Savings
    """The savings from resuming it."""
    archive: str = ""
    """The archive that holds its entries and messages, if they were compacted."""
    erased: bool = False
    """Whether `agent.memory.forget(..., everywhere=True)` erased its result."""

    def __repr__(self) -> str:
        return f"<RunInfo {self.id!r} of {self.agent!r}: {self.status}, {len(self.events)} entries>"

    @property
    def id(self) -> str:
        return self.summary.id

    @property
    def agent(self) -> str:
        return self.summary.agent

    @property
    def status(self) -> r.RunStatus:
        return self.summary.status

    @property
    def error(self) -> str:
        return self.summary.error


def list_runs(
    store: Store,
    agent: str | None = None,
    status: str | None = None,
    *,
    limit: int | None = None,
    unfinished: bool = False,
    after: ListPlace = NEWEST,
) -> list[RunSummary]:
    """Return runs, the most recently started, resumed or ended first: all of them, or `limit` that follow `after`."""
    if status is not None and status not in r.RunStatus.listed():
        raise WrongValue(f"status={status!r}: must be one of {', '.join(map(repr, r.RunStatus.listed()))}")
    if limit is not None:
        require_whole_number("limit", limit, 0)
    listed = map(r.RunStatus, r.RunStatus.listed())
    wanted = [one for one in listed if status in (None, one) and not (unfinished and one.over)]
    found = [run for run in _list_queued(store) if agent in (None, run.agent)] if r.RunStatus.QUEUED in wanted else []
    found = [run for run in found if run.place < after]
    found += [run for run in _stored(store, agent, wanted, limit, after) if run.status in wanted]
    found.sort(key=lambda run: run.place, reverse=True)
    return found[:limit]


def _stored(
    store: Store, agent: str | None, wanted: Sequence[r.RunStatus], limit: int | None, after: ListPlace
) -> list[RunSummary]:
    """Return the newest runs by their stored status. A crashed run is stored as running."""
    statuses = {r.RunStatus.RUNNING if one == r.RunStatus.CRASHED else one for one in wanted} - {r.RunStatus.QUEUED}
    apart = {r.RunStatus.RUNNING, r.RunStatus.CRASHED}  # if only one of them is wanted, the others have to be left out
    count = _EVERY if limit is None or len(apart.intersection(wanted)) == 1 else limit
    agents = [agent] if agent is not None else [name for (name,) in store.read("agents_with_runs")]
    args = (*after[:2], count)
    looks = [Statement("runs_in_status", (name, one.value, *args)) for name in agents for one in sorted(statuses)]
    runs = [RunRow(*row) for rows in store.read_all(looks) for row in rows]
    runs.sort(key=lambda run: (run.changed_at, run.stream), reverse=True)
    return [summary_of(store, run) for run in runs[:count]]


def run_counts(store: Store) -> Counter[tuple[str, r.RunStatus]]:
    """Count runs by agent and status. Crashed runs count as running: only their holders tell them apart."""
    counts = Counter({(agent, r.RunStatus(status)): int(count) for agent, status, count in store.read("run_counts")})
    counts = Counter({which: count for which, count in counts.items() if which[1] in r.RunStatus.listed()})
    counts.update((run.agent, run.status) for run in _list_queued(store))
    return counts


def _list_queued(store: Store) -> list[RunSummary]:
    """Return the runs that no worker has started."""
    return [
        RunSummary(0, agent, run_id, r.RunStatus.QUEUED, parent, at, at, 0, "", "")
        for _, agent, run_id, parent, at in store.read("queued_tasks")
    ]


def find_runs(store: Store, run_id: str) -> list[RunSummary]:
    """Return the runs with that id, at most one per agent."""
    return [summary_of(store, RunRow(*row)) for row in store.read("find_runs", (run_id,))]


def find_queued(store: Store, run_id: str) -> list[RunSummary]:
    """Return the runs with that id that no worker has started."""
    return [run for run in _list_queued(store) if run.id == run_id]


def children_of(store: Store, stream: int) -> list[RunSummary]:
    """Return the runs that a run opened inside itself, oldest first."""
    found = (RunRow(*row) for row in store.read("children_of", (stream,)))
    return [summary_of(store, run) for run in shown_runs(found)]


def shown_runs(found: Iterable[RunRow]) -> Iterator[RunRow]:
    """Leave out the runs that were deleted with their conversation."""
    return (run for run in found if run.status != r.RunStatus.ERASED)


def require_run(store: Store, agent: str, run_id: str) -> RunRow:
    """Return the row of a run, or raise `RunNotFound`."""
    found = read_run(store, agent, run_id)
    if found is not None and found.status == r.RunStatus.ERASED:
        raise RunDeleted(f"run {run_id!r} of agent {agent!r} was deleted with its conversation")
    if found is not None:
        return found
    if any((run.agent, run.id) == (agent, run_id) for run in _list_queued(store)):
        raise RunNotFound(f"run {run_id!r} is queued, and no worker has started it", hint="see `perdure queues`")
    raise RunNotFound(f"agent {agent!r} has no run {run_id!r}")


def has_unstorable(store: Store, agent: str, run_id: str) -> bool:
    """Return whether steps of a run stay failed because their results could not be stored."""
    run = read_run(store, agent, run_id)
    return run is not None and bool(unstorable_calls(Ledger(effective(events_of(store, run.stream, fork=run.is_fork)))))


def get_run(store: Store, agent: str, run_id: str, unpack: Callable[[bytes], Any] | None = None) -> RunInfo:
    """Return a run with everything recorded about it. `unpack` is for readers without the types of its values."""
    summary = summary_of(store, require_run(store, agent, run_id))
    events = events_of(store, summary.stream, fork=summary.origin > 0)
    holding = effective(events)
    ledger = Ledger(holding)
    assert ledger.started is not None
    unpack = unpack or partial(objects.unpack, store)
    view = view_of(holding)
    latest = (
        view.state
        if summary.origin
        else {key: value for _, key, value, *_ in store.read("run_state_of", (summary.stream,))}
    )
    return RunInfo(
        summary,
        input=unpack(ledger.started.input),
        result=unpack(ledger.finished.result) if ledger.finished is not None and ledger.finished.result else None,
        state={key: unpack(value) for key, value in latest.items()},
        messages=[unpack(value) for _, value in view.messages],
        in_doubt=_find_in_doubt(summary, ledger, unpack),
        questions=_questions(store, summary, events, unpack),
        events=events,
        finished=ledger.finished is not None,
        usage=usage_of(usage_lines(store, agent, run_id)),
        savings=savings_of(savings_lines(store, agent, run_id)),
        archive=ledger.compaction.archive if ledger.compaction is not None else "",
        erased=ledger.finished is not None and not ledger.finished.result,
    )


def _questions(
    store: Store, summary: RunSummary, events: list[r.JournalEntry], unpack: Callable[[bytes], Any]
) -> list[Question]:
    asked = {event.seq: event.record for event in events}
    found = []
    for seq, about, kind, text, at in store.read("open_questions", (summary.stream,)):
        wait = asked.get(seq)  # missing if it was asked after the events were read
        choices = unpack(wait.choices) if isinstance(wait, r.WaitBegan) and wait.choices else None
        found.append(Question(seq, about, kind, text, at, choices))
    return found


def _find_in_doubt(summary: RunSummary, ledger: Ledger, unpack: Callable[[bytes], Any]) -> list[EffectInDoubt]:
    """Return intents without an outcome. While the holder works they are in progress, unless it asks about them."""
    asked = set(ledger.questions)
    at_work = summary.status in (r.RunStatus.RUNNING, r.RunStatus.CANCELLING)
    return [
        EffectInDoubt(one.name, one.key, unpack(one.arguments), one.begun)
        for one in ledger.list_in_doubt()
        if not at_work and (summary.status != r.RunStatus.WAITING or one.begun in asked)
    ]


def summary_of(store: Store, run: RunRow) -> RunSummary:
    """Return the summary of a run, with its current holder."""
    shown, holder = r.RunStatus(run.status), ""
    if shown in (
        r.RunStatus.RUNNING,
        r.RunStatus.WAITING,
        r.RunStatus.CANCELLING,
    ):  # all others have released their lease
        lease = lease_of(store.read("read_lease", (run.stream, store.clock.boot_ms()))[0], store.one_host)
        if lease.is_alive():
            holder = str(lease.process)
        elif shown == r.RunStatus.RUNNING:
            now = read_run(store, run.agent, run.id)
            if now is not None and now != run:
                return summary_of(store, now)  # it ended or was resumed between the two reads
            shown = r.RunStatus.CRASHED
    return RunSummary(
        run.stream,
        run.agent,
        run.id,
        shown,
        run.parent,
        run.started_at,
        run.changed_at,
        run.resumes,
        run.error,
        holder,
        run.forked_from,
        run.forked_at,
    )


def task_of(store: Store, stream: int) -> str:
    """Return the name of the task that a run executes; "" for other runs and forks."""
    first = read_entry(store, stream, 1)
    record = r.decode(first.kind, first.body) if first is not None and first.body is not None else None
    return record.task if isinstance(record, r.RunStarted) else ""


def result_of(store: Store, agent: str, run_id: str) -> Any:
    """Return the result of a finished run without replaying it."""
    run = require_run(store, agent, run_id)
    if run.status != r.RunStatus.FINISHED:
        raise RunNotFinished(f"run {run_id!r} is {summary_of(store, run).status}")
    entry = read_entry(store, run.stream, run.outcome)
    assert entry is not None
    record = r.decode(entry.kind, entry.body) if entry.body is not None else r.remains(entry.kind)
    assert isinstance(record, r.RunFinishedEntry)
    if not record.result:
        raise ResultErased(f"the result of run {run_id!r} was erased")
    return objects.unpack(store, record.result)
