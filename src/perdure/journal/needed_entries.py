"""Decides which entries of a stream are still needed, and how the views change without the others.

Entries and changes of unknown kind are kept until they get a rule here. An unneeded entry never becomes needed again,
so a compaction plan stays valid while other processes work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from perdure import records as r
from perdure.journal.retention_rules import OURS
from perdure.store.base import Statement, Store
from perdure.store.rows import first_number, read_run

_CALLS = (r.StepDone, r.StepFailedEntry, r.AttemptFailed, r.ItemDone, r.Wrote)
_EFFECTS = (r.EffectIntended, r.EffectAgain, r.EffectDone, r.EffectFailed, r.EffectDoubted)
_RUNS = (
    r.RunResumed,
    r.RunFailed,
    r.RunInterrupted,
    r.RunPausedEntry,
    r.RunReleased,
    r.CleanupBegan,
    r.TaskParked,
    r.Undone,
)
_QUESTIONS = (r.QuestionAsked, r.QuestionClosed, r.WaitBegan, r.WaitEnded)
PASSING = frozenset({*_CALLS, *_EFFECTS, *_RUNS, *_QUESTIONS, r.Landed, r.StreamCompacted})
"""Entries that matter only to a running run, or for their agent changes. Answers and a run's first and last entry, with
its input and result, are kept."""

_WRITES = frozenset(
    {
        r.WriteOp.SET,
        r.WriteOp.DELETE,
        r.WriteOp.MESSAGE,
        r.WriteOp.PIN,
        r.WriteOp.COMPACT,
        r.WriteOp.RESULT,
        r.WriteOp.CHECKPOINT,
        r.WriteOp.USAGE,
        r.WriteOp.EVENT,
        r.WriteOp.VALUE,
        r.WriteOp.THREAD,
    }
)
"""Writes that the compaction entry carries, or that only replay needs. Events have further conditions."""

_EventKey = tuple[int, str, int]
"""Owner (0: the agent of the run), kind and run of an event."""

OF_RUNS = frozenset({r.Spent, r.Replayed, r.ReplayDiffered})
"""Entries that may go from streams of runs only: the compaction entry of a run carries their data."""

EVENTS = f"{OURS}events"
"""Floors of events are stored with those of state, under names with this prefix."""

VersionKey = tuple[str, int, str, int]
"""Query, owner, name and version of a checkpoint or an artifact."""


class RemovableEvents(msgspec.Struct, frozen=True):
    """Which events compaction may remove."""

    writer: int
    """The agent whose streams are compacted."""
    before: dict[int, tuple[int, int, int]]
    """By agent: events of entries below this time, stream and number may go."""
    arrived: dict[int, int]
    """By agent with replay snapshots: the last arrival that they include; later arrivals stay, whatever their time."""
    finished: frozenset[int]
    """Runs whose events may go."""


class EntryNeeds:
    """Decides entry by entry, in order, and collects the view changes of those that go."""

    def __init__(
        self, store: Store, horizon: int, stream: int, *, of_run: bool, noted: RemovableEvents | None = None
    ) -> None:
        self._stream = stream
        self._noted = noted
        self._newest: dict[tuple[int, str], tuple[int, int]] = {}
        self._passing = PASSING | OF_RUNS if of_run else PASSING
        self._store = store
        self._horizon = horizon
        self.changes: list[Statement] = []
        """Statements that remove the view rows of the entries that go."""
        self._since: dict[tuple[int, str], tuple[int, int]] = {}
        self._gone: set[VersionKey] = set()
        """Checkpoints and artifacts whose creating entry goes."""
        # Collected for the current entry, which may stay after all.
        self._passed: list[tuple[tuple[int, str], tuple[int, int]]] = []
        self._going: list[VersionKey] = []

    @property
    def floors(self) -> tuple[r.CompactionFloor, ...]:
        """The revision and time from which the history of each namespace is complete."""
        return tuple(r.CompactionFloor(*space, *since) for space, since in sorted(self._since.items()))

    def is_needed(self, record: r.Record, seq: int, at: int) -> bool:
        """Whether an entry stays."""
        writes = (*getattr(record, "writes", ()), *filter(None, [getattr(record, "write", None)]))
        if type(record) not in self._passing or any(write.op not in _WRITES for write in writes):
            return True
        landed: Sequence[r.AgentChange] = getattr(record, "landed", ())
        changes: list[Statement] = []
        self._passed, self._going = [], []
        if not self._may_drop_events(_events_in(writes, landed), seq, at, changes):
            return True
        for landing in landed:
            if isinstance(landing, r.EventAppended):
                continue
            rule = _RULES.get(type(landing))
            if rule is None or not rule(self, landing, changes):
                return True
        self.changes += changes
        self._gone.update(self._going)
        for space, (revision, at) in self._passed:
            before = self._since.get(space, (0, 0))
            self._since[space] = max(before[0], revision), max(before[1], at)
        return False

    def _may_drop_events(self, events: Sequence[_EventKey], seq: int, at: int, changes: list[Statement]) -> bool:
        """Whether all events of an entry may go: old enough, of no running run, and not the newest of a kind."""
        if not events:
            return True
        noted = self._noted
        if noted is None:
            return False
        owners = set[int]()
        for owner, kind, run in ((owner or noted.writer, kind, run) for owner, kind, run in events):
            if (at, self._stream, seq) >= noted.before.get(owner, (0, 0, 0)) or (run and run not in noted.finished):
                return False
            if self._find_newest(owner, kind) == (self._stream, seq) or self._arrived_late(noted, owner, seq, at):
                return False
            owners.add(owner)
            self._passed += [((owner, floor_of(name)), (0, at)) for name in ("", kind)]
        changes += [Statement("drop_events_of_entry", (owner, at, self._stream, seq)) for owner in sorted(owners)]
        return True

    def _arrived_late(self, noted: RemovableEvents, owner: int, seq: int, at: int) -> bool:
        """Whether an event arrived after the replay snapshots; clocks differ, so its time may be older."""
        if owner not in noted.arrived:
            return False
        rows = self._store.read("arrivals_of", (owner, at, self._stream, seq))
        return any(arrival > noted.arrived[owner] for (arrival,) in rows)

    def _find_newest(self, owner: int, kind: str) -> tuple[int, int]:
        """Return the entry of the newest event of a kind. It stays: cursors of readers may point to it."""
        if (owner, kind) not in self._newest:
            rows = self._store.read("newest_event_of_kind", (owner, kind))
            self._newest[owner, kind] = next(((stream, seq) for stream, seq, *_ in rows), (0, 0))
        return self._newest[owner, kind]

    def _state(self, change: r.StateChange, changes: list[Statement]) -> bool:
        """Whether a change may go: it was overwritten before the horizon. The last change of a key stays."""
        key = (change.owner, change.space, change.key)
        later = self._store.read("next_state_change", (*key, change.revision))
        if not later:
            return False
        [(revision, at)] = later
        if at >= self._horizon:
            return False
        changes.append(Statement("drop_state_history", (*key, change.revision)))
        self._passed.append((key[:2], (revision, at)))
        return True

    def _may_drop_version(self, record: r.CheckpointMade | r.ArtifactSaved, changes: list[Statement]) -> bool:
        """Whether the entry that saved a checkpoint or artifact may go: it was deleted."""
        look, _, unplace, _ = _TABLES[type(record)]
        place = (record.owner, record.name, record.version)
        rows = self._store.read(look, place)
        if any(not dropped for *_, dropped in rows):
            return False
        changes.append(Statement(unplace, place))
        self._going.append((look, *place))
        return True

    def _may_drop_queueing(self, record: r.TaskQueued | r.TaskAgain, changes: list[Statement]) -> bool:
        """Whether the queueing of a run may go: the run has ended."""
        run = read_run(self._store, record.agent, record.run)
        return run is not None and r.RunStatus(run.status).over

    def _thread(self, record: r.ThreadPut | r.ThreadWrote, changes: list[Statement]) -> bool:
        """Whether a thread checkpoint and its writes may go: it was dropped. The entry that dropped it stays."""
        rows = self._store.read("thread_min_generation", (record.owner, record.thread, record.ns, record.id))
        return any(record.life < fate for (fate,) in rows)

    def _may_drop_deletion(self, record: r.CheckpointDropped | r.ArtifactDropped, changes: list[Statement]) -> bool:
        """Whether a deletion may go: the entry that saved the version goes too, and a higher version exists."""
        look, newest, _, remove = _TABLES[type(record)]
        place = (record.owner, record.name, record.version)
        rows = self._store.read(look, place)
        last = first_number(self._store.read(newest, place[:2]))
        known = (look, *place)
        if last <= record.version or (first_number(rows) and known not in self._gone and known not in self._going):
            return False
        changes.append(Statement(remove, place))
        return True


def floor_of(kind: str) -> str:
    """Return the name of the floor of an event kind; an empty kind means all."""
    return f"{EVENTS}:{kind}"


def _events_in(writes: Sequence[r.RunWrite], landed: Sequence[r.AgentChange]) -> list[_EventKey]:
    own = [(0, write.key, 0) for write in writes if write.op == r.WriteOp.EVENT]
    return own + [(record.owner, record.kind, record.run) for record in landed if isinstance(record, r.EventAppended)]


_OF_CHECKPOINTS = ("get_checkpoint", "last_checkpoint", "detach_checkpoint", "remove_checkpoint")
_OF_ARTIFACTS = ("artifact_entry", "last_artifact", "detach_artifact", "remove_artifact")
_TABLES: dict[type[r.Record], tuple[str, str, str, str]] = {
    r.CheckpointMade: _OF_CHECKPOINTS,
    r.CheckpointDropped: _OF_CHECKPOINTS,
    r.ArtifactSaved: _OF_ARTIFACTS,
    r.ArtifactDropped: _OF_ARTIFACTS,
}
"""The queries that read a version, read the highest version, detach a version from its entry, and remove it."""

_RULES: dict[type[r.Record], Callable[[EntryNeeds, Any, list[Statement]], bool]] = {
    r.StateChange: EntryNeeds._state,
    r.CheckpointMade: EntryNeeds._may_drop_version,
    r.CheckpointDropped: EntryNeeds._may_drop_deletion,
    r.ArtifactSaved: EntryNeeds._may_drop_version,
    r.ArtifactDropped: EntryNeeds._may_drop_deletion,
    r.TaskQueued: EntryNeeds._may_drop_queueing,
    r.TaskAgain: EntryNeeds._may_drop_queueing,
    r.ThreadPut: EntryNeeds._thread,
    r.ThreadWrote: EntryNeeds._thread,
}
