"""Checks of `perdure doctor` on queues: dead runs, and runs that no worker takes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from perdure.cli.doctor_environment import CheckLevel, CheckResult
from perdure.cli.output import format_age, format_count
from perdure.work.tasks.queues import list_queues
from perdure.work.tasks.stalled import StalledRuns, find_stalled

if TYPE_CHECKING:
    from perdure.store.base import Store


def queues(store: Store, options: str) -> Iterator[CheckResult]:
    """Check the queues of all agents. `options` is appended to printed commands."""
    total = 0
    for agent, owner in [(name, stream) for name, stream, _, _, gone in store.read("all_agents") if not gone]:
        total += len(list_queues(store, owner))
        whose = f" --agent {shlex.quote(agent)}{options}"
        for stalled in find_stalled(store, owner):
            if stalled.reason == "dead":
                yield _report_dead(stalled, agent, whose)
            elif stalled.reason == "paused":
                yield _report_paused(stalled, agent, whose)
            else:
                yield _report_unserved(store, stalled, agent)
    if total:
        yield CheckResult(CheckLevel.OK, "queues", format_count(total, "queue"))


def _report_dead(stalled: StalledRuns, agent: str, whose: str) -> CheckResult:
    runs, run = format_count(stalled.count, "run"), shlex.quote(stalled.run)
    text = f"{runs} of queue {stalled.queue.name} of {agent} failed for good and will not be retried"
    fix = f"perdure show {run}{whose}  # then perdure retry or cancel {run}"
    return CheckResult(CheckLevel.PROBLEM, "queues", text, fix)


def _report_paused(stalled: StalledRuns, agent: str, whose: str) -> CheckResult:
    queue, runs = stalled.queue.name, format_count(stalled.count, "run waits", "runs wait")
    text = f"queue {queue} of {agent} is paused, and {runs} in it"
    return CheckResult(CheckLevel.NOTE, "queues", text, f"perdure queues resume {shlex.quote(queue)}{whose}")


def _report_unserved(store: Store, stalled: StalledRuns, agent: str) -> CheckResult:
    queue, runs = stalled.queue, format_count(stalled.count, "run")
    oldest = f"the oldest was queued {format_age(stalled.since, store.clock.wall_ms())}"
    text = f"{runs} of queue {queue.name} of {agent}: {oldest}, and no worker has taken it"
    tasks = ", ".join(sorted({*queue.waiting_tasks}))
    fix = f"perdure worker MODULE:AGENT --queue {shlex.quote(queue.name)}  # one that has {tasks}"
    return CheckResult(CheckLevel.PROBLEM, "queues", text, fix)
