"""Runs of queues that no worker is executing, and why."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from perdure.platform.process import Holder, proven_dead
from perdure.store.base import Store
from perdure.work.tasks.queues import QueueInfo, list_queues

UNSERVED_MS = 60_000
"""A live worker takes a run within milliseconds: an idle queue with a run this old has no worker."""


class StalledRuns(msgspec.Struct, frozen=True):
    """Runs of a queue that stand still for one reason."""

    queue: QueueInfo
    reason: str
    """`dead`: they have failed for good. `paused`: the queue is. `unserved`: no worker takes them."""
    count: int
    since: int
    """When the oldest of them was queued."""
    run: str
    """One of them."""


def find_stalled(store: Store, owner: int) -> Iterator[StalledRuns]:
    """Yield what stands still in the queues of an agent."""
    queues = {info.name: info for info in list_queues(store, owner)}
    served = _find_served_queues(store, owner)
    now = store.clock.wall_ms()
    for name, state, count, since, run in store.read("stalled_tasks", (owner, now)):
        queue = queues.get(name) or QueueInfo(name)
        idle = name not in served and now - since > UNSERVED_MS and not queue.rules.rate
        reason = "dead" if state == "dead" else "paused" if queue.paused else "unserved" if idle else ""
        if reason:
            yield StalledRuns(queue, reason, count, since, run)


def _find_served_queues(store: Store, owner: int) -> set[str]:
    """Return the queues that have a run open in a live worker."""
    return {
        queue
        for _, _, queue, _, holder, boot, namespace, pid, started, host, _, left in store.read(
            "held_tasks", (owner, store.clock.boot_ms())
        )
        if holder and left > 0 and not proven_dead(Holder(boot, namespace, pid, started, host), store.one_host)
    }
