"""A run as it was at an earlier point, computed from its entries up to there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from perdure import records as r
from perdure.journal import objects
from perdure.journal.project import order_text
from perdure.records.forks import OpenQuestion
from perdure.run.branches.points import RunPoint, find_point
from perdure.run.data_view import view_of
from perdure.run.history import effective
from perdure.run.ledger import Ledger
from perdure.run.listing import EffectInDoubt, Question, RunInfo, get_run
from perdure.store.base import Store

ValueUnpacker = Callable[[bytes], Any]

_ENDS: dict[type[r.Record], r.RunStatus] = {
    r.RunFinishedEntry: r.RunStatus.FINISHED,
    r.RunFailed: r.RunStatus.FAILED,
    r.RunInterrupted: r.RunStatus.INTERRUPTED,
    r.Forked: r.RunStatus.INTERRUPTED,
    r.RunReleased: r.RunStatus.INTERRUPTED,
    r.RunPausedEntry: r.RunStatus.PAUSED,
    r.RunCancelledEntry: r.RunStatus.CANCELLED,
}


def read_run_at(store: Store, agent: str, run_id: str, at: RunPoint, unpack: ValueUnpacker | None = None) -> RunInfo:
    """Return a run right after an entry, a step or a checkpoint. Usage and savings are the current ones."""
    unpack = unpack or partial(objects.unpack, store)
    info = get_run(store, agent, run_id, unpack)
    seq = find_point(info.events, at)
    events = [event for event in info.events if event.seq <= seq]
    holding = effective(events)
    view, ledger, asked = view_of(holding), Ledger(holding), find_open_questions(holding)
    ended = ledger.finished
    result: RunInfo = msgspec.structs.replace(
        info,
        summary=_summary(info, events, bool(asked)),
        result=unpack(ended.result) if ended is not None and ended.result else None,
        finished=ended is not None,
        state={key: unpack(value) for key, value in view.state.items()},
        messages=[unpack(value) for _, value in view.messages],
        in_doubt=[EffectInDoubt(one.name, one.key, unpack(one.arguments), one.begun) for one in ledger.list_in_doubt()],
        questions=[Question(one.seq, one.about, one.kind, one.text, one.at) for one in asked],
        events=events,
    )
    return result


def _summary(info: RunInfo, events: Sequence[r.JournalEntry], waits: bool) -> Any:
    last = events[-1].record
    stopped = isinstance(last, r.RunCancelledEntry | r.RunPausedEntry)
    status = r.RunStatus.WAITING if waits and not stopped else _ENDS.get(type(last), r.RunStatus.RUNNING)
    error = last.text if isinstance(last, r.RunFailed) else last.reason if isinstance(last, r.RunInterrupted) else ""
    if isinstance(last, r.RunCancelledEntry | r.RunPausedEntry):
        error = order_text(last)
    resumes = sum(isinstance(event.record, r.RunResumed) for event in events)
    at = events[-1].at
    return msgspec.structs.replace(info.summary, status=status, error=error, holder="", resumes=resumes, changed_at=at)


def find_open_questions(events: Sequence[r.JournalEntry]) -> tuple[OpenQuestion, ...]:
    """Return the questions and waits that are open after these entries."""
    found: dict[int, OpenQuestion] = {}
    for event in events:
        record = event.record
        if isinstance(record, r.QuestionAsked):
            found[event.seq] = OpenQuestion(event.seq, record.about, record.kind, record.text, event.at)
        elif isinstance(record, r.WaitBegan):
            found[event.seq] = OpenQuestion(event.seq, event.seq, record.kind, record.text, event.at)
        elif isinstance(record, r.QuestionClosed | r.WaitEnded):
            found.pop(record.question if isinstance(record, r.QuestionClosed) else record.wait, None)
        elif isinstance(record, r.RunCancelledEntry):
            found.clear()
    return tuple(found.values())
