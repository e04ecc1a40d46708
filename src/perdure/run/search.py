"""Finds runs by what people remember of them: a part of the name, a word of the error, a time."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from perdure.run.listing import NEWEST, ListPlace, RunSummary, list_runs
from perdure.store.base import Store

PAGE = 500
LOOKED_AT_MAX = 20_000
"""Runs that one search looks at. It says where to go on."""


class RunFilter(msgspec.Struct, frozen=True):
    """Which runs. Empty fields do not filter."""

    agent: str = ""
    status: str = ""
    name: str = ""
    """A part of the id."""
    text: str = ""
    """A part of the id, the agent's name, the error or the holder."""
    since: int = 0
    """In milliseconds: active at or after this moment."""
    until: int = 0
    """Active at or before this moment."""

    def includes(self, run: RunSummary) -> bool:
        """Whether a run fits name and text. Letters match in either case."""
        texts = (run.id, run.agent, run.error, run.holder)
        return self.name.casefold() in run.id.casefold() and (
            not self.text or any(self.text.casefold() in text.casefold() for text in texts)
        )


class FoundRuns(msgspec.Struct, frozen=True):
    """One page of runs, the most recently active first."""

    runs: list[RunSummary]
    next: ListPlace | None
    """Where the next page begins; None at the end."""
    complete: bool = True
    """False if the search stopped before the page was full: there may be more."""


def search_runs(store: Store, wanted: RunFilter, *, limit: int, after: ListPlace = NEWEST) -> FoundRuns:
    """Return the runs that fit, from a place in the list on."""
    found: list[RunSummary] = []
    first = min(after, (wanted.until + 1, 0, "", "")) if wanted.until else after
    for number, run in enumerate(_walk(store, wanted, first, limit + 1), start=1):
        if run.changed_at < wanted.since:
            break
        if wanted.includes(run):
            if len(found) == limit:
                return FoundRuns(found, found[-1].place)
            found.append(run)
        if number == LOOKED_AT_MAX:
            return FoundRuns(found, run.place, False)
    return FoundRuns(found, None)


def _walk(store: Store, wanted: RunFilter, after: ListPlace, first: int) -> Iterator[RunSummary]:
    """Yield runs page by page: a search without words needs only its first page."""
    size = PAGE if wanted.name or wanted.text else first
    while page := list_runs(store, wanted.agent or None, wanted.status or None, limit=size, after=after):
        yield from page
        if len(page) < size:
            return
        after, size = page[-1].place, PAGE
