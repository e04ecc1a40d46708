"""Commits a unit on a server exactly once, in one round trip where possible.

A connection may break after the commit and before its answer. Then the unit is looked up by its proof on a new
connection, submitted again if it is missing, and looked up again if that fails, because the first commit may have
arrived late. The primary key of an entry and the lock on its lease admit only one of them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Generic, TypeVar

from perdure.errors import PerdureError
from perdure.platform import interrupts
from perdure.platform.failpoints import CommitMoment, is_armed, reach
from perdure.store.attempt import CommitAttempt
from perdure.store.base import FinalBatch, Overtaken, Rows, Statement, UnitOfWork
from perdure.store.outage import CancelCheck, ConnectionCut, OutagePatience, ServerAbsence
from perdure.store.postgres.batch import MANY_MIN, MergedStatements
from perdure.store.postgres.connection import IDLE, PipelineConnection, RawStatement, StatementBatch
from perdure.store.postgres.errors import BROKEN_CONDITIONS, UNIQUE, ServerError, translate_error
from perdure.store.postgres.pool import ConnectionPool

T = TypeVar("T")
OVERTAKEN_MAX = 20
"""Retries because another process was faster; each time one of the others made progress."""

_BEGIN, _COMMIT, _ROLLBACK = RawStatement(b"BEGIN"), RawStatement(b"COMMIT"), RawStatement(b"ROLLBACK")
_MARK = RawStatement(b"SELECT 1 FROM (SELECT pg_logical_emit_message(true, 'perdure', '')) AS written")
_BEGIN_SNAPSHOT = RawStatement(b"BEGIN ISOLATION LEVEL REPEATABLE READ")
ANSWER_SECONDS = 2.0
"""Network time allowed in addition to the statement timeout."""


class PostgresCommit(Generic[T]):
    """The commit of one unit, with retries."""

    def __init__(
        self,
        pool: ConnectionPool,
        unit: UnitOfWork[T],
        absence: ServerAbsence | None = None,
        unwanted: CancelCheck = interrupts.is_pending,
        earlier: CommitAttempt[T] | None = None,
    ) -> None:
        self._pool = pool
        self._unit = unit
        self._absence = absence
        seconds = pool.place.reconnect_seconds
        if unit.seconds is not None:
            seconds = min(seconds, unit.seconds)
        self._patience = OutagePatience(seconds, absence, unit.lane, unwanted)
        self._attempt: CommitAttempt[T] | None = None
        self._doubtful: list[CommitAttempt[T]] = [earlier] if earlier is not None else []
        """Attempts whose answer was lost; several if the connection breaks repeatedly."""
        self._overtaken = 0

    def run(self) -> T:
        """Commit; when this returns, the unit is durable and has been applied once."""
        try:
            while True:
                try:
                    with self._pool.link(self._patience.until) as link:
                        return self._try(link)
                except Overtaken as error:
                    self._overtaken += 1
                    if self._overtaken > OVERTAKEN_MAX:
                        raise
                    why: Exception = error
                except (ConnectionCut, ServerError) as error:
                    self._judge(error)
                    why = error
                self._patience.pause(why, self._pool.place.shown)
        except BaseException:
            self._unit.settle(False)
            raise

    def _try(self, link: PipelineConnection) -> T:
        """Look for a landed attempt, else commit; if that fails, look again."""
        if self._doubtful and self._has_landed(link):
            return self._finish(self._doubtful[0])
        self._attempt = attempt = CommitAttempt(self._unit)
        try:
            rows = self._perform(link, attempt)
        except PerdureError:
            self._unit.settle(False)
            if self._doubtful and self._has_landed(link):
                return self._finish(self._doubtful[0])
            raise
        return self._finish(attempt, rows)

    def _judge(self, error: ConnectionCut | ServerError) -> None:
        """Record an attempt with unknown outcome; raise errors that are not retried."""
        gone = isinstance(error, ConnectionCut) or error.gone
        attempt, self._attempt = self._attempt, None
        if gone and attempt is not None and attempt.committing:
            self._doubtful.append(attempt)
        else:
            if attempt is not None:
                attempt.script.close()  # releases its resources before the retry
            self._unit.settle(False)
        # A timeout may mean that this attempt waited for the locks of a doubtful one.
        waited = bool(self._doubtful) and isinstance(error, ServerError) and error.late
        if isinstance(error, ServerError) and not error.is_retryable and not waited:
            raise translate_error(error, self._pool.place.shown) from error

    def _finish(self, attempt: CommitAttempt[T], rows: list[Rows] | None = None) -> T:
        if self._absence is not None:
            self._absence.note_answer()
        result = attempt.finish(rows or [])
        self._unit.settle(True)
        return result

    def _has_landed(self, link: PipelineConnection) -> bool:
        """Whether a doubtful attempt has landed; if so, it becomes the only one."""
        for attempt in self._doubtful:
            if attempt.proof is not None:
                batch = [*link.begin_with(), attempt.proof.query]
                answers = link.send_batch(batch, self._compute_deadline())
                if answers[-1].rows == attempt.proof.rows:
                    # It is visible on this server. A later commit, confirmed by the synchronous standby, proves that
                    # the standby has it too.
                    link.send_batch([*link.begin_with(), _MARK], self._compute_deadline())
                    self._doubtful = [attempt]
                    return True
        return False

    def _perform(self, link: PipelineConnection, attempt: CommitAttempt[T]) -> list[Rows]:
        """Run one transaction; return the rows of the last batch."""
        begun = False
        rows: list[Rows] = []
        try:
            statements = attempt.start()
            while not attempt.ended:
                last = isinstance(statements, FinalBatch)
                if last:
                    attempt.proof = statements.proof  # type: ignore[attr-defined]
                if last and not is_armed():
                    attempt.committing = True
                    return self._send_last_batch(link, statements, begun)
                # An armed failpoint needs a moment between write and commit: send them separately.
                if statements:
                    rows = self._batch(link, () if begun else self._make_opening_batch(link), statements)
                    if not begun:
                        reach(self._unit.site, CommitMoment.BEGUN)
                    begun = True
                else:
                    rows = []
                if last:
                    break
                statements = attempt.go_on(rows)
            if begun:
                reach(self._unit.site, CommitMoment.WRITTEN)
                attempt.committing = True
                link.send_batch([_COMMIT], self._compute_deadline())
            return rows
        except (PerdureError, ServerError):
            if link.in_transaction:
                attempt.committing = False
                link.send_batch([_ROLLBACK], self._compute_deadline())
            raise

    def _send_last_batch(self, link: PipelineConnection, statements: Sequence[Statement], begun: bool) -> list[Rows]:
        """Send the last batch with its commit. A single batch is an implicit transaction."""
        if begun:
            return self._batch(link, (), statements, [_COMMIT])
        if self._unit.snapshot or self._unit.long:
            return self._batch(link, self._make_opening_batch(link), statements, [_COMMIT])
        return self._batch(link, link.begin_with(), statements)

    def _batch(
        self,
        link: PipelineConnection,
        before: StatementBatch,
        statements: Sequence[Statement],
        after: StatementBatch = (),
    ) -> list[Rows]:
        if not IDLE.isdisjoint(statement.name for statement in statements):
            asked = [statement for statement in statements if statement.name not in IDLE]
            rows = iter(self._batch(link, before, asked, after))
            return [[] if statement.name in IDLE else next(rows) for statement in statements]
        if len(statements) < MANY_MIN:
            return self._exchange(link, before, statements, after)
        many = MergedStatements(statements)
        return many.distribute_rows(self._exchange(link, before, many.sent, after))

    def _exchange(
        self, link: PipelineConnection, before: StatementBatch, statements: Sequence[Statement], after: StatementBatch
    ) -> list[Rows]:
        try:
            answers = link.send_batch([*before, *statements, *after], self._compute_deadline())
        except ServerError as error:
            number = error.index - len(before)
            if 0 <= number < len(statements) and error.state in BROKEN_CONDITIONS:
                must = statements[number].must
                if must is not None:
                    raise must() from error
                if error.state == UNIQUE:
                    raise Overtaken(str(error)) from error
            raise
        ours = answers[len(before) : len(before) + len(statements)]
        for statement, answer in zip(statements, ours, strict=True):
            if statement.must is not None and answer.changed != 1:
                raise statement.must()
        return [answer.rows for answer in ours]

    def _make_opening_batch(self, link: PipelineConnection) -> StatementBatch:
        unit = self._unit
        begin = _BEGIN_SNAPSHOT if unit.snapshot else _BEGIN
        return [begin, *link.begin_with(), *(link.lift_timeouts() if unit.long else ())]

    def _compute_deadline(self) -> float:
        return time.monotonic() + self._pool.place.statement_seconds + ANSWER_SECONDS


def run_queries(pool: ConnectionPool, queries: Sequence[Statement], absence: ServerAbsence) -> list[Rows]:
    """Run queries on one snapshot and in one round trip; retry on a new connection if one is lost."""
    begin, end = ([_BEGIN_SNAPSHOT], [_COMMIT]) if len(queries) > 1 else ([], [])
    patience = OutagePatience(pool.place.reconnect_seconds, absence)
    while True:
        try:
            with pool.link(patience.until) as link:
                until = time.monotonic() + pool.place.statement_seconds + ANSWER_SECONDS
                before = [*begin, *link.begin_with()]
                answers = link.send_batch([*before, *queries, *end], until)
                found = [answer.rows for answer in answers[len(before) : len(before) + len(queries)]]
            absence.note_answer()
            return found
        except ServerError as error:
            if not error.is_retryable:
                raise translate_error(error, pool.place.shown) from error
            why: Exception = error
        except ConnectionCut as error:
            why = error
        patience.pause(why, pool.place.shown)
