"""Runs for workers, queued inside the commit, once per id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure import records
from perdure.errors import InputChanged, NothingToRetry, RunDeleted
from perdure.store.base import Script, Statement, Store
from perdure.values.hints import for_run


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


def decided_starts(
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
    runs = dict(zip(places, found[: len(places)], strict=True))
    tasks = dict(zip(places, found[len(places) :], strict=True))
    landed: dict[tuple[int, str, str], records.TaskQueued | records.TaskAgain] = {}
    objects: list[Statement] = []
    for start in starts:
        if isinstance(start, RequeueRun):
            landed[start.place] = _again(start, tasks[start.place])
            continue
        queued = _queued(start, runs[start.place], tasks[start.place], landed.get(start.place))
        if queued is not None:
            landed[start.place] = queued
            objects += start.objects
    return list(landed.values()), objects


_OVER = (records.RunStatus.FINISHED, records.RunStatus.CANCELLED)


def _queued(
    start: QueueRun, run: Sequence[tuple[Any, ...]], task: Sequence[tuple[Any, ...]], before: records.AgentChange | None
) -> records.TaskQueued | None:
    """Return the record, or None if the run exists."""
    wanted = start.queued
    if any(row[3] == records.RunStatus.ERASED for row in run):
        raise RunDeleted(f"run {wanted.run!r} was deleted with its conversation")
    known = [row[4] for row in run] + [row[11] for row in task]
    known += [before.digest] if isinstance(before, records.TaskQueued) else []
    if any(digest != wanted.digest for digest in known):
        raise InputChanged(
            f"run {wanted.run!r} was started with another input",
            hint="the id names the run: give the same input to find it, or another id to start another one",
        )
    if task or before is not None or any(row[3] in _OVER for row in run):
        return None
    failed = [row[9] for row in run if row[3] == records.RunStatus.FAILED]
    return msgspec.structs.replace(wanted, again=failed[0]) if failed else wanted


def _again(start: RequeueRun, task: Sequence[tuple[Any, ...]]) -> records.TaskAgain:
    owner, agent, run = start.place
    state = task[0][5] if task else ""
    if state != "dead":
        told = f"is {state}" if state else "is not one that workers do, or has finished"
        text = f"run {run!r} {told}: only a dead one is queued again"
        raise NothingToRetry(text, hint=for_run(NothingToRetry.hint, run))
    return records.TaskAgain(owner, agent, run, task[0][8], start.by)
