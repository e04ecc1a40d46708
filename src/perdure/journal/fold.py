"""What an entry does to the views: pure, so that rebuilding a view is the same code as keeping it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import records as r
from ..errors import AlreadyAnswered
from ..plan_records import encode_part
from ..store.base import Statement

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
)
"""Every table that `rebuild` can make anew from the journal."""

DAY_MS = 86_400_000

Fold = Callable[[int, int, int, Any], Sequence[Statement]]


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
        if isinstance(one, r.Happened):
            where = (stream, seq, r.LANDED_PLACE + place)
            changes.append(Statement("add_happening", (one.owner, one.run, one.kind, *where, at)))
            continue
        if isinstance(one, r.CheckpointMade):
            changes.append(Statement("put_checkpoint", (one.owner, one.name, one.version, stream, seq, at)))
            continue
        if isinstance(one, r.CheckpointDropped):
            changes.append(Statement("drop_checkpoint", (one.owner, one.name, one.version)))
            continue
        if isinstance(one, r.ArtifactSaved):
            changes.append(Statement("put_artifact", (one.owner, one.name, one.version, stream, seq, at)))
            continue
        if isinstance(one, r.ArtifactDropped):
            changes.append(Statement("drop_artifact", (one.owner, one.name, one.version)))
            continue
        if isinstance(one, r.WorkflowMade | r.WorkflowMoved):
            changes.append(_workflow(at, one))
            continue
        if isinstance(one, r.SignalSent):
            changes.append(Statement("put_signal", (one.owner, one.run, one.name, one.number, one.value, one.by, at)))
            continue
        key = (one.owner, one.space, one.key)
        changes.append(Statement("set_entry", (*key, one.value, one.version, one.revision, at, one.expires)))
        changes.append(Statement("add_history", (*key, one.revision, one.version, stream, seq, at)))
        revisions[one.owner, one.space] = one.revision
    return changes + [Statement("set_space", (*space, revision)) for space, revision in revisions.items()]


def _workflow(at: int, it: r.WorkflowMade | r.WorkflowMoved) -> Statement:
    place = (it.owner, it.name, it.version)
    if isinstance(it, r.WorkflowMade):
        return Statement("put_workflow", (*place, it.revision, encode_part(it.steps), at))
    standing = it.standing
    moved = (it.step, it.revision, standing.status.value, encode_part(standing), at)
    return Statement("set_workflow_step", (*place, *moved))


def _status(stream: int, status: r.Status, at: int, outcome: int = 0, error: str = "") -> list[Statement]:
    return [Statement("set_run_status", (stream, status.value, at, outcome, error))]


def _agent(stream: int, seq: int, at: int, it: r.AgentCreated) -> list[Statement]:
    return [Statement("add_agent", (it.name, stream, it.public_key, at))]


def _started(stream: int, seq: int, at: int, it: r.RunStarted) -> list[Statement]:
    return [Statement("add_run", (stream, it.agent, it.run, it.input_digest, it.parent, at))]


def _asked(stream: int, seq: int, at: int, it: r.QuestionAsked | r.WaitBegan) -> list[Statement]:
    about = it.about if isinstance(it, r.QuestionAsked) else seq
    question = Statement("add_question", (stream, seq, about, it.kind, it.text, at))
    return [question, *_status(stream, r.Status.WAITING, at)]


def _closed(stream: int, seq: int, at: int, it: r.QuestionClosed | r.WaitEnded) -> list[Statement]:
    question = it.question if isinstance(it, r.QuestionClosed) else it.wait
    return [Statement("close_question", (stream, question)), Statement("go_on_with_run", (stream, at))]


def _answered(stream: int, seq: int, at: int, it: r.Answered) -> list[Statement]:
    return [Statement("add_answer", (it.stream, it.about, it.verdict, it.value, it.by, at), AlreadyAnswered)]


_FOLDS: dict[type[r.Record], Fold] = {
    r.AgentCreated: _agent,
    r.RunStarted: _started,
    r.RunResumed: lambda stream, seq, at, it: [Statement("resume_run", (stream, at))],
    r.RunFinished: lambda stream, seq, at, it: _status(stream, r.Status.FINISHED, at, seq),
    r.RunFailed: lambda stream, seq, at, it: _status(stream, r.Status.FAILED, at, seq, it.text),
    r.RunInterrupted: lambda stream, seq, at, it: _status(stream, r.Status.INTERRUPTED, at, 0, it.reason),
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
}
