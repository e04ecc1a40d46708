"""Home: what needs a person now, what is running, what it costs, and how things stand."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.run.inbox import list_inbox
from perdure.run.listing import list_runs, run_counts
from perdure.run.usage import DayOfMoney, money_by_day
from perdure.server.page.integrity import VerifyState, last_verify
from perdure.server.page.page import Page, PageCall, Shown
from perdure.server.views import format_ms
from perdure.store import file_of
from perdure.store.base import Store
from perdure.work.tasks.queues import QueueInfo, list_queues
from perdure.work.tasks.stalled import find_stalled

ROWS = 8
DAYS = 30
CHART_HEIGHT = 100


class DayBar(msgspec.Struct, frozen=True):
    """One day of the chart: heights in its own units."""

    money: DayOfMoney
    spent: float
    saved: float


class AgentQueue(msgspec.Struct, frozen=True):
    """A queue that needs a look: somebody waits in it, or has died."""

    agent: str
    queue: QueueInfo
    unserved: bool
    """Whether runs wait in it that no worker takes."""


async def show_home(call: PageCall) -> Shown:
    """Show everything at once."""
    found: Shown = await call.read(_read, call.principal.agent)
    if call.principal.agent is None:
        found["health"].append(_describe_verify(last_verify(await call.store())))
    return {"title": "Home", **found}


def _read(store: Store, agent: str | None) -> dict[str, Any]:
    counts = Counter[str]()
    for (whose, status), count in run_counts(store).items():
        if agent in (None, whose):
            counts[status.value] += count
    days = money_by_day(store, agent or "", DAYS)
    return {
        "counts": counts,
        "questions": list_inbox(store, agent or "", limit=ROWS),
        "broken": [
            *list_runs(store, agent, "crashed", limit=ROWS),
            *list_runs(store, agent, "failed", limit=ROWS),
        ],
        "running": list_runs(store, agent, "running", limit=ROWS),
        "recent": list_runs(store, agent, limit=ROWS),
        "days": _chart(days),
        "spent": sum(day.spent for day in days),
        "saved": sum(day.saved for day in days),
        "spared": sum(day.steps for day in days),
        "queues": _find_queues(store, agent),
        "health": _health(store),
    }


def _chart(days: Sequence[DayOfMoney]) -> list[DayBar]:
    most = max([0.0, *(day.spent for day in days), *(day.saved for day in days)])
    scale = CHART_HEIGHT / most if most else 0.0
    return [DayBar(day, round(day.spent * scale, 2), round(day.saved * scale, 2)) for day in days]


def _find_queues(store: Store, agent: str | None) -> list[AgentQueue]:
    owners = [(name, stream) for name, stream, *_ in store.read("all_agents") if agent in (None, name)]
    found = []
    for name, owner in owners[:ROWS]:
        unserved = {one.queue.name for one in find_stalled(store, owner) if one.reason == "unserved"}
        found += [AgentQueue(name, queue, queue.name in unserved) for queue in list_queues(store, owner)]
    waiting = (one for one in found if one.queue.queued or one.queue.parked or one.queue.dead or one.queue.paused)
    return sorted(waiting, key=lambda one: not one.unserved)


def _describe_verify(check: VerifyState | None) -> tuple[str, str, bool]:
    """Return what is known of the last check of the journal."""
    if check is None:
        return "Journal", "not verified since the server started", True
    if not check.ended:
        return "Journal", f"being verified, {100 * check.done // max(1, check.total)}%", True
    at = format_ms(check.ended)[:16].replace("T", " ")
    if check.report is None:
        return "Journal", f"not verified at {at} UTC: {check.problem}", False
    sound = check.report.ok
    return "Journal", f"{'intact' if sound else 'damaged'} at {at} UTC", sound


def _health(store: Store) -> list[tuple[str, str, bool]]:
    """Return facts about the store, and whether each is well."""
    refusal = store.fenced or store.rolled_back
    found = [
        ("Writes", store.read_only or (refusal.message if refusal else "accepted"), not (store.read_only or refusal))
    ]
    path = file_of(store.url)
    if path is not None:
        free = shutil.disk_usage(os.path.dirname(path)).free
        size = sum(os.path.getsize(path + end) for end in ("", "-wal") if os.path.exists(path + end))
        found += [("Store", f"{size / 1e6:,.1f} MB", True), ("Free disk", f"{free // 10**9:,} GB", free > 10**9)]
    return found


PAGE = Page(path="/", show=show_home, template="home.html", live=True, section="Home")
