"""Shares commits on a server: entries of many streams are one statement and one transaction.

Only the first attempt of a unit that appends one entry is shared. The statement checks the fencing token of each stream
by itself and leaves out entries that it cannot append. Those, and all entries of a statement that failed, commit alone.
If the answer was lost, each unit is looked up by its own proof. So no unit can fail another one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from perdure.store.attempt import CommitAttempt
from perdure.store.base import Rows, Statement, UnitOfWork
from perdure.store.group_commit import CommitBatch, Committer
from perdure.store.lanes import LaneTicket
from perdure.store.outage import ConnectionCut, ServerAbsence
from perdure.store.postgres.batch import merged
from perdure.store.postgres.commit import ANSWER_SECONDS
from perdure.store.postgres.connection import PendingReply, PipelineConnection, StatementResult
from perdure.store.postgres.errors import ServerError
from perdure.store.postgres.pool import ConnectionPool

APPEND = "append_entry"
"""The statement that can be shared: it has a variant for many rows."""


class SharedUnit(UnitOfWork[None]):
    """A unit in a shared commit, and whether it has landed there."""

    __slots__ = ("attempt", "landed", "result", "site", "statement", "ticket")

    def __init__(self, ticket: LaneTicket, attempt: CommitAttempt[Any], statement: Statement) -> None:
        self.site = ticket.unit.site
        self.ticket = ticket
        self.attempt = attempt
        self.statement = statement
        self.landed = False
        """Whether it is durable; otherwise it must commit alone."""
        self.result: Any = None

    @property
    def doubtful(self) -> CommitAttempt[Any] | None:
        """The shared attempt, if its outcome is unknown."""
        return self.attempt if self.attempt.committing and not self.landed else None


def shared(ticket: LaneTicket) -> SharedUnit | None:
    """Start the unit of a ticket for a shared commit, at its turn; None if it does more than append one entry."""
    attempt = CommitAttempt(ticket.unit)
    batch = attempt.start()
    if len(batch) != 1 or batch[0].name != APPEND:
        attempt.script.close()
        return None
    attempt.proof = getattr(batch, "proof", None)
    return SharedUnit(ticket, attempt, batch[0])


class SharedCommit:
    """One shared commit: sent once, on one connection."""

    __slots__ = ("_absence", "_units")

    def __init__(self, units: Sequence[SharedUnit], absence: ServerAbsence) -> None:
        self._units = units
        self._absence = absence

    def begin(self, link: PipelineConnection) -> PendingReply:
        """Send all entries. From here on, a lost answer leaves the outcome of each unit unknown."""
        given = [unit.statement for unit in self._units]
        for unit in self._units:
            unit.attempt.committing = True
        return link.begin([*link.begin_with(), given[0] if len(given) == 1 else merged(APPEND, given)])

    def finish(self, results: Sequence[StatementResult]) -> None:
        """Settle the units whose entries are in the answer; the others were left out."""
        rows = results[-1].rows
        if len(self._units) == 1:
            self._land(self._units[0], rows)
            return
        ordered: dict[int, int] = dict(rows)
        for unit in self._units:
            stream = unit.statement.args[0]
            if stream in ordered:
                self._land(unit, [(ordered[stream],)])
            else:
                unit.attempt.committing = False

    def fail(self, error: ConnectionCut | ServerError) -> None:
        """Note whether the transaction was rolled back or its outcome is unknown."""
        if isinstance(error, ServerError) and not error.gone:
            for unit in self._units:
                unit.attempt.committing = False

    def _land(self, unit: SharedUnit, rows: Rows) -> None:
        self._absence.note_answer()
        unit.result = unit.attempt.finish([rows])
        unit.landed = True
        unit.ticket.unit.settle(True)

    def run(self, pool: ConnectionPool) -> None:
        """Commit in this thread. Raises only if no connection becomes free."""
        try:
            # The shortest possible attempt to connect: during an outage, each unit has a patience of its own.
            with pool.link(time.monotonic()) as link:
                self.finish(self.begin(link).wait(deadline(pool)))
        except (ConnectionCut, ServerError) as error:
            self.fail(error)


def deadline(pool: ConnectionPool) -> float:
    """Return until when the server may answer, by `time.monotonic`."""
    return time.monotonic() + pool.place.statement_seconds + ANSWER_SECONDS


class SharedCommits:
    """The shared commits of threads: while one is under way, the next one collects units."""

    def __init__(self, pool: ConnectionPool, absence: ServerAbsence) -> None:
        self._pool = pool
        self._absence = absence
        self._committer = Committer(self._execute)

    def submit(self, unit: SharedUnit) -> None:
        """Commit together with the units of other threads. When this returns, `landed` tells the outcome."""
        self._committer.submit(unit)

    def _execute(self, batch: CommitBatch) -> None:
        units: list[SharedUnit] = [ticket.unit for ticket in batch]  # type: ignore[misc]
        try:
            SharedCommit(units, self._absence).run(self._pool)
        finally:
            # Whatever interrupts this thread: a unit that was sent knows that it must be looked up.
            batch.ended = any(unit.attempt.committing for unit in units)
