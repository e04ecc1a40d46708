"""The list of runs: filters in the address, counts, pages, live."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime

import msgspec

from perdure.errors import RequestInvalid
from perdure.records import RunStatus
from perdure.run.listing import RunSummary, run_counts
from perdure.run.search import FoundRuns, RunFilter, search_runs
from perdure.server.page.page import Page, PageCall, Shown
from perdure.server.page.render import link
from perdure.server.run_cursor import make_run_cursor, read_run_cursor
from perdure.store.base import Store
from perdure.values.clock import SYSTEM_CLOCK

ROWS = 100
_AGO = re.compile(r"(\d{1,6})(m|h|d)")
_AGO_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}
TIMES = (("", "any time"), ("1h", "last hour"), ("24h", "last day"), ("7d", "last 7 days"), ("30d", "last 30 days"))


class RunsQuery(msgspec.Struct, frozen=True):
    """The filters. Forms send empty ones too."""

    status: str = ""
    agent: str = ""
    name: str = ""
    text: str = ""
    since: str = ""
    """How long ago at most, such as `24h`; or a day."""
    until: str = ""
    """A day."""
    after: str = ""
    """The cursor of a page."""

    @property
    def filters(self) -> dict[str, str]:
        """All but the page."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if name != "after" and value}


class StatusCount(msgspec.Struct, frozen=True):
    """A status with the number of its runs, and the address of their list."""

    status: str
    count: int
    url: str
    chosen: bool


async def show_runs(call: PageCall) -> Shown:
    """Show one page of runs."""
    query: RunsQuery = call.query
    if query.status and query.status not in RunStatus.listed():
        raise RequestInvalid(
            f"there is no status {query.status[:40]!r}", hint=f"one of {', '.join(RunStatus.listed())}"
        )
    call.principal.require_agent(query.agent or call.principal.agent or "")
    wanted = RunFilter(
        call.principal.agent or query.agent,
        query.status,
        query.name.strip(),
        query.text.strip(),
        read_moment(query.since),
        read_moment(query.until, end=True),
    )
    found, counts, agents = await call.read(_read, wanted, query.after, call.principal.agent)
    return {
        "title": "Runs",
        "query": query,
        "filtered": bool(query.filters),
        "runs": found.runs,
        "complete": found.complete,
        "counts": _count_statuses(counts, query),
        "agents": agents,
        "times": TIMES,
        "next": link("runs", **query.filters, after=make_run_cursor(found.next)) if found.next else "",
        "first": link("runs", **query.filters) if query.after else "",
    }


def _read(store: Store, wanted: RunFilter, after: str, only: str | None) -> tuple[FoundRuns, Counter[str], list[str]]:
    found = search_runs(store, wanted, limit=ROWS, after=read_run_cursor(after))
    counts, agents = Counter[str](), set[str]()
    for (agent, status), count in run_counts(store).items():
        agents.update({agent} if only in (None, agent) else ())
        if not wanted.agent or agent == wanted.agent:
            counts[status.value] += count
    return found, counts, sorted(agents)


def _count_statuses(counts: Counter[str], query: RunsQuery) -> list[StatusCount]:
    """Crashed runs are stored as running, so they have no count of their own."""
    others = {name: value for name, value in query.filters.items() if name != "status"}
    shown = ["", *(one for one in RunStatus.listed() if counts[one] or one == query.status)]
    return [
        StatusCount(
            one, counts[one] if one else counts.total(), link("runs", **others, status=one), query.status == one
        )
        for one in shown
    ]


def read_moment(text: str, end: bool = False) -> int:
    """Return a moment in milliseconds: so long ago (`24h`), or a day (`2026-11-18`); 0 for none.

    The end of a day counts for `until`.
    """
    if not text:
        return 0
    if ago := _AGO.fullmatch(text):
        return SYSTEM_CLOCK.wall_ms() - int(ago[1]) * _AGO_MS[ago[2]]
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError as error:
        raise RequestInvalid(f"time {text[:40]!r}: write 24h, 7d or a day such as 2026-11-18") from error
    return int(day.timestamp() * 1000) + (_AGO_MS["d"] - 1 if end else 0)


def run_url(run: RunSummary, **query: object) -> str:
    """Return the address of a run."""
    return link("runs", run.agent, run.id, **query)


PAGE = Page(path="/runs", show=show_runs, template="runs.html", query=RunsQuery, live=True, section="Runs")
