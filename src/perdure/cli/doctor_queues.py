"""Checks of `perdure doctor` on queues: dead runs, and runs that no worker takes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from perdure.cli.doctor_environment import CheckLevel, CheckResult
from perdure.cli.output import format_age, format_count
from perdure.platform.process import Holder, proven_dead
from perdure.work.tasks.queues import QueueInfo, list_queues

if TYPE_CHECKING:
    from perdure.store.base import Store

UNSERVED_MS = 60_000
"""A live worker takes a run within milliseconds: an idle queue with a run this old has no worker."""


class UnclaimedRuns(msgspec.Struct, frozen=True):
    """Runs of a queue that no worker is executing."""

    count: int
    since: int
    run: str
    """One of them."""


def queues(store: Store, options: str) -> Iterator[CheckResult]:
    """Check the queues of all agents. `options` is appended to printed commands."""
    total = 0
    for agent, owner in [(name, stream) for name, stream, _, _, gone in store.read("all_agents") if not gone]:
        rules = {info.name: info for info in list_queues(store, owner)}
        total += len(rules)
        left = {
            (queue, state): UnclaimedRuns(count, since, run)
            for queue, state, count, since, run in store.read("stalled_tasks", (owner, store.clock.wall_ms()))
        }
        served = _find_served_queues(store, owner)
        whose = f" --agent {shlex.quote(agent)}{options}"
        for (queue, state), backlog in left.items():
            if state == "dead":
                yield _report_dead(queue, agent, backlog, whose)
            elif rules[queue].paused:
                yield _report_paused(queue, agent, backlog, whose)
            elif (
                queue not in served
                and store.clock.wall_ms() - backlog.since > UNSERVED_MS
                and not rules[queue].rules.rate
            ):
                yield _report_unserved(store, rules[queue], agent, backlog)
    if total:
        yield CheckResult(CheckLevel.OK, "queues", format_count(total, "queue"))


def _find_served_queues(store: Store, owner: int) -> set[str]:
    """Return the queues that have a run open in a live worker."""
    return {
        queue
        for _, _, queue, _, holder, boot, namespace, pid, started, host, _, left in store.read(
            "held_tasks", (owner, store.clock.boot_ms())
        )
        if holder and left > 0 and not proven_dead(Holder(boot, namespace, pid, started, host), store.one_host)
    }


def _report_dead(queue: str, agent: str, backlog: UnclaimedRuns, whose: str) -> CheckResult:
    text = f"{format_count(backlog.count, 'run')} of queue {queue} of {agent} failed for good and will not be retried"
    fix = f"perdure show {shlex.quote(backlog.run)}{whose}  # then perdure retry or cancel {shlex.quote(backlog.run)}"
    return CheckResult(CheckLevel.PROBLEM, "queues", text, fix)


def _report_paused(queue: str, agent: str, backlog: UnclaimedRuns, whose: str) -> CheckResult:
    text = f"queue {queue} of {agent} is paused, and {format_count(backlog.count, 'run waits', 'runs wait')} in it"
    return CheckResult(CheckLevel.NOTE, "queues", text, f"perdure queues resume {shlex.quote(queue)}{whose}")


def _report_unserved(store: Store, queue: QueueInfo, agent: str, backlog: UnclaimedRuns) -> CheckResult:
    oldest = f"the oldest was queued {format_age(backlog.since, store.clock.wall_ms())}"
    text = (
        f"{format_count(backlog.count, 'run')} of queue {queue.name} of {agent}: {oldest}, and no worker has taken it"
    )
    tasks = ", ".join(sorted({*queue.waiting_tasks}))
    fix = f"perdure worker MODULE:AGENT --queue {shlex.quote(queue.name)}  # one that has {tasks}"
    return CheckResult(CheckLevel.PROBLEM, "queues", text, fix)
