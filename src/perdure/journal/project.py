"""Projects an entry to the views. Pure functions, so that maintaining and rebuilding a view is the same code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from perdure import records as r
from perdure.errors import AlreadyAnswered
from perdure.journal.project_memories import PROJECTIONS as _OF_MEMORIES
from perdure.records.tasks import NEVER, event_wanted
from perdure.records.workflows import encode_part
from perdure.store.base import Statement

RUN_STATE = ""
"""The namespace of `run.state`; named ones belong to the agent."""

VIEWS = (
    "agents",
    "runs",
    "run_state",
    "questions",
    "answers",
    "state_namespaces",
    "state_horizons",
    "agent_state",
    "state_history",
    "checkpoints",
    "artifacts",
    "usage",
    "savings",
    "events",
    "workflows",
    "workflow_steps",
    "signals",
    "orders",
    "tasks",
    "task_waits",
    "thread_generations",
    "thread_checkpoints",
    "thread_writes",
    "memories",
    "memory_relations",
)
"""Every table that `rebuild` can recreate from the journal."""

DAY_MS = 86_400_000

Projection = Callable[[int, int, int, Any], Sequence[Statement]]
ChangeProjection = Callable[[int, int, int, Any, int], Sequence[Statement]]
"""Projects one agent change of an entry; the last argument is its index there."""


def project(stream: int, seq: int, at: int, record: r.Record) -> Sequence[Statement]:
    """Return the view changes that follow from one entry."""
    change = _PROJECTIONS.get(type(record))
    return change(stream, seq, at, record) if change is not None else ()


def project_kept(stream: int, seq: int, at: int, record: r.Record) -> Sequence[Statement]:
    """Return the view changes of an entry that compaction kept: its events and its agent changes.

    The compaction entry carries its changes of the run.
    """
    if not isinstance(record, _WritingRecord):
        return project(stream, seq, at, record)
    writes = (record.write,) if isinstance(record, r.Wrote) else getattr(record, "writes", ())
    noted = [change for change in _project_writes(stream, seq, at, writes) if change.name == "add_run_event"]
    return [*noted, *_project_agent_changes(stream, seq, at, record)]


def project_anew(stream: int, seq: int, at: int, record: r.Record) -> Sequence[Statement]:
    """Return the view changes of an entry whose views are empty: on rebuild, or in another store.

    Where an entry was erased, the views already have what is carried on: only its place changes.
    """
    if isinstance(record, r.ChangesCarried):
        return _project_agent_changes(stream, seq, record.at, record)
    return project(stream, seq, at, record)


def _erased(stream: int, seq: int, at: int, record: r.RunErased) -> list[Statement]:
    place = (stream, record.agent, record.run, record.parent, record.started_at, at)
    gone = [
        Statement("drop_run_state", (stream,)),
        Statement("drop_questions", (stream, seq)),
        Statement("drop_task", (stream,)),
        Statement("drop_task_waits", (stream,)),
    ]
    return [Statement("erase_run", place), *gone, *_carried_costs(stream, record)]


def _carried_costs(stream: int, record: r.RunErased | r.StreamCompacted) -> list[Statement]:
    spent = [change for one in record.usage for change in _project_usage(stream, one.day * DAY_MS, (one.usage,))]
    saved = [change for one in record.savings for change in _project_savings(stream, one.day, one.saved)]
    return [Statement("drop_usage", (stream,)), Statement("drop_savings", (stream,)), *spent, *saved]


def _stream_compacted(stream: int, seq: int, at: int, record: r.StreamCompacted) -> list[Statement]:
    carried = [
        Statement("restore_run_state", (stream, RUN_STATE, one.key, one.value, one.version, one.at))
        for one in record.state
    ]
    floors = [Statement("raise_state_horizon", (one.owner, one.space, one.revision, one.at)) for one in record.floors]
    return [Statement("set_resumes", (stream, record.resumes)), *carried, *floors, *_carried_costs(stream, record)]


def _project_writes(stream: int, seq: int, at: int, writes: Sequence[r.RunWrite]) -> list[Statement]:
    changes = []
    for place, write in enumerate(writes):
        if write.op == r.WriteOp.SET:
            changes.append(Statement("set_run_state", (stream, RUN_STATE, write.key, write.value, at)))
        elif write.op == r.WriteOp.DELETE:
            changes.append(Statement("delete_run_state", (stream, RUN_STATE, write.key)))
        elif write.op == r.WriteOp.EVENT:
            changes.append(Statement("add_run_event", (write.key, stream, seq, place, at)))
    return changes


def _project_attached_writes(
    stream: int, seq: int, at: int, record: r.StepDone | r.EffectDone | r.ItemDone
) -> Sequence[Statement]:
    writes = _project_writes(stream, seq, at, record.writes) if record.writes else ()
    if not record.landed and not record.usage:
        return writes
    return [*writes, *_project_agent_changes(stream, seq, at, record), *_project_usage(stream, at, record.usage)]


def _counts(usage: r.ModelUsage) -> tuple[int, ...]:
    tokens = usage.input_tokens, usage.output_tokens, usage.cached_input_tokens, usage.cache_write_tokens
    return usage.calls, usage.unpriced, *tokens, usage.cost


def _project_usage(stream: int, at: int, usage: Sequence[r.ModelUsage]) -> list[Statement]:
    return [
        Statement("add_usage", (stream, spent.step, spent.model, spent.provider, at // DAY_MS, *_counts(spent)))
        for spent in usage
    ]


def _project_replayed(stream: int, seq: int, at: int, record: r.Replayed) -> list[Statement]:
    return [change for one in record.saved for change in _project_savings(stream, at // DAY_MS, one)]


def _project_savings(stream: int, day: int, one: r.SavedWork) -> list[Statement]:
    which = (stream, one.usage.model, one.usage.provider, day)
    return [Statement("add_savings", (*which, one.steps, one.took_us, *_counts(one.usage)))]


def _project_wrote(stream: int, seq: int, at: int, record: r.Wrote) -> list[Statement]:
    changes = [*_project_writes(stream, seq, at, (record.write,)), *_project_agent_changes(stream, seq, at, record)]
    return changes + _project_usage(stream, at, record.usage)


_WritingRecord = r.StepDone | r.EffectDone | r.ItemDone | r.Wrote | r.Landed | r.ChangesCarried


def _project_agent_changes(stream: int, seq: int, at: int, record: _WritingRecord) -> Sequence[Statement]:
    changes, revisions = list[Statement](), dict[tuple[int, str], int]()
    for place, one in enumerate(record.landed):
        changes += _LANDINGS[type(one)](stream, seq, at, one, place)
        if isinstance(one, r.StateChange):
            revisions[one.owner, one.space] = one.revision
    return changes + [Statement("set_namespace_revision", (*space, revision)) for space, revision in revisions.items()]


def _project_state_change(stream: int, seq: int, at: int, change: r.StateChange, _: int) -> list[Statement]:
    key = (change.owner, change.space, change.key)
    seen = (change.since or at, change.expires, change.created, change.lasts)
    return [
        Statement("set_agent_state", (*key, change.value, change.version, change.revision, *seen)),
        Statement("add_state_history", (*key, change.revision, change.version, stream, seq, at)),
    ]


def _project_event(stream: int, seq: int, at: int, record: r.EventAppended, place: int) -> list[Statement]:
    where = (stream, seq, r.LANDED_PLACE + place)
    return [Statement("add_event", (record.owner, record.run, record.kind, *where, at))]


def _project_saved_version(query: str) -> ChangeProjection:
    """Project a saved checkpoint or artifact: the view refers to the entry."""
    return lambda stream, seq, at, record, _: [
        Statement(query, (record.owner, record.name, record.version, stream, seq, at))
    ]


def _project_dropped_version(query: str) -> ChangeProjection:
    return lambda stream, seq, at, record, _: [Statement(query, (record.owner, record.name, record.version))]


def _project_signal(stream: int, seq: int, at: int, record: r.SignalSent, _: int) -> list[Statement]:
    place = (record.owner, record.run, record.name, record.number)
    return [
        Statement("put_signal", (*place, record.value, record.by, at)),
        Statement("wake_task", (event_wanted(*place),)),
    ]


def _project_order(stream: int, seq: int, at: int, record: r.OrderGiven, _: int) -> list[Statement]:
    return [
        Statement(
            "put_order", (record.stream, record.number, record.fence, record.order.value, record.reason, record.by, at)
        )
    ]


def _project_workflow(stream: int, seq: int, at: int, record: r.WorkflowMade, _: int) -> list[Statement]:
    return [
        Statement(
            "put_workflow", (record.owner, record.name, record.version, record.revision, encode_part(record.steps), at)
        )
    ]


def _project_step_state(stream: int, seq: int, at: int, record: r.WorkflowMoved, _: int) -> list[Statement]:
    step = (record.owner, record.name, record.version, record.step)
    return [
        Statement(
            "set_workflow_step",
            (*step, record.revision, record.standing.status.value, encode_part(record.standing), at),
        )
    ]


def _project_queued(stream: int, seq: int, at: int, record: r.TaskQueued, _: int) -> list[Statement]:
    place = (record.owner, record.agent, record.run, record.task, record.queue, record.priority, record.key)
    return [
        Statement(
            "queue_task", (*place, record.not_before, record.again, record.input, record.digest, record.parent, at)
        )
    ]


def _project_requeued(stream: int, seq: int, at: int, record: r.TaskAgain, _: int) -> list[Statement]:
    return [Statement("requeue_task", (record.owner, record.agent, record.run, record.after))]


def _project_thread_put(stream: int, seq: int, at: int, record: r.ThreadPut, _: int) -> list[Statement]:
    where = (record.owner, record.thread, record.ns, record.id)
    return [Statement("put_thread_checkpoint", (*where, record.life, record.parent, record.run, stream, seq, at))]


def _project_thread_writes(stream: int, seq: int, at: int, record: r.ThreadWrote, _: int) -> list[Statement]:
    return [
        Statement("put_thread_write", (record.owner, record.thread, record.ns, record.id, stream, seq, record.life))
    ]


def _project_thread_drop(stream: int, seq: int, at: int, record: r.ThreadDropped, _: int) -> list[Statement]:
    thread = (record.owner, record.thread)
    whole = not record.points
    changes = [Statement("raise_thread_generation", (*thread, record.life, record.life if whole else 0, record.floor))]
    if whole:
        names = ("drop_thread_checkpoints", "settle_thread_checkpoints", "drop_all_thread_writes")
        return changes + [Statement(name, (*thread, record.life)) for name in names]
    for point in record.points:
        changes.append(Statement("drop_thread_checkpoint", (*thread, *point, record.life)))
        changes.append(Statement("drop_thread_writes", (*thread, *point, record.life)))
    return changes


_LANDINGS: dict[type[r.Record], ChangeProjection] = {
    r.StateChange: _project_state_change,
    r.CheckpointMade: _project_saved_version("put_checkpoint"),
    r.CheckpointDropped: _project_dropped_version("drop_checkpoint"),
    r.ArtifactSaved: _project_saved_version("put_artifact"),
    r.ArtifactDropped: _project_dropped_version("drop_artifact"),
    r.EventAppended: _project_event,
    r.WorkflowMade: _project_workflow,
    r.WorkflowMoved: _project_step_state,
    r.SignalSent: _project_signal,
    r.OrderGiven: _project_order,
    r.TaskQueued: _project_queued,
    r.TaskAgain: _project_requeued,
    r.ThreadPut: _project_thread_put,
    r.ThreadWrote: _project_thread_writes,
    r.ThreadDropped: _project_thread_drop,
}


def _task_moved(stream: int, state: str, ready_at: int = NEVER, attempts: int = -1, died: int = 0) -> Statement:
    """Set the task state of a run; no effect on a run without a task."""
    return Statement("set_task_state", (stream, state, ready_at, attempts, died))


def _project_parked(stream: int, seq: int, at: int, record: r.TaskParked) -> list[Statement]:
    """Park a task. An awaited event may arrive before or during this commit, so lock before looking."""
    changes = [Statement("ensure_task", (stream,))]
    for want in record.wants:
        if want.kind == "run":  # before our own task: the end of the awaited run locks in this order too
            changes.append(Statement("lock_awaited", (want.stream, want.agent, want.run)))
        elif want.kind == "event":
            changes.append(Statement("lock_namespace", (want.stream, f"signal {want.run}/{want.name}")))
    # The awaited run is in another store because an agent has moved: wake the waiting run at once.
    lost = any(want.kind == "run" and not want.stream for want in record.wants)
    changes += [Statement("lock_task", (stream,)), _task_moved(stream, "parked", 0 if lost else record.until)]
    changes.append(Statement("drop_task_waits", (stream,)))
    for want in record.wants:
        changes.append(Statement("add_task_wait", (want.what, stream)))
        if want.kind == "answer":
            changes.append(Statement("wake_if_answered", (stream, want.stream, want.number)))
        elif want.kind == "run":
            changes.append(Statement("wake_if_ended", (stream, want.agent, want.run)))
        else:
            changes.append(Statement("wake_if_sent", (stream, want.stream, want.run, want.name, want.number)))
    return changes


def _project_failed(stream: int, seq: int, at: int, record: r.RunFailed) -> list[Statement]:
    status = _status(stream, r.RunStatus.FAILED, at, seq, record.text)
    if record.again_at:
        return [
            *status,
            Statement("ensure_task", (stream,)),
            _task_moved(stream, "queued", record.again_at, record.attempt),
        ]
    return [*status, _task_moved(stream, "dead", died=seq), Statement("wake_by_run", (stream,))]


def _project_finished(stream: int, seq: int, at: int, record: r.RunFinishedEntry) -> list[Statement]:
    ended = [Statement("drop_task", (stream,)), Statement("wake_by_run", (stream,))]
    return [*_status(stream, r.RunStatus.FINISHED, at, seq), *ended]


def _project_interrupted(stream: int, seq: int, at: int, record: r.RunInterrupted) -> list[Statement]:
    return [*_status(stream, r.RunStatus.INTERRUPTED, at, 0, record.reason), _task_moved(stream, "queued", 0)]


def _project_resumed(stream: int, seq: int, at: int, record: r.RunResumed) -> list[Statement]:
    return [
        Statement("resume_run", (stream, at)),
        _task_moved(stream, "running"),
        Statement("drop_task_waits", (stream,)),
    ]


def _status(stream: int, status: r.RunStatus, at: int, outcome: int = 0, error: str = "") -> list[Statement]:
    return [Statement("set_run_status", (stream, status.value, at, outcome, error))]


def _project_cancelled(stream: int, seq: int, at: int, record: r.RunCancelledEntry) -> list[Statement]:
    asked = Statement("close_questions", (stream,))
    ended = [
        Statement("drop_task", (stream,)),
        Statement("drop_task_waits", (stream,)),
        Statement("wake_by_run", (stream,)),
    ]
    return [asked, *_status(stream, r.RunStatus.CANCELLED, at, seq, order_text(record)), *ended]


def _project_paused(stream: int, seq: int, at: int, record: r.RunPausedEntry) -> list[Statement]:
    return [*_status(stream, r.RunStatus.PAUSED, at, seq, order_text(record)), _task_moved(stream, "paused")]


def _project_released(stream: int, seq: int, at: int, record: r.RunReleased) -> list[Statement]:
    how = "tried again" if record.retry else "resumed"
    status = _status(stream, r.RunStatus.INTERRUPTED, at, 0, f"{how} {order_text(record)}")
    return [*status, _task_moved(stream, "queued", 0, 0 if record.retry else -1)]


def order_text(record: r.RunCancelledEntry | r.RunPausedEntry | r.RunReleased | r.CleanupBegan) -> str:
    """Describe in one line who gave an order and why."""
    return f"by {record.by}: {record.reason}" if record.reason else f"by {record.by}"


def _agent(stream: int, seq: int, at: int, record: r.AgentCreated) -> list[Statement]:
    return [Statement("add_agent", (record.name, stream, record.public_key, at))]


def _project_started(stream: int, seq: int, at: int, record: r.RunStarted) -> list[Statement]:
    added = Statement("add_run", (stream, record.agent, record.run, record.input_digest, record.parent, at))
    return [added, _task_moved(stream, "running")]


def _project_forked(stream: int, seq: int, at: int, record: r.Forked) -> list[Statement]:
    status = r.RunStatus.WAITING if record.questions else r.RunStatus.INTERRUPTED
    made = f"forked from {record.of!r} at entry {record.cut}, not opened yet"
    run = (stream, record.agent, record.run, status.value, record.input_digest, record.origin, record.cut, made, at)
    asked = [Statement("add_question", (stream, q.seq, q.about, q.kind, q.text, q.at)) for q in record.questions]
    return [Statement("add_fork", run), *asked]


def _undone(stream: int, seq: int, at: int, record: r.Undone) -> list[Statement]:
    back = [
        Statement("set_run_state", (stream, RUN_STATE, one.key, one.value, at))
        if one.value
        else Statement("delete_run_state", (stream, RUN_STATE, one.key))
        for one in record.state
    ]
    closed = [Statement("close_question", (stream, question)) for question in record.closes]
    told = f"{record.steps} steps undone by {record.by}"
    return [*back, *closed, *([] if record.inside else _status(stream, r.RunStatus.INTERRUPTED, at, 0, told))]


def _project_question(stream: int, seq: int, at: int, record: r.QuestionAsked | r.WaitBegan) -> list[Statement]:
    about = record.about if isinstance(record, r.QuestionAsked) else seq
    question = Statement("add_question", (stream, seq, about, record.kind, record.text, at))
    return [question, *_status(stream, r.RunStatus.WAITING, at)]


def _project_question_closed(stream: int, seq: int, at: int, record: r.QuestionClosed | r.WaitEnded) -> list[Statement]:
    question = record.question if isinstance(record, r.QuestionClosed) else record.wait
    return [Statement("close_question", (stream, question)), Statement("mark_run_running", (stream, at))]


def _project_answer(stream: int, seq: int, at: int, record: r.Answered) -> list[Statement]:
    answer = Statement(
        "add_answer", (record.stream, record.about, record.verdict, record.value, record.by, at), AlreadyAnswered
    )
    wake = Statement("wake_task", (r.WakeCondition("answer", record.about, record.stream).what,))
    return [answer, Statement("lock_task", (record.stream,)), wake]


_PROJECTIONS: dict[type[r.Record], Projection] = {
    r.AgentCreated: _agent,
    r.RunStarted: _project_started,
    r.RunResumed: _project_resumed,
    r.RunFinishedEntry: _project_finished,
    r.RunFailed: _project_failed,
    r.RunInterrupted: _project_interrupted,
    r.RunCancelledEntry: _project_cancelled,
    r.RunPausedEntry: _project_paused,
    r.RunReleased: _project_released,
    r.CleanupBegan: lambda stream, seq, at, record: _status(stream, r.RunStatus.CANCELLING, at, 0, order_text(record)),
    r.TaskParked: _project_parked,
    r.StepDone: _project_attached_writes,
    r.EffectDone: _project_attached_writes,
    r.ItemDone: _project_attached_writes,
    r.Wrote: _project_wrote,
    r.Spent: lambda stream, seq, at, record: _project_usage(stream, at, record.usage),
    r.Replayed: _project_replayed,
    r.QuestionAsked: _project_question,
    r.QuestionClosed: _project_question_closed,
    r.Answered: _project_answer,
    r.WaitBegan: _project_question,
    r.WaitEnded: _project_question_closed,
    r.Landed: _project_agent_changes,
    r.StreamCompacted: _stream_compacted,
    r.Forked: _project_forked,
    r.RunErased: _erased,
    r.Undone: _undone,
    **_OF_MEMORIES,
    r.AgentLeft: lambda stream, seq, at, record: [Statement("set_departure", (stream, seq))],
    r.AgentArrived: lambda stream, seq, at, record: [Statement("set_departure", (stream, 0))],
}
