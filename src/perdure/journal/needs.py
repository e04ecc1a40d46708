"""Which entries of a stream somebody still needs, and what becomes of the views without the others.

Whatever is not known here is needed: a new kind of entry or of landing is kept until it gets a rule. What is not needed
once is never needed again, so that a plan made beside others at work stays right until it is carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import records as r
from ..store.base import Statement, Store

_CALLS = (r.StepDone, r.StepFailed, r.AttemptFailed, r.ItemDone, r.Wrote)
_EFFECTS = (r.EffectIntended, r.EffectAgain, r.EffectDone, r.EffectFailed, r.EffectDoubted)
_RUNS = (r.RunResumed, r.RunFailed, r.RunInterrupted)
_QUESTIONS = (r.QuestionAsked, r.QuestionClosed, r.WaitBegan, r.WaitEnded)
PASSING = frozenset({*_CALLS, *_EFFECTS, *_RUNS, *_QUESTIONS, r.Landed, r.Folded})
"""Entries that only matter to a run at work, or for what they have landed. The first and the last one of a run are not
among them: they have its input and its result; nor are answers."""

_WRITES = frozenset({r.Op.SET, r.Op.DELETE, r.Op.MESSAGE, r.Op.RESULT, r.Op.CHECKPOINT, r.Op.USAGE})
"""Writes whose outcome is carried with the run, or that are only for replay."""

OF_RUNS = frozenset({r.Spent, r.Replayed})
"""The same of runs only: what they say of a run is carried with it."""

Place = tuple[str, int, str, int]
"""Which table; owner, name and version of a checkpoint or an artifact."""


class Needs:
    """Asks entry by entry, in their order, and notes what goes."""

    def __init__(self, store: Store, horizon: int, *, of_run: bool) -> None:
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

    def keeps(self, record: r.Record) -> bool:
        """Whether an entry stays."""
        writes = (*getattr(record, "writes", ()), *filter(None, [getattr(record, "write", None)]))
        if type(record) not in self._passing or any(write.op not in _WRITES for write in writes):
            return True
        landed: Sequence[r.Landing] = getattr(record, "landed", ())
        changes: list[Statement] = []
        self._passed, self._going = [], []
        for it in landed:
            rule = _RULES.get(type(it))
            if rule is None or not rule(self, it, changes):
                return True
        self.changes += changes
        self._gone.update(self._going)
        for space, (revision, at) in self._passed:
            before = self._since.get(space, (0, 0))
            self._since[space] = max(before[0], revision), max(before[1], at)
        return False

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
}
