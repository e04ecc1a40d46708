"""What people do with a run: cancel, pause, resume, retry, fork. Each asks first, and says what it will do."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.errors import RequestInvalid
from perdure.journal.lineage import events_of
from perdure.run.branches.points import list_ended_calls
from perdure.run.history import effective
from perdure.run.listing import require_run, summary_of
from perdure.run.prices import NANOS
from perdure.server.page.page import Page, PageCall, Shown
from perdure.server.page.render import link
from perdure.store.base import Store

LISTED = 50
WORDS = {
    "cancel": ("Cancel", "The run and its child runs end for good. Work in progress is recorded first."),
    "pause": ("Pause", "The run stops at its next step, and nobody can open it until it is resumed."),
    "resume": ("Resume", "The run may be opened again. It continues when its program or a worker opens it."),
    "retry": ("Retry", "The run is queued again. Its finished steps are kept and not paid again."),
    "fork": (
        "Fork",
        "A new run shares the entries up to here. Nothing runs until you open it.",
    ),
}


class ActionQuery(msgspec.Struct, frozen=True):
    """Where to fork."""

    at: int = 0


async def show_action(call: PageCall) -> Shown:
    """Say what will happen, and ask."""
    action = call.path["action"]
    if action not in WORDS:
        raise RequestInvalid("there is no such action")
    agent, run_id = call.path["agent"], call.path["run"]
    call.principal.require_agent(agent)
    title, text = WORDS[action]
    shown: Shown = await call.read(_read, agent, run_id, call.query.at, action == "fork")
    named = {"title": f"{title} {run_id}", "verb": title, "text": text, "action": action, "agent": agent, "id": run_id}
    return {**named, "at": call.query.at, **shown}


def _read(store: Store, agent: str, run_id: str, at: int, fork: bool) -> Shown:
    row = require_run(store, agent, run_id)
    shown: dict[str, Any] = {
        "summary": summary_of(store, row),
        "again": [],
        "again_count": 0,
        "cost": 0.0,
        "effects": 0,
    }
    if not fork or not at:
        return shown
    events = list(effective(events_of(store, row.stream, fork=row.is_fork)))
    later = [one for one in list_ended_calls(events) if one.seq > at]
    spent = [one for event in events if event.seq > at for one in getattr(event.record, "usage", ())]
    return shown | {
        "again": later[:LISTED],
        "again_count": len(later),
        "effects": sum(one.effect for one in later),
        "cost": sum(one.cost for one in spent) / NANOS,
    }


async def act(call: PageCall) -> str:
    """Do it. The journal records who."""
    action, run_id, reason = call.path["action"], call.path["run"], call.body.get("reason", "").strip()
    runs = (await call.agent()).runs
    if action == "fork":
        fork = await runs.fork(run_id, at=call.query.at or None, to=call.body.get("to", "").strip() or None)
        return link("runs", call.path["agent"], fork.id)
    if action == "retry":
        await runs.retry(run_id, by=call.by)
    elif action in WORDS:
        await getattr(runs, action)(run_id, reason, by=call.by)
    return link("runs", call.path["agent"], run_id)


PAGES = (
    Page(
        path="/runs/{agent}/{run}/{action}",
        show=show_action,
        act=act,
        template="action.html",
        query=ActionQuery,
        section="Runs",
    ),
)
