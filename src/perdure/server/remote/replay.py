"""Replays the batches of a client's unit in one transaction, and commits it only if the client has seen the truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perdure.errors import PerdureError, RequestInvalid
from perdure.platform.failpoints import Site
from perdure.store.base import CommitProof, FinalBatch, Rows, Script, Statement, UnitOfWork
from perdure.store.remote.wire import (
    UnitOutcome,
    UnitProgress,
    WireUnit,
    are_still_true,
    summarize_rows,
)

RowFilter = Callable[[Sequence[Statement], Sequence[Rows]], Sequence[Rows]]
"""Returns rows as their client may see them."""


class ReplayEnded(PerdureError):
    """The transaction was rolled back, because the client has not decided yet or was overtaken."""


class ReplayedUnit(UnitOfWork[UnitOutcome]):
    """A unit of a client: its batches, and the rows that the client has seen."""

    def __init__(self, given: WireUnit, batches: Sequence[list[Statement]], show: RowFilter) -> None:
        self.site = Site(given.site)
        self.snapshot, self.long, self.erases = given.snapshot, given.long, given.erases
        self._given = given
        self._batches = batches
        self._show = show
        self.outcome = UnitOutcome(UnitProgress.FAILED)
        """What became of it, if it was rolled back."""
        entries = [one for batch in batches for one in batch if one.name == "append_entry"]
        # Clients order the units of a stream, so a lane of its own lets it share a commit with other streams.
        self.lane = entries[-1].args[0] if entries else 0
        self._proof = CommitProof(entries[-1].args[0], entries[-1].args[1], entries[-1].args[5]) if entries else None

    @property
    def shareable(self) -> bool:
        return self._given.commit and len(self._batches) == 1 and len(self._batches[0]) == 1 and self.lane > 0

    def script(self) -> Script[UnitOutcome]:
        given = self._given
        unseen = len(self._batches) - len(given.seen)
        for index, seen in enumerate(given.seen):
            last = given.commit and not unseen and index == len(given.seen) - 1
            rows = yield from self._run(index)
            if not are_still_true(seen, summarize_rows(given.batches[index], rows)):
                self.outcome = UnitOutcome(UnitProgress.OVERTAKEN, list(rows), index)
                raise ReplayEnded
            if last:
                return UnitOutcome(UnitProgress.COMMITTED, list(rows))
        index = len(self._batches) - 1
        if not given.commit:
            self.outcome = UnitOutcome(UnitProgress.ROWS, list((yield from self._run(index))))
            raise ReplayEnded
        final = FinalBatch(self._batches[index])
        final.proof = self._proof
        rows = yield final
        return UnitOutcome(UnitProgress.COMMITTED, list(self._show(self._batches[index], rows)))

    def _run(self, index: int) -> Script[Sequence[Rows]]:
        rows = yield self._batches[index]
        return self._show(self._batches[index], rows)


def check_shape(unit: WireUnit) -> None:
    """Refuse a unit whose rows do not fit its batches."""
    if unit.site not in frozenset(Site) or not unit.batches or not all(unit.batches):
        raise RequestInvalid("a unit names no known place, or has an empty batch")
    unseen = len(unit.batches) - len(unit.seen)
    if unseen not in ((0, 1) if unit.commit else (1,)):
        raise RequestInvalid("the rows that were seen do not fit the batches")
