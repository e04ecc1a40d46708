"""A run as it was at an earlier point, computed from its entries up to there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from .. import objects
from .. import records as r
from ..fork_records import OpenQuestion
from ..journal.fold import told_by
from ..run.core import view_of
from ..run.history import effective
from ..run.ledger import Ledger
from ..runs import EffectInDoubt, Question, RunInfo, get_run
from ..store.base import Store
from .points import Point, find_point

Unpack = Callable[[bytes], Any]

_ENDS: dict[type[r.Record], r.Status] = {
    r.RunFinished: r.Status.FINISHED,
    r.RunFailed: r.Status.FAILED,
    r.RunInterrupted: r.Status.INTERRUPTED,
    r.Forked: r.Status.INTERRUPTED,
    r.RunReleased: r.Status.INTERRUPTED,
    r.RunPaused: r.Status.PAUSED,
    r.RunCancelled: r.Status.CANCELLED,
}


def run_at(store: Store, agent: str, run_id: str, at: Point, unpack: Unpack | None = None) -> RunInfo:
    """Return a run right after an entry, a step or a checkpoint. Usage and savings are the current ones."""
    unpack = unpack or partial(objects.unpack, store)
    info = get_run(store, agent, run_id, unpack)
    seq = find_point(info.events, at)
    events = [event for event in info.events if event.seq <= seq]
    holding = effective(events)
    view, ledger, asked = view_of(holding), Ledger(holding), open_questions(holding)
    ended = ledger.finished
    result: RunInfo = msgspec.structs.replace(
        info,
        summary=_summary(info, events, bool(asked)),
        result=unpack(ended.result) if ended is not None and ended.result else None,
        finished=ended is not None,
        state={key: unpack(value) for key, value in view.state.items()},
        messages=[unpack(value) for _, value in view.messages],
        in_doubt=[EffectInDoubt(one.name, one.key, unpack(one.arguments), one.begun) for one in ledger.in_doubt()],
        questions=[Question(one.seq, one.about, one.kind, one.text, one.at) for one in asked],
        events=events,
    )
    return result


def _summary(info: RunInfo, events: Sequence[r.Event], waits: bool) -> Any:
    last = events[-1].record
    stopped = isinstance(last, r.RunCancelled | r.RunPaused)
    status = r.Status.WAITING if waits and not stopped else _ENDS.get(type(last), r.Status.RUNNING)
    error = last.text if isinstance(last, r.RunFailed) else last.reason if isinstance(last, r.RunInterrupted) else ""
    if isinstance(last, r.RunCancelled | r.RunPaused):
        error = told_by(last)
    resumes = sum(isinstance(event.record, r.RunResumed) for event in events)
    at = events[-1].at
    return msgspec.structs.replace(info.summary, status=status, error=error, holder="", resumes=resumes, changed_at=at)


def open_questions(events: Sequence[r.Event]) -> tuple[OpenQuestion, ...]:
    """Return the questions and waits that are open after these entries."""
    found: dict[int, OpenQuestion] = {}
    for event in events:
        it = event.record
        if isinstance(it, r.QuestionAsked):
            found[event.seq] = OpenQuestion(event.seq, it.about, it.kind, it.text, event.at)
        elif isinstance(it, r.WaitBegan):
            found[event.seq] = OpenQuestion(event.seq, event.seq, it.kind, it.text, event.at)
        elif isinstance(it, r.QuestionClosed | r.WaitEnded):
            found.pop(it.question if isinstance(it, r.QuestionClosed) else it.wait, None)
        elif isinstance(it, r.RunCancelled):
            found.clear()
    return tuple(found.values())
