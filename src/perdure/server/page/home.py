"""Home: what needs a person now, what is running, and how things stand."""

from __future__ import annotations

from collections import Counter
from typing import Any

from perdure.run.inbox import list_inbox
from perdure.run.listing import list_runs, run_counts
from perdure.server.page.page import Page, PageCall, Shown
from perdure.store.base import Store

ROWS = 8


async def show_home(call: PageCall) -> Shown:
    """Show everything at once."""
    found: Shown = await call.read(_read, call.principal.agent)
    return {"title": "Home", **found}


def _read(store: Store, agent: str | None) -> dict[str, Any]:
    counts = Counter[str]()
    for (whose, status), count in run_counts(store).items():
        if agent in (None, whose):
            counts[status.value] += count
    return {
        "counts": counts,
        "questions": list_inbox(store, agent or "", limit=ROWS),
        "broken": [
            *list_runs(store, agent, "crashed", limit=ROWS),
            *list_runs(store, agent, "failed", limit=ROWS),
        ],
        "running": list_runs(store, agent, "running", limit=ROWS),
        "recent": list_runs(store, agent, limit=ROWS),
    }


PAGE = Page(path="/", show=show_home, template="home.html", live=True, section="Home")
