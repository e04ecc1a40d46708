"""What is left of a run's entries when some were undone; and what of its past nothing takes back.

A run that went back over some steps has chapters. The code goes through them one after the other on replay, as it did
the first time; only the last one is what the run has now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from .. import records as r

_OF_INTENT = r.EffectAgain | r.EffectDone | r.EffectFailed | r.EffectDoubted
_TAKEN_BACK = r.StepDone | r.StepFailed | r.ItemDone | r.Wrote | r.WaitBegan | r.WaitEnded | r.EffectIntended
"""And what belongs to an effect. Who had the run, when, and what others told it, is not."""


class Chapter(msgspec.Struct):
    """Entries that hold together, until the next time that the code goes back."""

    began: int
    """The entry that began it; 0 for the first."""
    undone: r.Undone | None
    before: int
    """How many of the entries were there when it began."""
    events: list[r.Event]


def chapters(events: Sequence[r.Event]) -> list[Chapter]:
    """The chapters of a run, of which most have one."""
    found = [Chapter(0, None, 0, [])]
    for event in events:
        it = event.record
        if not isinstance(it, r.Undone):
            found[-1].events.append(event)
            continue
        if not it.inside:
            while found[-1].began > it.to:
                found.pop()  # the code will not come to that undo any more
        left = what_is_left(found[-1].events, it)
        if it.inside:
            found.append(Chapter(event.seq, it, len(left), left))
        else:
            found[-1].events = left
            found[-1].before = min(found[-1].before, len(left))
    return found


def effective(events: Sequence[r.Event]) -> Sequence[r.Event]:
    """The entries that hold now."""
    if not any(isinstance(event.record, r.Undone) for event in events):
        return events
    return chapters(events)[-1].events


def what_is_left(events: Sequence[r.Event], undone: r.Undone) -> list[r.Event]:
    """Without those that were taken back."""
    kept = set(undone.kept)
    calls = {event.record.call for event in events if event.seq in kept and isinstance(event.record, r.EffectIntended)}
    return [event for event in events if event.seq <= undone.to or _stays(event, kept, calls)]


def _stays(event: r.Event, kept: set[int], calls: set[r.Call]) -> bool:
    it = event.record
    if isinstance(it, _OF_INTENT):
        return it.intent in kept
    if isinstance(it, r.AttemptFailed):
        return it.call in calls
    return event.seq in kept or not isinstance(it, _TAKEN_BACK)


def beginnings(events: Sequence[r.Event]) -> list[int]:
    """For each step, effect and loop of the run itself, in their order: the last entry before it."""
    found: dict[object, int] = {}
    for event in events:
        it = event.record
        if isinstance(it, r.StepDone | r.StepFailed | r.EffectIntended):
            scope, since, key = it.call.scope, it.since, it.call
        elif isinstance(it, r.AttemptFailed):
            scope, since, key = it.call.scope, event.seq - 1, it.call
        elif isinstance(it, r.ItemDone):
            scope, since, key = it.scope, event.seq - 1, None
        else:
            continue
        found.setdefault(scope.partition(":")[0] if scope else key, since)
    return list(found.values())


# -- what is not taken back -------------------------------------------------------------------------------------------


class Stays(msgspec.Struct, frozen=True):
    """Something that a run did, and that neither forking it nor going back takes back."""

    seq: int
    kind: str
    """`effect`; or what was written to the agent: `state`, `checkpoint`, `artifact`, `event`, `workflow`, `signal`,
    `memory`."""
    what: str

    def __str__(self) -> str:
        return f"{self.kind} {self.what} (entry {self.seq})"


def stays_after(events: Sequence[r.Event], cut: int, apart: Mapping[int, object] | Sequence[int] = ()) -> list[Stays]:
    """What a run did after an entry to the world, and to its agent; without some effects, by their intents."""
    names = {event.seq: event.record.call.name for event in events if isinstance(event.record, r.EffectIntended)}
    found: list[Stays] = []
    for event in events:
        it = event.record
        if event.seq <= cut:
            continue
        if isinstance(it, r.EffectDone) and it.intent not in apart:
            found.append(Stays(event.seq, "effect", names[it.intent]))
        writes = (it.write,) if isinstance(it, r.Wrote) else getattr(it, "writes", ())
        found += [Stays(event.seq, "event", write.key) for write in writes if write.op == r.Op.EVENT]
        found += [Stays(event.seq, *_in_words(landed)) for landed in getattr(it, "landed", ())]
        if isinstance(it, r.MemoryKept | r.MemorySeen):
            found.append(Stays(event.seq, "memory", it.id))
    return found


def _in_words(it: r.Landing) -> tuple[str, str]:
    if isinstance(it, r.StateChange):
        return "state", f"{it.space}/{it.key}, version {it.version}" + ("" if it.value else ", deleted")
    if isinstance(it, r.Happened):
        return "event", it.kind
    if isinstance(it, r.SignalSent):
        return "signal", f"{it.name} to run {it.run}"
    if isinstance(it, r.WorkflowMade | r.WorkflowMoved):
        return "workflow", f"{it.name}, version {it.version}"
    if isinstance(it, r.OrderGiven):
        return "order", f"{it.order} to the run of stream {it.stream}"
    if isinstance(it, r.TaskQueued | r.TaskAgain):
        return "task", f"run {it.run} queued"
    if isinstance(it, r.ThreadPut | r.ThreadWrote | r.ThreadDropped):
        return "thread", it.thread + (", deleted" if isinstance(it, r.ThreadDropped) else "")
    kind = "checkpoint" if isinstance(it, r.CheckpointMade | r.CheckpointDropped) else "artifact"
    dropped = ", deleted" if isinstance(it, r.CheckpointDropped | r.ArtifactDropped) else ""
    return kind, f"{it.name}, version {it.version}{dropped}"
