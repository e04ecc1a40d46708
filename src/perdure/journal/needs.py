"""Which entries of a stream somebody still needs, and what becomes of the views without the others.

Whatever is not known here is needed: a new kind of entry or of landing is kept until it gets a rule. What is not needed
once is never needed again, so that a plan made beside others at work stays right until it is carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from .. import records as r
from ..store.base import Statement, Store
from .keeping import OURS

_CALLS = (r.StepDone, r.StepFailed, r.AttemptFailed, r.ItemDone, r.Wrote)
_EFFECTS = (r.EffectIntended, r.EffectAgain, r.EffectDone, r.EffectFailed, r.EffectDoubted)
_RUNS = (
    r.RunResumed,
    r.RunFailed,
    r.RunInterrupted,
    r.RunPaused,
    r.RunReleased,
    r.CleanupBegan,
    r.TaskParked,
    r.Undone,
)
_QUESTIONS = (r.QuestionAsked, r.QuestionClosed, r.WaitBegan, r.WaitEnded)
PASSING = frozenset({*_CALLS, *_EFFECTS, *_RUNS, *_QUESTIONS, r.Landed, r.Folded})
"""Entries that only matter to a run at work, or for what they have landed. The first and the last one of a run are not
among them: they have its input and its result; nor are answers."""

_WRITES = frozenset(
    {
        r.Op.SET,
        r.Op.DELETE,
        r.Op.MESSAGE,
        r.Op.PIN,
        r.Op.COMPACT,
        r.Op.RESULT,
        r.Op.CHECKPOINT,
        r.Op.USAGE,
        r.Op.EVENT,
    }
)
"""Writes whose outcome is carried with the run, or that are only for replay; of events there is more to say."""

_Event = tuple[int, str, int]
"""Owner (0: the agent of the run), kind and run of an event."""

OF_RUNS = frozenset({r.Spent, r.Replayed})
"""The same of runs only: what they say of a run is carried with it."""

EVENTS = f"{OURS}events"
"""The floors of an agent's events are kept with those of its state, under names that begin so."""

Place = tuple[str, int, str, int]
"""Which table; owner, name and version of a checkpoint or an artifact."""


class Noted(msgspec.Struct, frozen=True):
    """Which events may go."""

    writer: int
    """The agent whose streams are looked at."""
    before: dict[int, tuple[int, int, int]]
    """By agent: those of entries below this time, stream and number."""
    arrived: dict[int, int]
    """By agent with replays: what arrives later than this was in none of them, whatever its time."""
    finished: frozenset[int]
    """Runs whose events may go."""


