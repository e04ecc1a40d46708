"""Runs for workers, queued inside the commit, once per id."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure import records
from perdure.errors import InputChanged, NothingToRetry, RunDeleted
from perdure.store.base import Script, Statement, Store
from perdure.store.rows import RunRow, TaskRow, run_in, task_in
from perdure.values.hints import insert_run_id


class QueueRun(msgspec.Struct, frozen=True):
    """A run to queue, unless one with this id and input exists."""

    queued: records.TaskQueued
    objects: Sequence[Statement] = ()

    @property
    def place(self) -> tuple[int, str, str]:
        return (self.queued.owner, self.queued.agent, self.queued.run)


class RequeueRun(msgspec.Struct, frozen=True):
    """A dead run to queue again."""

    place: tuple[int, str, str]
    """Stream of the agent, name of the agent, id of the run."""
    by: str


def lock_of(owner: int, run: str) -> Statement:
    """The lock for creating or queueing a run."""
    return Statement("lock_namespace", (owner, f"task {run}"))


def decide_starts(
    starts: Sequence[QueueRun | RequeueRun], _: Store
) -> Script[tuple[list[records.AgentChange], list[Statement]]]:
    """Decide under the locks of the run ids; return the changes and the objects they need."""
    places = sorted({write.place for write in starts})
    rows = yield [
        *(lock_of(owner, run) for owner, _, run in places),
        *(Statement("get_run", (agent, run)) for _, agent, run in places),
        *(Statement("get_task", (owner, run)) for owner, _, run in places),
    ]
    found = rows[len(places) :]
    runs = {place: run_in(run) for place, run in zip(places, found[: len(places)], strict=True)}
    tasks = {place: task_in(task) for place, task in zip(places, found[len(places) :], strict=True)}
    landed: dict[tuple[int, str, str], records.TaskQueued | records.TaskAgain] = {}
    objects: list[Statement] = []
    for start in starts:
        if isinstance(start, RequeueRun):
            landed[start.place] = _make_requeued(start, tasks[start.place])
            continue
        queued = _make_queued(start, runs[start.place], tasks[start.place], landed.get(start.place))
        if queued is not None:
            landed[start.place] = queued
            objects += start.objects
    return list(landed.values()), objects


_OVER = (records.RunStatus.FINISHED, records.RunStatus.CANCELLED)


def _make_queued(
    start: QueueRun, run: RunRow | None, task: TaskRow | None, before: records.AgentChange | None
) -> records.TaskQueued | None:
    """Return the record, or None if the run exists."""
    wanted = start.queued
    if run is not None and run.status == records.RunStatus.ERASED:
        raise RunDeleted(f"run {wanted.run!r} was deleted with its conversation")
    known = [run.input_digest] if run is not None else []
    known += [one.digest for one in (task, before) if isinstance(one, TaskRow | records.TaskQueued)]
    if any(digest != wanted.digest for digest in known):
        raise InputChanged(
            f"run {wanted.run!r} was started with another input",
            hint="the id names the run: give the same input to find it, or another id to start another one",
        )
    if task is not None or before is not None or (run is not None and run.status in _OVER):
        return None
    failed = run is not None and run.status == records.RunStatus.FAILED
    return msgspec.structs.replace(wanted, again=run.outcome) if run is not None and failed else wanted


def _make_requeued(start: RequeueRun, task: TaskRow | None) -> records.TaskAgain:
    owner, agent, run = start.place
    if task is None or task.state != "dead":
        told = f"is {task.state}" if task is not None else "is not one that workers do, or has finished"
        text = f"run {run!r} {told}: only a dead one is queued again"
        raise NothingToRetry(text, hint=insert_run_id(NothingToRetry.hint, run))
    return records.TaskAgain(owner, agent, run, task.failed_seq, start.by)
