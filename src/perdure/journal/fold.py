"""What an entry does to the views: pure, so that rebuilding a view is the same code as keeping it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import records as r
from ..errors import AlreadyAnswered
from ..store.base import Statement

RUN_STATE = ""
"""The namespace of `run.state`; named ones belong to the agent."""

VIEWS = ("agents", "runs", "state", "questions", "answers", "spaces", "entries", "history", "checkpoints", "artifacts")
"""Every table that `rebuild` can make anew from the journal."""

Fold = Callable[[int, int, int, Any], Sequence[Statement]]


def fold(stream: int, seq: int, at: int, record: r.Record) -> Sequence[Statement]:
    """The changes of the views that follow from one entry."""
    change = _FOLDS.get(type(record))
    return change(stream, seq, at, record) if change is not None else ()


def _writes(stream: int, at: int, writes: Sequence[r.Write]) -> list[Statement]:
    changes = []
    for write in writes:
        if write.op == r.Op.SET:
            changes.append(Statement("put_state", (stream, RUN_STATE, write.key, write.value, at)))
        elif write.op == r.Op.DELETE:
            changes.append(Statement("drop_state", (stream, RUN_STATE, write.key)))
    return changes


def _wrote_with(stream: int, seq: int, at: int, it: r.StepDone | r.EffectDone | r.ItemDone) -> Sequence[Statement]:
    writes = _writes(stream, at, it.writes) if it.writes else ()
    return [*writes, *_landed(stream, seq, at, it)] if it.landed else writes


_Landing = r.StepDone | r.EffectDone | r.ItemDone | r.Wrote | r.Landed


def _landed(stream: int, seq: int, at: int, it: _Landing) -> Sequence[Statement]:
    changes, revisions = list[Statement](), dict[tuple[int, str], int]()
    for one in it.landed:
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
        key = (one.owner, one.space, one.key)
        changes.append(Statement("set_entry", (*key, one.value, one.version, one.revision, at, one.expires)))
        changes.append(Statement("add_history", (*key, one.revision, one.version, stream, seq, at)))
        revisions[one.owner, one.space] = one.revision
    return changes + [Statement("set_space", (*space, revision)) for space, revision in revisions.items()]


def _status(stream: int, status: r.Status, at: int, outcome: int = 0, error: str = "") -> list[Statement]:
    return [Statement("set_run_status", (stream, status.value, at, outcome, error))]


def _agent(stream: int, seq: int, at: int, it: r.AgentCreated) -> list[Statement]:
    return [Statement("add_agent", (it.name, stream, it.public_key, at))]


def _started(stream: int, seq: int, at: int, it: r.RunStarted) -> list[Statement]:
    return [Statement("add_run", (stream, it.agent, it.run, it.input_digest, it.parent, at))]


def _asked(stream: int, seq: int, at: int, it: r.QuestionAsked) -> list[Statement]:
    question = Statement("add_question", (stream, seq, it.about, it.kind, it.text, at))
    return [question, *_status(stream, r.Status.WAITING, at)]


def _closed(stream: int, seq: int, at: int, it: r.QuestionClosed) -> list[Statement]:
    return [Statement("close_question", (stream, it.question)), Statement("go_on_with_run", (stream, at))]


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
    r.Wrote: lambda stream, seq, at, it: [*_writes(stream, at, (it.write,)), *_landed(stream, seq, at, it)],
    r.QuestionAsked: _asked,
    r.QuestionClosed: _closed,
    r.Answered: _answered,
    r.Landed: _landed,
}
