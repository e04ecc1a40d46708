"""Runs seen from outside: what there is, how far it got, what it waits for; and answers to it."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from . import objects
from . import records as r
from .errors import NotDone, NothingToAnswer, RunNotFinished, RunNotFound
from .failpoints import Site
from .journal.append import Append, read_events
from .leases import lease_of
from .run.core import View
from .run.doubt import Done
from .run.ledger import Ledger
from .store.base import Store
from .usage import Savings, Usage, savings_lines, savings_of, usage_lines, usage_of

if TYPE_CHECKING:
    from .engine import Engine


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
    found = [_summary(store, row) for row in store.read("all_runs")]
    return [run for run in found if (agent is None or run.agent == agent) and (status is None or run.status == status)]


def find_runs(store: Store, run_id: str) -> list[RunSummary]:
    """The runs of that id, one per agent that has one."""
    return [_summary(store, row) for row in store.read("find_runs", (run_id,))]


def must_exist(store: Store, agent: str, run_id: str) -> tuple[Any, ...]:
    """The row of a run."""
    rows = store.read("get_run", (agent, run_id))
    if not rows:
        raise RunNotFound(f"agent {agent!r} has no run {run_id!r}")
    return rows[0]


def get_run(store: Store, agent: str, run_id: str, unpack: Callable[[bytes], Any] | None = None) -> RunInfo:
    """A run with all that it has recorded. `unpack` is for readers who do not have the types of its values."""
    summary = _summary(store, must_exist(store, agent, run_id))
    events, _ = read_events(store.identity, summary.stream, store.read("events_of", (summary.stream, 0)))
    ledger = Ledger(events)
    assert ledger.started is not None
    unpack = unpack or partial(objects.unpack, store)
    state = {key: unpack(value) for _, key, value, _, _ in store.read("state_of", (summary.stream,))}
    return RunInfo(
        summary,
        input=unpack(ledger.started.input),
        result=unpack(ledger.finished.result) if ledger.finished is not None else None,
        state=state,
        messages=[unpack(value) for _, value in _messages(events)],
        in_doubt=_in_doubt(summary, ledger, unpack),
        questions=[Question(*row) for row in store.read("open_questions", (summary.stream,))],
        events=events,
        finished=ledger.finished is not None,
        usage=usage_of(usage_lines(store, agent, run_id)),
        savings=savings_of(savings_lines(store, agent, run_id)),
    )


def _in_doubt(summary: RunSummary, ledger: Ledger, unpack: Callable[[bytes], Any]) -> list[EffectInDoubt]:
    """Intents without an outcome; while the holder is at work they are only under way, unless it asks."""
    asked = set(ledger.questions)
    at_work = summary.status == r.Status.RUNNING
    return [
        EffectInDoubt(one.name, one.key, unpack(one.arguments), one.begun)
        for one in ledger.in_doubt()
        if not at_work and (summary.status != r.Status.WAITING or one.begun in asked)
    ]


def _messages(events: list[r.Event]) -> list[tuple[int, bytes]]:
    view = View()
    for event in events:
        record = event.record
        if isinstance(record, r.StepDone | r.EffectDone | r.ItemDone):
            view.apply(record.writes)
        elif isinstance(record, r.Wrote):
            view.apply((record.write,))
    return view.messages


def _summary(store: Store, row: tuple[Any, ...]) -> RunSummary:
    stream, agent, run_id, status, _, parent, started_at, changed_at, resumes, _, error = row
    shown, holder = r.Status(status), ""
    if shown in (r.Status.RUNNING, r.Status.WAITING):  # all others have given their lease back
        lease = lease_of(store.read("read_lease", (stream, store.clock.boot_ms()))[0], store.one_host)
        if lease.alive():
            holder = str(lease.process)
        elif shown == r.Status.RUNNING:
            shown = r.Status.CRASHED
    return RunSummary(stream, agent, run_id, shown, parent, started_at, changed_at, resumes, error, holder)


def result_of(store: Store, agent: str, run_id: str) -> Any:
    """The result of a finished run, without replaying it."""
    row = must_exist(store, agent, run_id)
    stream, status, outcome = row[0], row[3], row[9]
    if status != r.Status.FINISHED:
        raise RunNotFinished(f"run {run_id!r} is {_summary(store, row).status}")
    [(_, kind, _, body, _, _)] = store.read("event_at", (stream, outcome))
    record = r.decode(kind, body)
    assert isinstance(record, r.RunFinished)
    return objects.unpack(store, record.result)


class Answer(msgspec.Struct, frozen=True):
    """What somebody says about an effect in doubt: `done` with a result, `retry` it, or `fail`."""

    verdict: str
    result: Any = None


def read_answer(answer: Any, done: Any, retry: bool, fail: bool) -> Answer:
    """The answer in whichever form it was given."""
    if isinstance(answer, Done):
        return Answer("done", answer.result)
    if answer is NotDone or answer == "retry" or retry:
        return Answer("retry")
    if answer == "fail" or fail:
        return Answer("fail")
    if answer == "done" or done is not ...:
        return Answer("done", None if done is ... else done)
    raise ValueError("answer with done=RESULT, retry=True or fail=True")


def give_answer(engine: Engine, run_id: str, answer: Answer, *, key: str | None = None, by: str | None = None) -> None:
    """Settle an effect in doubt for a run, whether it waits now or will be resumed later. The first answer counts."""
    store = engine.store
    # Values stay packed: whoever answers need not have the types of everything that the run has stored.
    info = get_run(store, engine.name, run_id, unpack=bytes)
    if info.finished:
        raise NothingToAnswer(f"run {run_id!r} is finished: nobody would hear the answer")
    effect = _effect_meant(info, key)
    packed, made = objects.pack(store, answer.result, "answer")
    name = by or f"{getpass.getuser()}@{socket.gethostname()}"
    record = r.Answered(info.summary.stream, effect.about, answer.verdict, packed, name)
    head = engine.own_stream()
    unit = Append(Site.ANSWER, head, [record], store.clock, objects=made, signer=engine.signer, seal=True)
    store.submit(unit)


def _effect_meant(info: RunInfo, key: str | None) -> EffectInDoubt:
    """The effect in doubt of that key, or the only one."""
    if not info.in_doubt:
        raise NothingToAnswer(f"run {info.id!r} is {info.status}, and nothing in it is in doubt")
    listed = ", ".join(f"{effect.name} (key {effect.key})" for effect in info.in_doubt)
    effects = [effect for effect in info.in_doubt if key in (None, effect.key)]
    if not effects:
        raise NothingToAnswer(f"no effect in doubt has the key {key!r}; in doubt: {listed}")
    if len(effects) > 1:
        raise NothingToAnswer(f"several effects are in doubt: {listed}", hint="say which one with key= (--key)")
    return effects[0]
