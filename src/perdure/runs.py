"""Runs seen from outside: what there is, how far it got, what it waits for; and answers to it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from . import objects
from . import records as r
from .errors import ResultErased, RunNotFinished, RunNotFound
from .journal.lineage import events_of
from .leases import lease_of
from .run.core import view_of
from .run.history import effective
from .run.ledger import Ledger
from .store.base import Store
from .usage import Savings, Usage, savings_lines, savings_of, usage_lines, usage_of


class RunSummary(msgspec.Struct, frozen=True):
    """One line of `perdure runs`."""

    stream: int
    agent: str
    id: str
    status: r.Status
    parent: int
    started_at: int
    changed_at: int
    """When the status was last set: started, resumed, waiting or ended. Entries may be newer."""
    resumes: int
    error: str
    holder: str
    origin: int = 0
    """Of a fork: the stream that has its beginning, up to the entry `cut`."""
    cut: int = 0


class EffectInDoubt(msgspec.Struct, frozen=True):
    """An effect of which nobody knows how it ended."""

    name: str
    key: str
    arguments: Any
    about: int


class Question(msgspec.Struct, frozen=True):
    """What a run waits for."""

    seq: int
    about: int
    kind: str
    text: str
    at: int
    choices: Any = None
    """A list of what may be answered, if that is limited."""


class RunInfo(msgspec.Struct, frozen=True):
    """A run in full, as the store knows it now."""

    summary: RunSummary
    input: Any
    result: Any
    state: dict[str, Any]
    messages: list[Any]
    in_doubt: list[EffectInDoubt]
    questions: list[Question]
    events: list[r.Event]
    finished: bool
    usage: Usage
    """What its models have cost."""
    savings: Savings
    """What resuming it has saved."""
    folded: str = ""
    """The archive that has its entries, when they were folded; then its messages are there too, and not here."""
    erased: bool = False
    """Whether its result was erased, by `agent.memory.forget(..., everywhere=True)`."""

    def __repr__(self) -> str:
        return f"<RunInfo {self.id!r} of {self.agent!r}: {self.status}, {len(self.events)} entries>"

    @property
    def id(self) -> str:
        return self.summary.id

    @property
    def agent(self) -> str:
        return self.summary.agent

    @property
    def status(self) -> r.Status:
        return self.summary.status

    @property
    def error(self) -> str:
        return self.summary.error


def list_runs(store: Store, agent: str | None = None, status: str | None = None) -> list[RunSummary]:
    """Every run, the one that was started, resumed or ended last first."""
    if status is not None and status not in list(r.Status):
        raise ValueError(f"status={status!r}: choose one of {', '.join(map(repr, map(str, r.Status)))}")
    found = [*_queued(store), *(summary_of(store, row) for row in store.read("all_runs"))]
    found.sort(key=lambda run: run.changed_at, reverse=True)
    return [run for run in found if (agent is None or run.agent == agent) and (status is None or run.status == status)]


def _queued(store: Store) -> list[RunSummary]:
    """Those that no worker has begun yet."""
    return [
        RunSummary(0, agent, run_id, r.Status.QUEUED, parent, at, at, 0, "", "")
        for _, agent, run_id, parent, at in store.read("queued_tasks")
    ]


def find_runs(store: Store, run_id: str) -> list[RunSummary]:
    """The runs of that id, one per agent that has one."""
    return [summary_of(store, row) for row in store.read("find_runs", (run_id,))]


def find_queued(store: Store, run_id: str) -> list[RunSummary]:
    """The same of those that no worker has begun yet."""
    return [run for run in _queued(store) if run.id == run_id]


def children_of(store: Store, stream: int) -> list[RunSummary]:
    """The runs that a run has opened inside itself, oldest first."""
    return [summary_of(store, row) for row in store.read("children_of", (stream,))]


def must_exist(store: Store, agent: str, run_id: str) -> tuple[Any, ...]:
    """The row of a run."""
    rows = store.read("get_run", (agent, run_id))
    if not rows and any((it.agent, it.id) == (agent, run_id) for it in _queued(store)):
        raise RunNotFound(f"run {run_id!r} is queued, and no worker has begun it", hint="`perdure queues` tells more")
    if not rows:
        raise RunNotFound(f"agent {agent!r} has no run {run_id!r}")
    return rows[0]


def get_run(store: Store, agent: str, run_id: str, unpack: Callable[[bytes], Any] | None = None) -> RunInfo:
    """A run with all that it has recorded. `unpack` is for readers who do not have the types of its values."""
    summary = summary_of(store, must_exist(store, agent, run_id))
    events = events_of(store, summary.stream, fork=summary.origin > 0)
    holding = effective(events)
    ledger = Ledger(holding)
    assert ledger.started is not None
    unpack = unpack or partial(objects.unpack, store)
    view = view_of(holding)
    latest = (
        view.state
        if summary.origin
        else {key: value for _, key, value, *_ in store.read("state_of", (summary.stream,))}
    )
    return RunInfo(
        summary,
        input=unpack(ledger.started.input),
        result=unpack(ledger.finished.result) if ledger.finished is not None and ledger.finished.result else None,
        state={key: unpack(value) for key, value in latest.items()},
        messages=[unpack(value) for _, value in view.messages],
        in_doubt=_in_doubt(summary, ledger, unpack),
        questions=_questions(store, summary, events, unpack),
        events=events,
        finished=ledger.finished is not None,
        usage=usage_of(usage_lines(store, agent, run_id)),
        savings=savings_of(savings_lines(store, agent, run_id)),
        folded=ledger.folded.archive if ledger.folded is not None else "",
        erased=ledger.finished is not None and not ledger.finished.result,
    )


def _questions(
    store: Store, summary: RunSummary, events: list[r.Event], unpack: Callable[[bytes], Any]
) -> list[Question]:
    asked = {event.seq: event.record for event in events}
    found = []
    for seq, about, kind, text, at in store.read("open_questions", (summary.stream,)):
        wait = asked.get(seq)  # none of one that was asked since the events were read
        choices = unpack(wait.choices) if isinstance(wait, r.WaitBegan) and wait.choices else None
        found.append(Question(seq, about, kind, text, at, choices))
    return found


def _in_doubt(summary: RunSummary, ledger: Ledger, unpack: Callable[[bytes], Any]) -> list[EffectInDoubt]:
    """Intents without an outcome; while the holder is at work they are only under way, unless it asks."""
    asked = set(ledger.questions)
    at_work = summary.status in (r.Status.RUNNING, r.Status.CANCELLING)
    return [
        EffectInDoubt(one.name, one.key, unpack(one.arguments), one.begun)
        for one in ledger.in_doubt()
        if not at_work and (summary.status != r.Status.WAITING or one.begun in asked)
    ]


def summary_of(store: Store, row: tuple[Any, ...]) -> RunSummary:
    """A run by its row, with who has it now."""
    stream, agent, run_id, status, _, parent, started_at, changed_at, resumes, _, error, origin, cut = row
    shown, holder = r.Status(status), ""
    if shown in (r.Status.RUNNING, r.Status.WAITING, r.Status.CANCELLING):  # all others have given their lease back
        lease = lease_of(store.read("read_lease", (stream, store.clock.boot_ms()))[0], store.one_host)
        if lease.alive():
            holder = str(lease.process)
        elif shown == r.Status.RUNNING:
            shown = r.Status.CRASHED
    return RunSummary(stream, agent, run_id, shown, parent, started_at, changed_at, resumes, error, holder, origin, cut)


def task_of(store: Store, stream: int) -> str:
    """The name of the task that a run is of; of another run, and of a fork, none."""
    for _, kind, _, body, _, _ in store.read("event_at", (stream, 1)):
        record = r.decode(kind, body)
        return record.task if isinstance(record, r.RunStarted) else ""
    return ""


def result_of(store: Store, agent: str, run_id: str) -> Any:
    """The result of a finished run, without replaying it."""
    row = must_exist(store, agent, run_id)
    stream, status, outcome = row[0], row[3], row[9]
    if status != r.Status.FINISHED:
        raise RunNotFinished(f"run {run_id!r} is {summary_of(store, row).status}")
    [(_, kind, _, body, _, _)] = store.read("event_at", (stream, outcome))
    record = r.decode(kind, body) if body is not None else r.remains(kind)
    assert isinstance(record, r.RunFinished)
    if not record.result:
        raise ResultErased(f"the result of run {run_id!r} was erased")
    return objects.unpack(store, record.result)
