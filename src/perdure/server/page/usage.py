"""Usage: what model calls have cost, and what resuming has saved, by day, model and agent."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.journal.retention_rules import OURS
from perdure.run.usage import Totals, UsageLine, group_totals, savings_lines, sum_savings, totals_of, usage_lines
from perdure.server.page.of_agent import list_names
from perdure.server.page.page import Page, PageCall, Shown
from perdure.store.base import Store

DAYS = 30
ROWS = 100
BAR, GAP, HEIGHT = 22, 6, 140


class UsageQuery(msgspec.Struct, frozen=True):
    """Of which agent; of all by default."""

    agent: str = ""


class CostRow(msgspec.Struct, frozen=True):
    """What one day, model or agent has spent and saved."""

    name: str
    spent: Totals
    saved: Totals


class CostBar(msgspec.Struct, frozen=True):
    """A day of the chart: the heights of its two bars."""

    row: CostRow
    x: int
    spent: int
    saved: int


async def show_usage(call: PageCall) -> Shown:
    """Show costs and savings."""
    agent = call.query.agent or call.principal.agent or ""
    call.principal.require_agent(agent or call.principal.agent or "")
    spent, saved = await call.read(_read, agent)
    days = _join(spent, saved, "day")
    return {
        "title": "Usage",
        "agent": agent,
        "agents": await list_names(call),
        "spent": totals_of(spent),
        "saved": sum_savings(saved),
        "any": bool(spent or saved),
        "bars": _draw(days[-DAYS:]),
        "height": HEIGHT,
        "width": max(1, min(len(days), DAYS)) * (2 * BAR + GAP),
        "groups": {"day": days[::-1][:ROWS], "model": _join(spent, saved, "model")[:ROWS]}
        | ({} if agent else {"agent": _join(spent, saved, "agent")[:ROWS]}),
    }


def _read(store: Store, agent: str) -> tuple[list[UsageLine], list[UsageLine]]:
    spent, saved = usage_lines(store, agent), savings_lines(store, agent)
    return _drop_ours(spent), _drop_ours(saved)


def _drop_ours(lines: Sequence[UsageLine]) -> list[UsageLine]:
    return [line for line in lines if not line.agent.startswith(OURS)]


def _join(spent: Sequence[UsageLine], saved: Sequence[UsageLine], by: str) -> list[CostRow]:
    """Return spent and saved side by side, sorted by name."""
    ours, theirs = group_totals(totals_of, spent, by), group_totals(sum_savings, saved, by)
    names = sorted({*ours, *theirs})
    return [CostRow(name or "(none)", ours.get(name, Totals()), theirs.get(name, Totals())) for name in names]


def _draw(rows: Sequence[CostRow]) -> list[CostBar]:
    costs = [one.cost_usd or 0.0 for row in rows for one in (row.spent, row.saved)]
    scale = HEIGHT / max([*costs, 1e-9])
    return [
        CostBar(
            row,
            number * (2 * BAR + GAP),
            round((row.spent.cost_usd or 0) * scale),
            round((row.saved.cost_usd or 0) * scale),
        )
        for number, row in enumerate(rows)
    ]


PAGE = Page(path="/usage", show=show_usage, template="usage.html", query=UsageQuery, section="Usage")
