"""What an entry does to the views: pure, so that rebuilding a view is the same code as keeping it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import records as r
from ..errors import AlreadyAnswered
from ..plan_records import encode_part
from ..store.base import Statement
from ..task_records import NEVER, event_wanted
from .fold_memories import FOLDS as _OF_MEMORIES

RUN_STATE = ""
"""The namespace of `run.state`; named ones belong to the agent."""

VIEWS = (
    "agents",
    "runs",
    "state",
    "questions",
    "answers",
    "spaces",
    "floors",
    "entries",
    "history",
    "checkpoints",
    "artifacts",
    "usage",
    "savings",
    "happenings",
    "workflows",
    "workflow_steps",
    "signals",
    "orders",
    "tasks",
    "task_waits",
    "thread_lives",
    "thread_points",
    "thread_writes",
    "memories",
    "memory_marks",
)
"""Every table that `rebuild` can make anew from the journal."""

DAY_MS = 86_400_000

Fold = Callable[[int, int, int, Any], Sequence[Statement]]
Landing = Callable[[int, int, int, Any, int], Sequence[Statement]]
"""The same for one of the things that have landed with an entry, and which of them it is."""


def fold(stream: int, seq: int, at: int, record: r.Record) -> Sequence[Statement]:
    """The changes of the views that follow from one entry."""
    change = _FOLDS.get(type(record))
    return change(stream, seq, at, record) if change is not None else ()


def fold_kept(stream: int, seq: int, at: int, record: r.Record) -> Sequence[Statement]:
    """The same for an entry that was kept when those around it were folded: what it did to its own run is carried by
    the entry that tells of the folding, and only its events and what it wrote to agents are its own.
    """
    if not isinstance(record, _Landing):
        return fold(stream, seq, at, record)
    writes = (record.write,) if isinstance(record, r.Wrote) else getattr(record, "writes", ())
    noted = [change for change in _writes(stream, seq, at, writes) if change.name == "add_run_happening"]
    return [*noted, *_landed(stream, seq, at, record)]


def _folded(stream: int, seq: int, at: int, it: r.Folded) -> list[Statement]:
    carried = [
        Statement("carry_state", (stream, RUN_STATE, one.key, one.value, one.version, one.at)) for one in it.state
    ]
    floors = [Statement("raise_floor", (one.owner, one.space, one.revision, one.at)) for one in it.floors]
    spent = [change for one in it.usage for change in _used(stream, one.day * DAY_MS, (one.usage,))]
    saved = [change for one in it.savings for change in _saved(stream, one.day, one.saved)]
    anew = [Statement("drop_usage", (stream,)), Statement("drop_savings", (stream,))]
    return [Statement("set_resumes", (stream, it.resumes)), *carried, *floors, *anew, *spent, *saved]


def _writes(stream: int, seq: int, at: int, writes: Sequence[r.Write]) -> list[Statement]:
    changes = []
    for place, write in enumerate(writes):
        if write.op == r.Op.SET:
            changes.append(Statement("put_state", (stream, RUN_STATE, write.key, write.value, at)))
        elif write.op == r.Op.DELETE:
            changes.append(Statement("drop_state", (stream, RUN_STATE, write.key)))
        elif write.op == r.Op.EVENT:
            changes.append(Statement("add_run_happening", (write.key, stream, seq, place, at)))
    return changes


def _wrote_with(stream: int, seq: int, at: int, it: r.StepDone | r.EffectDone | r.ItemDone) -> Sequence[Statement]:
    writes = _writes(stream, seq, at, it.writes) if it.writes else ()
    if not it.landed and not it.usage:
        return writes
    return [*writes, *_landed(stream, seq, at, it), *_used(stream, at, it.usage)]


def _counts(it: r.Usage) -> tuple[int, ...]:
    tokens = it.input_tokens, it.output_tokens, it.cached_input_tokens, it.cache_write_tokens
    return it.calls, it.unpriced, *tokens, it.cost


def _used(stream: int, at: int, usage: Sequence[r.Usage]) -> list[Statement]:
    return [
        Statement("add_usage", (stream, it.step, it.model, it.provider, at // DAY_MS, *_counts(it))) for it in usage
    ]


def _replayed(stream: int, seq: int, at: int, it: r.Replayed) -> list[Statement]:
    return [change for one in it.saved for change in _saved(stream, at // DAY_MS, one)]


def _saved(stream: int, day: int, one: r.Saved) -> list[Statement]:
    which = (stream, one.usage.model, one.usage.provider, day)
    return [Statement("add_savings", (*which, one.steps, one.took_us, *_counts(one.usage)))]


def _wrote(stream: int, seq: int, at: int, it: r.Wrote) -> list[Statement]:
    changes = [*_writes(stream, seq, at, (it.write,)), *_landed(stream, seq, at, it)]
    return changes + _used(stream, at, it.usage)


_Landing = r.StepDone | r.EffectDone | r.ItemDone | r.Wrote | r.Landed


def _landed(stream: int, seq: int, at: int, it: _Landing) -> Sequence[Statement]:
    changes, revisions = list[Statement](), dict[tuple[int, str], int]()
    for place, one in enumerate(it.landed):
        changes += _LANDINGS[type(one)](stream, seq, at, one, place)
        if isinstance(one, r.StateChange):
            revisions[one.owner, one.space] = one.revision
    return changes + [Statement("set_space", (*space, revision)) for space, revision in revisions.items()]


def _changed(stream: int, seq: int, at: int, it: r.StateChange, _: int) -> list[Statement]:
    key = (it.owner, it.space, it.key)
    seen = (it.since or at, it.expires, it.created, it.lasts)
    return [
        Statement("set_entry", (*key, it.value, it.version, it.revision, *seen)),
        Statement("add_history", (*key, it.revision, it.version, stream, seq, at)),
    ]


def _happened(stream: int, seq: int, at: int, it: r.Happened, place: int) -> list[Statement]:
    where = (stream, seq, r.LANDED_PLACE + place)
    return [Statement("add_happening", (it.owner, it.run, it.kind, *where, at))]


def _made(query: str) -> Landing:
    """Of a checkpoint or an artifact: the view refers to the entry."""
    return lambda stream, seq, at, it, _: [Statement(query, (it.owner, it.name, it.version, stream, seq, at))]


def _dropped(query: str) -> Landing:
    return lambda stream, seq, at, it, _: [Statement(query, (it.owner, it.name, it.version))]


def _sent(stream: int, seq: int, at: int, it: r.SignalSent, _: int) -> list[Statement]:
    place = (it.owner, it.run, it.name, it.number)
    return [Statement("put_signal", (*place, it.value, it.by, at)), Statement("wake_task", (event_wanted(*place),))]


def _ordered(stream: int, seq: int, at: int, it: r.OrderGiven, _: int) -> list[Statement]:
    return [Statement("put_order", (it.stream, it.number, it.fence, it.order.value, it.reason, it.by, at))]


def _planned(stream: int, seq: int, at: int, it: r.WorkflowMade, _: int) -> list[Statement]:
    return [Statement("put_workflow", (it.owner, it.name, it.version, it.revision, encode_part(it.steps), at))]


def _moved(stream: int, seq: int, at: int, it: r.WorkflowMoved, _: int) -> list[Statement]:
    step = (it.owner, it.name, it.version, it.step)
    return [
        Statement("set_workflow_step", (*step, it.revision, it.standing.status.value, encode_part(it.standing), at))
    ]


def _queued(stream: int, seq: int, at: int, it: r.TaskQueued, _: int) -> list[Statement]:
    place = (it.owner, it.agent, it.run, it.task, it.queue, it.priority, it.key)
    return [Statement("queue_task", (*place, it.not_before, it.again, it.input, it.digest, it.parent, at))]


def _again(stream: int, seq: int, at: int, it: r.TaskAgain, _: int) -> list[Statement]:
    return [Statement("again_task", (it.owner, it.agent, it.run, it.after))]


def _put(stream: int, seq: int, at: int, it: r.ThreadPut, _: int) -> list[Statement]:
    where = (it.owner, it.thread, it.ns, it.id)
    return [Statement("put_thread_point", (*where, it.life, it.parent, it.run, stream, seq, at))]


def _wrote_to(stream: int, seq: int, at: int, it: r.ThreadWrote, _: int) -> list[Statement]:
    return [Statement("put_thread_write", (it.owner, it.thread, it.ns, it.id, stream, seq, it.life))]


def _dropped_of(stream: int, seq: int, at: int, it: r.ThreadDropped, _: int) -> list[Statement]:
    thread = (it.owner, it.thread)
    whole = not it.points
    changes = [Statement("raise_thread_life", (*thread, it.life, it.life if whole else 0, it.floor))]
    if whole:
        names = ("drop_thread_points", "settle_thread_points", "drop_all_thread_writes")
        return changes + [Statement(name, (*thread, it.life)) for name in names]
    for point in it.points:
        changes.append(Statement("drop_thread_point", (*thread, *point, it.life)))
        changes.append(Statement("drop_thread_writes", (*thread, *point, it.life)))
    return changes


_LANDINGS: dict[type[r.Record], Landing] = {
    r.StateChange: _changed,
    r.CheckpointMade: _made("put_checkpoint"),
    r.CheckpointDropped: _dropped("drop_checkpoint"),
    r.ArtifactSaved: _made("put_artifact"),
    r.ArtifactDropped: _dropped("drop_artifact"),
    r.Happened: _happened,
    r.WorkflowMade: _planned,
    r.WorkflowMoved: _moved,
    r.SignalSent: _sent,
    r.OrderGiven: _ordered,
    r.TaskQueued: _queued,
    r.TaskAgain: _again,
    r.ThreadPut: _put,
    r.ThreadWrote: _wrote_to,
    r.ThreadDropped: _dropped_of,
}


def _task_moved(stream: int, state: str, ready_at: int = NEVER, attempts: int = -1, died: int = 0) -> Statement:
    """A run may be one that workers take; of those that are not, nothing is changed."""
    return Statement("move_task", (stream, state, ready_at, attempts, died))


def _parked(stream: int, seq: int, at: int, it: r.TaskParked) -> list[Statement]:
    """Whatever it waits for may have come before this, or come at the same time: locks before looks."""
    changes = [Statement("note_task", (stream,))]
    for want in it.wants:
        if want.kind == "run":  # before our own: its end locks in this order too
            changes.append(Statement("lock_awaited", (want.stream, want.agent, want.run)))
        elif want.kind == "event":
            changes.append(Statement("lock_space", (want.stream, f"signal {want.run}/{want.name}")))
    # A run of an agent that is not here, since one of the two has moved: who waits for it is told at once.
    lost = any(want.kind == "run" and not want.stream for want in it.wants)
    changes += [Statement("lock_task", (stream,)), _task_moved(stream, "parked", 0 if lost else it.until)]
    changes.append(Statement("drop_task_waits", (stream,)))
    for want in it.wants:
        changes.append(Statement("add_task_wait", (want.what, stream)))
        if want.kind == "answer":
            changes.append(Statement("wake_if_answered", (stream, want.stream, want.number)))
        elif want.kind == "run":
            changes.append(Statement("wake_if_ended", (stream, want.agent, want.run)))
        else:
            changes.append(Statement("wake_if_sent", (stream, want.stream, want.run, want.name, want.number)))
    return changes


def _failed(stream: int, seq: int, at: int, it: r.RunFailed) -> list[Statement]:
    status = _status(stream, r.Status.FAILED, at, seq, it.text)
    if it.again_at:
        return [*status, Statement("note_task", (stream,)), _task_moved(stream, "queued", it.again_at, it.attempt)]
    return [*status, _task_moved(stream, "dead", died=seq), Statement("wake_by_run", (stream,))]


def _finished(stream: int, seq: int, at: int, it: r.RunFinished) -> list[Statement]:
    ended = [Statement("drop_task", (stream,)), Statement("wake_by_run", (stream,))]
    return [*_status(stream, r.Status.FINISHED, at, seq), *ended]


def _interrupted(stream: int, seq: int, at: int, it: r.RunInterrupted) -> list[Statement]:
    return [*_status(stream, r.Status.INTERRUPTED, at, 0, it.reason), _task_moved(stream, "queued", 0)]


def _resumed(stream: int, seq: int, at: int, it: r.RunResumed) -> list[Statement]:
    return [
        Statement("resume_run", (stream, at)),
        _task_moved(stream, "running"),
        Statement("drop_task_waits", (stream,)),
    ]


def _status(stream: int, status: r.Status, at: int, outcome: int = 0, error: str = "") -> list[Statement]:
    return [Statement("set_run_status", (stream, status.value, at, outcome, error))]


def _cancelled(stream: int, seq: int, at: int, it: r.RunCancelled) -> list[Statement]:
    # What it asked is not asked any more.
    asked = Statement("close_questions", (stream,))
    ended = [
        Statement("drop_task", (stream,)),
        Statement("drop_task_waits", (stream,)),
        Statement("wake_by_run", (stream,)),
    ]
    return [asked, *_status(stream, r.Status.CANCELLED, at, seq, told_by(it)), *ended]


def _paused(stream: int, seq: int, at: int, it: r.RunPaused) -> list[Statement]:
    return [*_status(stream, r.Status.PAUSED, at, seq, told_by(it)), _task_moved(stream, "paused")]


def _released(stream: int, seq: int, at: int, it: r.RunReleased) -> list[Statement]:
    status = _status(stream, r.Status.INTERRUPTED, at, 0, f"resumed {told_by(it)}")
    return [*status, _task_moved(stream, "queued", 0)]


def told_by(it: r.RunCancelled | r.RunPaused | r.RunReleased | r.CleanupBegan) -> str:
    """Who has said so, and why, in one line."""
    return f"by {it.by}: {it.reason}" if it.reason else f"by {it.by}"


def _agent(stream: int, seq: int, at: int, it: r.AgentCreated) -> list[Statement]:
    return [Statement("add_agent", (it.name, stream, it.public_key, at))]


def _started(stream: int, seq: int, at: int, it: r.RunStarted) -> list[Statement]:
    added = Statement("add_run", (stream, it.agent, it.run, it.input_digest, it.parent, at))
    return [added, _task_moved(stream, "running")]


def _forked(stream: int, seq: int, at: int, it: r.Forked) -> list[Statement]:
    status = r.Status.WAITING if it.questions else r.Status.INTERRUPTED
    made = f"forked from {it.of!r} at entry {it.cut}, not opened yet"
    run = (stream, it.agent, it.run, status.value, it.input_digest, it.origin, it.cut, made, at)
    asked = [Statement("add_question", (stream, q.seq, q.about, q.kind, q.text, q.at)) for q in it.questions]
    return [Statement("add_fork", run), *asked]


def _undone(stream: int, seq: int, at: int, it: r.Undone) -> list[Statement]:
    back = [
        Statement("put_state", (stream, RUN_STATE, one.key, one.value, at))
        if one.value
        else Statement("drop_state", (stream, RUN_STATE, one.key))
        for one in it.state
    ]
    closed = [Statement("close_question", (stream, question)) for question in it.closes]
    told = f"{it.steps} steps undone by {it.by}"
    return [*back, *closed, *([] if it.inside else _status(stream, r.Status.INTERRUPTED, at, 0, told))]


def _asked(stream: int, seq: int, at: int, it: r.QuestionAsked | r.WaitBegan) -> list[Statement]:
    about = it.about if isinstance(it, r.QuestionAsked) else seq
    question = Statement("add_question", (stream, seq, about, it.kind, it.text, at))
    return [question, *_status(stream, r.Status.WAITING, at)]


def _closed(stream: int, seq: int, at: int, it: r.QuestionClosed | r.WaitEnded) -> list[Statement]:
    question = it.question if isinstance(it, r.QuestionClosed) else it.wait
    return [Statement("close_question", (stream, question)), Statement("go_on_with_run", (stream, at))]


def _answered(stream: int, seq: int, at: int, it: r.Answered) -> list[Statement]:
    answer = Statement("add_answer", (it.stream, it.about, it.verdict, it.value, it.by, at), AlreadyAnswered)
    wake = Statement("wake_task", (r.Want("answer", it.about, it.stream).what,))
    return [answer, Statement("lock_task", (it.stream,)), wake]


_FOLDS: dict[type[r.Record], Fold] = {
    r.AgentCreated: _agent,
    r.RunStarted: _started,
    r.RunResumed: _resumed,
    r.RunFinished: _finished,
    r.RunFailed: _failed,
    r.RunInterrupted: _interrupted,
    r.RunCancelled: _cancelled,
    r.RunPaused: _paused,
    r.RunReleased: _released,
    r.CleanupBegan: lambda stream, seq, at, it: _status(stream, r.Status.CANCELLING, at, 0, told_by(it)),
    r.TaskParked: _parked,
    r.StepDone: _wrote_with,
    r.EffectDone: _wrote_with,
    r.ItemDone: _wrote_with,
    r.Wrote: _wrote,
    r.Spent: lambda stream, seq, at, it: _used(stream, at, it.usage),
    r.Replayed: _replayed,
    r.QuestionAsked: _asked,
    r.QuestionClosed: _closed,
    r.Answered: _answered,
    r.WaitBegan: _asked,
    r.WaitEnded: _closed,
    r.Landed: _landed,
    r.Folded: _folded,
    r.Forked: _forked,
    r.Undone: _undone,
    **_OF_MEMORIES,
    r.AgentLeft: lambda stream, seq, at, it: [Statement("set_gone", (stream, seq))],
    r.AgentArrived: lambda stream, seq, at, it: [Statement("set_gone", (stream, 0))],
}
