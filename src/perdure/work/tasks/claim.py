"""Claims the next run for a worker: chosen and claimed in one commit, under the locks of the queue's limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.journal.queue_rules import SPACE, QueueLimits, rules_of
from perdure.run.lifecycle import ClaimedRun, ClaimRun
from perdure.store.base import Script, Statement
from perdure.store.rows import ReadyTaskRow, first_number

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

CANDIDATES = 32
"""How many runs a server offers per query. If others claim all of them, the worker looks again."""

_ENCODER = msgspec.json.Encoder()


class TakeRun(ClaimRun):
    """Claims the next run of a queue, if one may start now."""

    def __init__(self, engine: Engine, queue: str, names: Sequence[str]) -> None:
        super().__init__(engine, "", None, 0)
        self.lane = 0
        self._queue = queue
        self._names = names_of(names)
        self.attempts = 0
        """How many attempts came before this one."""

    @property
    def run_id(self) -> str:
        """The run that was claimed."""
        return self._id

    def script(self) -> Script[Any]:
        """Claim a run, or return None."""
        task = yield from self._choose()
        if task is None:
            return None
        return (yield from self._claim(task))

    def _claim(self, task: ReadyTaskRow) -> Script[ClaimedRun]:
        self._id, self.task, self.attempts = task.run, task.task, task.attempts
        self._input, self._digest, self._parent, self._objects = task.input, task.digest, task.parent, ()
        return (yield from super().script())

    def _choose(self) -> Script[ReadyTaskRow | None]:
        [entry, found] = yield [
            Statement("get_agent_state", (self._owner, SPACE, self._queue)),
            self._next_statement(0),
        ]
        rules = next((rules_of(value) for value, *_ in entry), QueueLimits())
        if rules.paused or not found:
            return None
        if not rules.limits:
            return ReadyTaskRow(*found[0])
        return (yield from self._choose_within(rules))

    def _choose_within(self, rules: QueueLimits) -> Script[ReadyTaskRow | None]:
        """Choose a run from a queue with limits. A lock serializes the workers."""
        queue = (self._owner, self._queue)
        [_, [(running,)], pace] = yield [
            Statement("lock_namespace", (self._owner, f"queue {self._queue}")),
            Statement("count_running", queue),
            Statement("get_rate_limit", queue),
        ]
        now = self._engine.store.clock.wall_ms()
        interval = rules.rate_ms / rules.rate if rules.rate else 0.0
        # After an idle period, a full rate's worth of runs may start at once; then they are spaced evenly.
        earliest = first_number(pace) - (rules.rate_ms - interval) if pace and rules.rate else 0
        if (rules.concurrency and running >= rules.concurrency) or now < earliest:
            return None
        [found] = yield [self._next_statement(rules.per_key)]
        if not found:
            return None
        if rules.rate:
            begun = max(now, first_number(pace))
            yield [Statement("set_rate_limit", (*queue, round(begun + interval)))]
        return ReadyTaskRow(*found[0])

    def _next_statement(self, per_key: int) -> Statement:
        now = self._engine.store.clock.wall_ms()
        return Statement("next_tasks", (self._owner, self._queue, now, self._names, per_key, CANDIDATES))


class TakeOverRun(TakeRun):
    """Claims a run whose worker is gone."""

    def __init__(self, engine: Engine, run_id: str) -> None:
        super().__init__(engine, "", ())
        self._wanted = run_id

    def _choose(self) -> Script[ReadyTaskRow | None]:
        [found] = yield [Statement("lock_held_task", (self._owner, self._wanted))]
        return ReadyTaskRow(*found[0]) if found else None


def names_of(names: Sequence[str]) -> str:
    """Encode task names for SQL statements."""
    return _ENCODER.encode(sorted(names)).decode()
