"""What `perdure doctor` looks at in the queues: runs that are dead, and runs that nobody takes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from ..process import Holder, proven_dead
from ..tasks.queues import QueueInfo, list_queues
from .checkup import Checked, Level
from .output import ago, counted

if TYPE_CHECKING:
    from ..store.base import Store

UNSERVED_MS = 60_000
"""A worker that is there takes a run within milliseconds: what waits for so long while nothing runs has none."""


class Left(msgspec.Struct, frozen=True):
    """Runs of a queue that nobody is at work on."""

    count: int
    since: int
    run: str
    """One of them."""


def queues(store: Store, options: str) -> Iterator[Checked]:
    """The queues of all agents; `options` lead a printed command to this store."""
    total = 0
    for agent, owner, *_ in (row for row in store.read("all_agents") if not row[4]):
        rules = {it.name: it for it in list_queues(store, owner)}
        total += len(rules)
        left = {
            (queue, state): Left(count, since, run)
            for queue, state, count, since, run in store.read("left_tasks", (owner, store.clock.wall_ms()))
        }
        served = _served(store, owner)
        whose = f" --agent {shlex.quote(agent)}{options}"
        for (queue, state), it in left.items():
            if state == "dead":
                yield _dead(queue, agent, it, whose)
            elif rules[queue].paused:
                yield _paused(queue, agent, it, whose)
            elif queue not in served and store.clock.wall_ms() - it.since > UNSERVED_MS and not rules[queue].rules.rate:
                yield _unserved(store, rules[queue], agent, it)
    if total:
        yield Checked(Level.OK, "queues", counted(total, "queue"))


def _served(store: Store, owner: int) -> set[str]:
    """The queues of which a worker that lives has something at work."""
    return {
        queue
        for _, _, queue, _, holder, boot, namespace, pid, started, host, _, left in store.read(
            "held_tasks", (owner, store.clock.boot_ms())
        )
        if holder and left > 0 and not proven_dead(Holder(boot, namespace, pid, started, host), store.one_host)
    }


def _dead(queue: str, agent: str, it: Left, whose: str) -> Checked:
    text = f"{counted(it.count, 'run')} of queue {queue} of {agent} failed for good, and nobody tries again"
    fix = f"perdure show {shlex.quote(it.run)}{whose}  # then perdure retry or cancel {shlex.quote(it.run)}"
    return Checked(Level.PROBLEM, "queues", text, fix)


def _paused(queue: str, agent: str, it: Left, whose: str) -> Checked:
    text = f"queue {queue} of {agent} is paused, and {counted(it.count, 'run waits', 'runs wait')} in it"
    return Checked(Level.NOTE, "queues", text, f"perdure queues resume {shlex.quote(queue)}{whose}")


def _unserved(store: Store, queue: QueueInfo, agent: str, it: Left) -> Checked:
    oldest = f"the oldest was queued {ago(it.since, store.clock.wall_ms())}"
    text = f"{counted(it.count, 'run')} of queue {queue.name} of {agent}: {oldest}, and no worker takes it"
    tasks = ", ".join(sorted({*queue.waiting_tasks}))
    fix = f"perdure worker MODULE:AGENT --queue {shlex.quote(queue.name)}  # one that has {tasks}"
    return Checked(Level.PROBLEM, "queues", text, fix)
