"""Runs that are handed to workers: queued inside the commit, once for each id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from .. import records
from ..errors import InputChanged, NothingToRetry
from ..store.base import Script, Statement, Store


class Start(msgspec.Struct, frozen=True):
    """A run that is to be queued, unless there is one of that id and input."""

    queued: records.TaskQueued
    objects: Sequence[Statement] = ()

    @property
    def place(self) -> tuple[int, str, str]:
        return (self.queued.owner, self.queued.agent, self.queued.run)


class Again(msgspec.Struct, frozen=True):
    """A dead one that is to be queued again."""

    place: tuple[int, str, str]
    """The stream and the name of the agent, and the run."""
    by: str


def lock_of(owner: int, run: str) -> Statement:
    """Whoever makes a run, or queues it, does so alone."""
    return Statement("lock_space", (owner, f"task {run}"))


def decided_starts(starts: Sequence[Start | Again], _: Store) -> Script[tuple[list[records.Landing], list[Statement]]]:
    """What they come to, under the locks of their ids; and the objects that go with it."""
    places = sorted({it.place for it in starts})
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
    for it in starts:
        if isinstance(it, Again):
            landed[it.place] = _again(it, tasks[it.place])
            continue
        queued = _queued(it, runs[it.place], tasks[it.place], landed.get(it.place))
        if queued is not None:
            landed[it.place] = queued
            objects += it.objects
    return list(landed.values()), objects


_OVER = (records.Status.FINISHED, records.Status.CANCELLED)


def _queued(
    it: Start, run: Sequence[tuple[Any, ...]], task: Sequence[tuple[Any, ...]], before: records.Landing | None
) -> records.TaskQueued | None:
    """The entry, or None when the id stands for the same run already."""
    wanted = it.queued
    known = [row[4] for row in run] + [row[11] for row in task]
    known += [before.digest] if isinstance(before, records.TaskQueued) else []
    if any(digest != wanted.digest for digest in known):
        raise InputChanged(
            f"run {wanted.run!r} was started with another input",
            hint="the id names the run: give the same input to find it, or another id to start another one",
        )
    if task or before is not None or any(row[3] in _OVER for row in run):
        return None
    failed = [row[9] for row in run if row[3] == records.Status.FAILED]
    return msgspec.structs.replace(wanted, again=failed[0]) if failed else wanted


def _again(it: Again, task: Sequence[tuple[Any, ...]]) -> records.TaskAgain:
    owner, agent, run = it.place
    state = task[0][5] if task else ""
    if state != "dead":
        told = f"is {state}" if state else "is not one that workers do, or has finished"
        raise NothingToRetry(f"run {run!r} {told}: only a dead one is queued again")
    return records.TaskAgain(owner, agent, run, task[0][8], it.by)
