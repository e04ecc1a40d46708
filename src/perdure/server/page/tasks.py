"""Tasks: queues with their limits, and the processes that execute runs."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.run.listing import RunSummary, list_runs
from perdure.server.page.of_agent import list_names
from perdure.server.page.page import Page, PageCall, Shown
from perdure.store.base import Store
from perdure.work.tasks.queues import QueueInfo, list_queues

RUNS = 500
"""Running runs that are looked at for the processes that execute them."""


class QueueLine(msgspec.Struct, frozen=True):
    """A queue and whose it is."""

    agent: str
    queue: QueueInfo

    @property
    def limits(self) -> str:
        """Its limits in words."""
        rules = self.queue.rules
        parts = [f"{rules.concurrency} at a time"] if rules.concurrency else []
        parts += [f"{rules.per_key} per key"] if rules.per_key else []
        parts += [f"{rules.rate} in {rules.rate_ms / 1000:g} s"] if rules.rate else []
        return ", ".join(parts)

    @property
    def tasks(self) -> list[str]:
        """The tasks that wait for a worker."""
        return sorted(set(self.queue.waiting_tasks))


class WorkerLine(msgspec.Struct, frozen=True):
    """A process that executes runs."""

    name: str
    runs: list[RunSummary]


async def show_tasks(call: PageCall) -> Shown:
    """Show queues and processes."""
    found: Shown = await call.read(_read, await list_names(call), call.principal.agent)
    return {"title": "Tasks", **found}


def _read(store: Store, names: list[str], only: str | None) -> dict[str, Any]:
    owners = {name: stream for name, stream, *_ in store.read("all_agents")}
    queues = [QueueLine(name, queue) for name in names for queue in list_queues(store, owners[name])]
    workers: dict[str, WorkerLine] = {}
    for run in list_runs(store, only, "running", limit=RUNS):
        if run.holder and run.agent in owners:
            workers.setdefault(run.holder, WorkerLine(run.holder, [])).runs.append(run)
    return {"queues": queues, "workers": list(workers.values()), "dead": sum(line.queue.dead for line in queues)}


PAGE = Page(path="/tasks", show=show_tasks, template="tasks.html", live=True, section="Tasks")
