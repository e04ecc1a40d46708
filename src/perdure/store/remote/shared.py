"""Shares requests: the plain appends of many runs travel together, and each has an outcome of its own.

While one request is under way, the next one collects units. Only the first attempt of a unit is shared. Units that
failed commit alone; if the answer was lost, each is looked up by its own proof. So no unit can fail another one.
"""

from __future__ import annotations

import time
from typing import Any

from perdure.store.attempt import CommitAttempt
from perdure.store.base import FinalBatch, UnitOfWork
from perdure.store.group_commit import CommitBatch, Committer
from perdure.store.lanes import LaneTicket
from perdure.store.remote.commit import send_units
from perdure.store.remote.transport import HttpLinks, HttpRefusal, RequestCut
from perdure.store.remote.wire import UnitOutcome, UnitProgress, WireUnit, write_statements, write_unit


class RequestUnit(UnitOfWork[None]):
    """A unit in a shared request, and whether it has landed there."""

    __slots__ = ("attempt", "landed", "result", "site", "ticket", "wire")

    def __init__(self, ticket: LaneTicket, attempt: CommitAttempt[Any], wire: WireUnit) -> None:
        self.site = ticket.unit.site
        self.ticket = ticket
        self.attempt = attempt
        self.wire = wire
        self.landed = False
        """Whether it is durable; otherwise it must commit alone."""
        self.result: Any = None

    @property
    def doubtful(self) -> CommitAttempt[Any] | None:
        """The shared attempt, if its outcome is unknown."""
        return self.attempt if self.attempt.committing and not self.landed else None


def share(ticket: LaneTicket) -> RequestUnit | None:
    """Start the unit of a ticket for a shared request, at its turn; None if it takes more than one batch."""
    attempt = CommitAttempt(ticket.unit)
    batch = attempt.start()
    if not isinstance(batch, FinalBatch) or not batch:
        attempt.script.close()
        return None
    attempt.proof = batch.proof
    return RequestUnit(ticket, attempt, write_unit(ticket.unit, [write_statements(batch)], commit=True))


class SharedRequests:
    """The shared requests of a store, for threads and event loops."""

    def __init__(self, links: HttpLinks) -> None:
        self._links = links
        self._committer = Committer(self._execute)

    def submit(self, unit: RequestUnit) -> None:
        """Send together with the units of other threads. When this returns, `landed` tells the outcome."""
        self._committer.submit(unit)

    async def submit_async(self, unit: RequestUnit) -> None:
        """Send together with the units of other tasks, without blocking the event loop."""
        await self._committer.submit_async(unit)

    def close(self) -> None:
        """Send what is queued and end the thread."""
        self._committer.close()

    def _execute(self, batch: CommitBatch) -> None:
        units: list[RequestUnit] = [ticket.unit for ticket in batch]  # type: ignore[misc]
        for unit in units:
            unit.attempt.committing = True
        try:
            # The shortest possible attempt to connect: during an outage, each unit has a patience of its own.
            outcomes = send_units(self._links, [unit.wire for unit in units], time.monotonic())
        except RequestCut as cut:
            for unit in units:
                unit.attempt.committing = cut.sent
        except HttpRefusal:
            for unit in units:
                unit.attempt.committing = False
        else:
            for unit, outcome in zip(units, outcomes, strict=True):
                _settle(unit, outcome)
        finally:
            # Whatever interrupts this thread: a unit that was sent knows that it must be looked up.
            batch.ended = any(unit.attempt.committing for unit in units)


def _settle(unit: RequestUnit, outcome: UnitOutcome) -> None:
    if outcome.progress != UnitProgress.COMMITTED:
        unit.attempt.committing = False
        return
    unit.result = unit.attempt.finish(outcome.rows)
    unit.landed = True
    unit.ticket.unit.settle(True)
