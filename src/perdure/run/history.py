"""Which of a run's entries still apply after `undo`, and which of its actions no undo or fork reverts.

Each `run.undo()` starts a new chapter. A replay executes the chapters in order, as the first execution did; the last
one is the current history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from perdure import records as r

_OF_INTENT = r.EffectAgain | r.EffectDone | r.EffectFailed | r.EffectDoubted
_TAKEN_BACK = r.StepDone | r.StepFailedEntry | r.ItemDone | r.Wrote | r.WaitBegan | r.WaitEnded | r.EffectIntended
"""Entries that undo removes, with the entries about a removed effect. Lease changes, orders and signals stay."""


class HistorySegment(msgspec.Struct):
    """A chapter: the entries that apply until the next undo."""

    began: int
    """The entry that started it; 0 for the first."""
    undone: r.Undone | None
    before: int
    """How many of its entries precede it."""
    events: list[r.JournalEntry]


def chapters(events: Sequence[r.JournalEntry]) -> list[HistorySegment]:
    """Split a run into its chapters. Most runs have one."""
    found = [HistorySegment(0, None, 0, [])]
    for event in events:
        record = event.record
        if not isinstance(record, r.Undone):
            found[-1].events.append(event)
            continue
        if not record.inside:
            while found[-1].began > record.to:
                found.pop()  # the code will not reach that undo again
        left = drop_undone(found[-1].events, record)
        if record.inside:
            found.append(HistorySegment(event.seq, record, len(left), left))
        else:
            found[-1].events = left
            found[-1].before = min(found[-1].before, len(left))
    return found


def effective(events: Sequence[r.JournalEntry]) -> Sequence[r.JournalEntry]:
    """Return the entries that still apply."""
    if not any(isinstance(event.record, r.Undone) for event in events):
        return events
    return chapters(events)[-1].events


def drop_undone(events: Sequence[r.JournalEntry], undone: r.Undone) -> list[r.JournalEntry]:
    """Return the entries without those that were undone."""
    kept = set(undone.kept)
    calls = {event.record.call for event in events if event.seq in kept and isinstance(event.record, r.EffectIntended)}
    return [event for event in events if event.seq <= undone.to or _stays(event, kept, calls)]


def _stays(event: r.JournalEntry, kept: set[int], calls: set[r.CallIdentity]) -> bool:
    record = event.record
    if isinstance(record, _OF_INTENT):
        return record.intent in kept
    if isinstance(record, r.AttemptFailed):
        return record.call in calls
    return event.seq in kept or not isinstance(record, _TAKEN_BACK)


def start_points(events: Sequence[r.JournalEntry]) -> list[int]:
    """Return the last entry before each step, effect and loop of the run itself, in order."""
    found: dict[object, int] = {}
    for event in events:
        record = event.record
        if isinstance(record, r.StepDone | r.StepFailedEntry | r.EffectIntended):
            scope, since, key = record.call.scope, record.since, record.call
        elif isinstance(record, r.AttemptFailed):
            scope, since, key = record.call.scope, event.seq - 1, record.call
        elif isinstance(record, r.ItemDone):
            scope, since, key = record.scope, event.seq - 1, None
        else:
            continue
        found.setdefault(scope.partition(":")[0] if scope else key, since)
    return list(found.values())


# -- what cannot be reverted ------------------------------------------------------------------------------------------


class Stays(msgspec.Struct, frozen=True):
    """An action of a run that neither a fork nor an undo reverts."""

    seq: int
    kind: str
    """`effect`, or the kind of the write to the agent: `state`, `checkpoint`, `event`, `memory` and so on."""
    what: str

    def __str__(self) -> str:
        return f"{self.kind} {self.what} (entry {self.seq})"


def list_remaining_effects(
    events: Sequence[r.JournalEntry], cut: int, apart: Mapping[int, object] | Sequence[int] = ()
) -> list[Stays]:
    """Return a run's actions after an entry on the world and its agent, without the intents in `apart`."""
    names = {event.seq: event.record.call.name for event in events if isinstance(event.record, r.EffectIntended)}
    found: list[Stays] = []
    for event in events:
        record = event.record
        if event.seq <= cut:
            continue
        if isinstance(record, r.EffectDone) and record.intent not in apart:
            found.append(Stays(event.seq, "effect", names[record.intent]))
        writes = (record.write,) if isinstance(record, r.Wrote) else getattr(record, "writes", ())
        found += [Stays(event.seq, "event", write.key) for write in writes if write.op == r.WriteOp.EVENT]
        found += [Stays(event.seq, *_describe(landed)) for landed in getattr(record, "landed", ())]
        if isinstance(record, r.MemoryKept | r.MemorySeen):
            found.append(Stays(event.seq, "memory", record.id))
    return found


def _describe(change: r.AgentChange) -> tuple[str, str]:
    if isinstance(change, r.StateChange):
        return "state", f"{change.space}/{change.key}, version {change.version}" + ("" if change.value else ", deleted")
    if isinstance(change, r.EventAppended):
        return "event", change.kind
    if isinstance(change, r.SignalSent):
        return "signal", f"{change.name} to run {change.run}"
    if isinstance(change, r.WorkflowMade | r.WorkflowMoved):
        return "workflow", f"{change.name}, version {change.version}"
    if isinstance(change, r.OrderGiven):
        return "order", f"{change.order} to the run of stream {change.stream}"
    if isinstance(change, r.TaskQueued | r.TaskAgain):
        return "task", f"run {change.run} queued"
    if isinstance(change, r.ThreadPut | r.ThreadWrote | r.ThreadDropped):
        return "thread", change.thread + (", deleted" if isinstance(change, r.ThreadDropped) else "")
    kind = "checkpoint" if isinstance(change, r.CheckpointMade | r.CheckpointDropped) else "artifact"
    dropped = ", deleted" if isinstance(change, r.CheckpointDropped | r.ArtifactDropped) else ""
    return kind, f"{change.name}, version {change.version}{dropped}"