class Needs:
    """Asks entry by entry, in their order, and notes what goes."""

    def __init__(self, store: Store, horizon: int, stream: int, *, of_run: bool, noted: Noted | None = None) -> None:
        self._stream = stream
        self._noted = noted
        self._newest: dict[tuple[int, str], tuple[int, int]] = {}
        self._passing = PASSING | OF_RUNS if of_run else PASSING
        self._store = store
        self._horizon = horizon
        self.changes: list[Statement] = []
        """What takes the rows out of the views that belong to what goes."""
        self._since: dict[tuple[int, str], tuple[int, int]] = {}
        self._gone: set[Place] = set()
        """Checkpoints and artifacts whose making goes."""
        # The same of the entry that is being asked about, which may stay after all.
        self._passed: list[tuple[tuple[int, str], tuple[int, int]]] = []
        self._going: list[Place] = []

    @property
    def floors(self) -> tuple[r.Floor, ...]:
        """From when on the past of each namespace is whole, without what goes."""
        return tuple(r.Floor(*space, *since) for space, since in sorted(self._since.items()))

    def keeps(self, record: r.Record, seq: int, at: int) -> bool:
        """Whether an entry stays."""
        writes = (*getattr(record, "writes", ()), *filter(None, [getattr(record, "write", None)]))
        if type(record) not in self._passing or any(write.op not in _WRITES for write in writes):
            return True
        landed: Sequence[r.Landing] = getattr(record, "landed", ())
        changes: list[Statement] = []
        self._passed, self._going = [], []
        if not self._let_go(_events_in(writes, landed), seq, at, changes):
            return True
        for it in landed:
            if isinstance(it, r.Happened):
                continue
            rule = _RULES.get(type(it))
            if rule is None or not rule(self, it, changes):
                return True
        self.changes += changes
        self._gone.update(self._going)
        for space, (revision, at) in self._passed:
            before = self._since.get(space, (0, 0))
            self._since[space] = max(before[0], revision), max(before[1], at)
        return False

    def _let_go(self, events: Sequence[_Event], seq: int, at: int, changes: list[Statement]) -> bool:
        """Whether all events of an entry may go: old enough, in no run at work, and not the newest of a kind."""
        if not events:
            return True
        noted = self._noted
        if noted is None:
            return False
        owners = set[int]()
        for owner, kind, run in ((owner or noted.writer, kind, run) for owner, kind, run in events):
            if (at, self._stream, seq) >= noted.before.get(owner, (0, 0, 0)) or (run and run not in noted.finished):
                return False
            if self._newest_of(owner, kind) == (self._stream, seq) or self._came_late(noted, owner, seq, at):
                return False
            owners.add(owner)
            self._passed += [((owner, floor_of(name)), (0, at)) for name in ("", kind)]
        changes += [Statement("drop_happenings", (owner, at, self._stream, seq)) for owner in sorted(owners)]
        return True

    def _came_late(self, noted: Noted, owner: int, seq: int, at: int) -> bool:
        """Clocks differ: an event that says that it is old may have come after what replays have kept."""
        if owner not in noted.arrived:
            return False
        rows = self._store.read("arrivals_of", (owner, at, self._stream, seq))
        return any(arrival > noted.arrived[owner] for (arrival,) in rows)

    def _newest_of(self, owner: int, kind: str) -> tuple[int, int]:
        """The entry of the newest event of a kind, which stays: who has followed a kind to its end finds his place."""
        if (owner, kind) not in self._newest:
            rows = self._store.read("newest_happening", (owner, kind))
            self._newest[owner, kind] = (rows[0][0], rows[0][1]) if rows else (0, 0)
        return self._newest[owner, kind]

    def _state(self, it: r.StateChange, changes: list[Statement]) -> bool:
        """A change goes when another took its place before the horizon; the last one of a key never goes."""
        key = (it.owner, it.space, it.key)
        later = self._store.read("history_after", (*key, it.revision))
        if not later or later[0][1] >= self._horizon:
            return False
        changes.append(Statement("drop_history", (*key, it.revision)))
        self._passed.append((key[:2], (later[0][0], later[0][1])))
        return True

    def _made(self, it: r.CheckpointMade | r.ArtifactSaved, changes: list[Statement]) -> bool:
        """The making of a checkpoint goes when it was deleted."""
        look, _, unplace, _ = _TABLES[type(it)]
        place = (it.owner, it.name, it.version)
        rows = self._store.read(look, place)
        if rows and not rows[0][3]:
            return False
        changes.append(Statement(unplace, place))
        self._going.append((look, *place))
        return True

    def _queued(self, it: r.TaskQueued | r.TaskAgain, changes: list[Statement]) -> bool:
        """That a run was queued goes when it is over: then its own entries say all that there is to say."""
        rows = self._store.read("get_run", (it.agent, it.run))
        return bool(rows) and rows[0][3] in (r.Status.FINISHED, r.Status.CANCELLED)

    def _thread(self, it: r.ThreadPut | r.ThreadWrote, changes: list[Statement]) -> bool:
        """A checkpoint of a thread goes when it was dropped, and with it what was written to it; the dropping stays."""
        rows = self._store.read("thread_fate", (it.owner, it.thread, it.ns, it.id))
        return any(it.life < fate for (fate,) in rows)

    def _dropped(self, it: r.CheckpointDropped | r.ArtifactDropped, changes: list[Statement]) -> bool:
        """That it was deleted must be known while its making is there; and its number, until there is a higher one."""
        look, newest, _, remove = _TABLES[type(it)]
        place = (it.owner, it.name, it.version)
        rows = self._store.read(look, place)
        last = self._store.read(newest, place[:2])[0][0]
        known = (look, *place)
        if last <= it.version or (rows and rows[0][0] and known not in self._gone and known not in self._going):
            return False
        changes.append(Statement(remove, place))
        return True


def floor_of(kind: str) -> str:
    """The name of the floor of a kind; an empty one stands for all."""
    return f"{EVENTS}:{kind}"


def _events_in(writes: Sequence[r.Write], landed: Sequence[r.Landing]) -> list[_Event]:
    own = [(0, write.key, 0) for write in writes if write.op == r.Op.EVENT]
    return own + [(it.owner, it.kind, it.run) for it in landed if isinstance(it, r.Happened)]


_OF_CHECKPOINTS = ("get_checkpoint", "last_checkpoint", "unplace_checkpoint", "remove_checkpoint")
_OF_ARTIFACTS = ("artifact_place", "last_artifact", "unplace_artifact", "remove_artifact")
_TABLES: dict[type[r.Record], tuple[str, str, str, str]] = {
    r.CheckpointMade: _OF_CHECKPOINTS,
    r.CheckpointDropped: _OF_CHECKPOINTS,
    r.ArtifactSaved: _OF_ARTIFACTS,
    r.ArtifactDropped: _OF_ARTIFACTS,
}
"""The queries that look at one, at the highest number of a name, and take its entry or all of it away."""

_RULES: dict[type[r.Record], Callable[[Needs, Any, list[Statement]], bool]] = {
    r.StateChange: Needs._state,
    r.CheckpointMade: Needs._made,
    r.CheckpointDropped: Needs._dropped,
    r.ArtifactSaved: Needs._made,
    r.ArtifactDropped: Needs._dropped,
    r.TaskQueued: Needs._queued,
    r.TaskAgain: Needs._queued,
    r.ThreadPut: Needs._thread,
    r.ThreadWrote: Needs._thread,
}
