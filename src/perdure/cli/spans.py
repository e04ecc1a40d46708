"""The parts of the picture of a run: rows with the times at which they were at work, waited or were in doubt."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from .. import records as r
from .axis import merged

WORK, WAIT, DOUBT, POINT = "work", "wait", "doubt", "point"

REPEATS_MIN = 6
"""So many calls of one name, one after the other, are one row."""

Part = tuple[str, int, int]
"""One of the above, from when, and until when."""


class Spending(msgspec.Struct, frozen=True):
    """What calls of models have cost, in billionths of a dollar."""

    calls: int = 0
    cost: int = 0
    unpriced: int = 0

    def plus(self, usage: Iterable[r.Usage]) -> Spending:
        """With some more calls."""
        calls, cost, unpriced = self.calls, self.cost, self.unpriced
        for it in usage:
            calls, cost, unpriced = calls + it.calls, cost + it.cost, unpriced + it.unpriced
        return Spending(calls, cost, unpriced)

    def __add__(self, other: Spending) -> Spending:
        return Spending(self.calls + other.calls, self.cost + other.cost, self.unpriced + other.unpriced)


class Row(msgspec.Struct):
    """A step, an effect, a loop, a wait, a child, a checkpoint, or what else a run did."""

    what: str
    name: str
    seq: int
    """The entry that began it, or the first that tells of it."""
    begun: int
    status: str = "done"
    parts: list[Part] = msgspec.field(default_factory=list)
    spent: Spending = Spending()
    tries: int = 1
    times: int = 1
    """How many calls, one after the other, it stands for."""
    count: int = 0
    """How many items, of a loop; how many writes."""
    result: bytes = b""
    notes: list[str] = msgspec.field(default_factory=list)
    phase: str = ""
    """What it is at now, and `since` when; empty when nothing."""
    since: int = 0

    @property
    def ended(self) -> int:
        return max((end for _, _, end in self.parts), default=self.begun)

    @property
    def took_ms(self) -> int:
        """At work; of what only waits, that."""
        parts = [it for it in self.parts if it[0] == WORK] or [it for it in self.parts if it[0] == WAIT]
        return sum(end - begin for begin, end in merged((begin, end) for _, begin, end in parts))

    def enter(self, phase: str, at: int) -> None:
        """From now on it works, waits, or is in doubt."""
        self.leave(at)
        self.phase, self.since = phase, at

    def leave(self, at: int) -> None:
        """What it was at has ended."""
        if self.phase:
            self.parts.append((self.phase, self.since, max(self.since, at)))
        self.phase = ""


class Opening(msgspec.Struct):
    """One process that had the run."""

    seq: int
    begun: int
    process: str
    host: str
    resumed: bool
    ended: int = 0
    """When it last wrote anything."""
    how: str = ""
    """How it ended: `finished`, `failed`, `interrupted`, `killed`; empty when it is at work."""
    told: str = ""
    skipped: int = 0
    """Steps that it went past without running them again."""
    saved: Spending = Spending()


class Picture(msgspec.Struct, frozen=True):
    """A run as rows, in the order in which they began."""

    rows: list[Row]
    openings: list[Opening]
    spent: Spending
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    """Calls that have ended, by what they are: those inside of loops too."""
    folded: str = ""
    """The archive that has the older entries."""

    @property
    def begun(self) -> int:
        return min((it.begun for it in self.openings), default=0)

    @property
    def ended(self) -> int:
        return max([it.ended for it in self.openings] + [row.ended for row in self.rows], default=0)


def alike(row: Row) -> tuple[object, ...]:
    """Rows that may become one, when many of them stand one after the other."""
    return (
        (row.what, row.name, "") if row.status == "done" and row.what in ("step", "effect") else (row.what, "", row.seq)
    )


def together(rows: list[Row]) -> list[Row]:
    """One row in place of many."""
    if len(rows) < REPEATS_MIN:
        return rows
    first = rows[0]
    for row in rows[1:]:
        first.parts += row.parts
        first.spent += row.spent
        first.count += row.count
        first.tries = max(first.tries, row.tries)
    first.times, first.result, first.notes = len(rows), b"", []
    return [first]
