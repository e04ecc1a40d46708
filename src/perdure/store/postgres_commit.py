"""How a unit is committed on a server: one round trip where it can be, and once, whatever happens to the connection.

A connection may be cut after the commit and before its answer. Then nobody guesses: the unit is looked up by its
proof on a new connection, submitted again when it is not there, and looked up once more when that fails, because the
first one may have arrived late. The primary key of an entry and the lock on its lease decide between the two.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Generic, TypeVar

from .. import interrupts
from ..errors import PerdureError, StoreUnavailable
from ..failpoints import Moment, armed, reach
from .base import Last, Overtaken, Proof, Rows, Script, Statement, Unit
from .postgres_absence import Absence
from .postgres_errors import BROKEN_CONDITIONS, UNIQUE, Cut, ServerError, translated
from .postgres_link import IDLE, Batch, Link, Raw
from .postgres_many import MANY_MIN, Gathered
from .postgres_pool import Pool

T = TypeVar("T")
_CHANCE = Random()
"""Our own: a program that has seeded Python's goes on to get the numbers that it expects."""

OVERTAKEN_MAX = 20
"""How often a script is run again because others were quicker. Each time one of them has got on."""

BACKOFF_SECONDS, BACKOFF_SECONDS_MAX = 0.02, 1.0

_BEGIN, _COMMIT, _ROLLBACK = Raw(b"BEGIN"), Raw(b"COMMIT"), Raw(b"ROLLBACK")
_MARK = Raw(b"SELECT 1 FROM (SELECT pg_logical_emit_message(true, 'perdure', '')) AS written")
_BEGIN_SNAPSHOT = Raw(b"BEGIN ISOLATION LEVEL REPEATABLE READ")
ANSWER_SECONDS = 2.0
"""For the way to the server and back, beyond what a statement may take there."""


class _Attempt(Generic[T]):
    """One try: how far it got."""

    __slots__ = ("committing", "ended", "proof", "result", "script", "unit")

    def __init__(self, unit: Unit[T]) -> None:
        self.unit = unit
        self.script: Script[T] = unit.script()
        self.committing = False
        """The commit is on its way: from here on, silence means that nobody knows."""
        self.proof: Proof | None = None
        self.ended = False
        self.result: Any = None

    def go_on(self, rows: list[Rows] | None) -> Sequence[Statement]:
        """The next batch; empty when the script has ended."""
        try:
            return next(self.script) if rows is None else self.script.send(rows)
        except StopIteration as stop:
            self.ended, self.result = True, stop.value
            return ()

    def finish(self, rows: list[Rows]) -> T:
        """It is durable: let the script do its bookkeeping."""
        if not self.ended:
            self.go_on(rows)
            assert self.ended, "nothing may follow the last batch of a script"
        result: T = self.result
        return result


Unwanted = Callable[[], bool]
"""Whether nobody wants to wait any longer for a server that is away."""


class Patience:
    """How long a call goes on while the server is away."""

    def __init__(
        self,
        seconds: float,
        absence: Absence | None = None,
        lane: int = 0,
        unwanted: Unwanted = interrupts.pending,
    ) -> None:
        self._seconds = seconds if absence is None else absence.patience(seconds, lane)
        self._full = self._seconds == seconds
        self._absence = absence
        self._lane = lane
        self._unwanted = unwanted
        self.until = time.monotonic() + self._seconds
        self._pause = BACKOFF_SECONDS

    def pause(self, why: Exception, shown: str) -> None:
        """Wait a little longer each time; raises StoreUnavailable when it has been long enough."""
        now = time.monotonic()
        away = isinstance(why, Cut) or (isinstance(why, ServerError) and why.gone)
        # A session that was ended is no server that is away: that is known when the second try fails too.
        again = self._pause > BACKOFF_SECONDS
        unwanted = away and again and self._unwanted()
        if now >= self.until and isinstance(why, PerdureError):
            raise why
        if unwanted or now >= self.until:
            raise self._end(why, shown, away, unwanted) from why
        if self._absence is not None and away and again:
            self._absence.noticed(why, self.until - now)
        time.sleep(min(self._pause, self.until - now) * _CHANCE.uniform(0.5, 1.0))
        self._pause = min(self._pause * 2, BACKOFF_SECONDS_MAX)

    def _end(self, why: Exception, shown: str, away: bool, unwanted: bool) -> PerdureError:
        if isinstance(why, ServerError) and not away:
            return translated(why, shown)  # the server is there, and others keep it from doing this
        if self._absence is not None and (unwanted or self._full):
            self._absence.given_up(self._lane)
        if unwanted:
            text = f"interrupted while {shown} was away: {why}"
        else:
            text = f"{shown} has been away for {self._seconds:g} s: {why}"
        return StoreUnavailable(text, hint="nothing that was acknowledged is lost; start again when the server is back")


class Commit(Generic[T]):
    """A unit on its way into the store."""

    def __init__(
        self,
        pool: Pool,
        unit: Unit[T],
        absence: Absence | None = None,
        unwanted: Unwanted = interrupts.pending,
    ) -> None:
        self._pool = pool
        self._unit = unit
        self._absence = absence
        seconds = pool.place.reconnect_seconds
        if unit.seconds is not None:
            seconds = min(seconds, unit.seconds)
        self._patience = Patience(seconds, absence, unit.lane, unwanted)
        self._attempt: _Attempt[T] | None = None
        self._doubtful: list[_Attempt[T]] = []
        """Attempts whose answer was lost. There may be several, if the server is lost again and again."""
        self._overtaken = 0

    def run(self) -> T:
        """Commit it; when this returns, the unit is durable, and has happened once."""
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
                except (Cut, ServerError) as error:
                    self._judge(error)
                    why = error
                self._patience.pause(why, self._pool.place.shown)
        except BaseException:
            self._unit.settle(False)
            raise

    def _try(self, link: Link) -> T:
        """Look for what may have landed already, then do it; and look again if that cannot be done."""
        if self._doubtful and self._landed(link):
            return self._finished(self._doubtful[0])
        self._attempt = attempt = _Attempt(self._unit)
        try:
            rows = self._perform(link, attempt)
        except PerdureError:
            self._unit.settle(False)
            if self._doubtful and self._landed(link):
                return self._finished(self._doubtful[0])
            raise
        return self._finished(attempt, rows)

    def _judge(self, error: Cut | ServerError) -> None:
        """Remember what nobody knows now; raise what is not tried again."""
        gone = isinstance(error, Cut) or error.gone
        attempt, self._attempt = self._attempt, None
        if gone and attempt is not None and attempt.committing:
            self._doubtful.append(attempt)
        else:
            if attempt is not None:
                attempt.script.close()  # it gives back what it holds, before it is run again
            self._unit.settle(False)
        # While an earlier attempt is doubtful, one that took too long may have waited for just that one.
        waited = bool(self._doubtful) and isinstance(error, ServerError) and error.late
        if isinstance(error, ServerError) and not error.again and not waited:
            raise translated(error, self._pool.place.shown) from error

    def _finished(self, attempt: _Attempt[T], rows: list[Rows] | None = None) -> T:
        if self._absence is not None:
            self._absence.over()
        result = attempt.finish(rows or [])
        self._unit.settle(True)
        return result

    def _landed(self, link: Link) -> bool:
        """Whether one of the doubtful attempts is in the store; that one comes first from now on."""
        for attempt in self._doubtful:
            if attempt.proof is not None:
                batch = [*link.begin_with(), attempt.proof.query]
                answers = link.talk(batch, self._until())
                if answers[-1].rows == attempt.proof.rows:
                    # We see it on this server; a later commit that a synchronous standby has confirmed says that
                    # it is there as well.
                    link.talk([*link.begin_with(), _MARK], self._until())
                    self._doubtful = [attempt]
                    return True
        return False

    def _perform(self, link: Link, attempt: _Attempt[T]) -> list[Rows]:
        """One transaction; returns the rows of the last batch."""
        begun = False
        rows: list[Rows] = []
        try:
            statements = attempt.go_on(None)
            while not attempt.ended:
                last = isinstance(statements, Last)
                if last:
                    attempt.proof = statements.proof  # type: ignore[attr-defined]
                if last and not armed():
                    attempt.committing = True
                    return self._last_batch(link, statements, begun)
                # Whoever watches wants to see what is written and not yet committed: then the two go apart.
                if statements:
                    rows = self._batch(link, () if begun else self._opening(link), statements)
                    if not begun:
                        reach(self._unit.site, Moment.BEGUN)
                    begun = True
                else:
                    rows = []
                if last:
                    break
                statements = attempt.go_on(rows)
            if begun:
                reach(self._unit.site, Moment.WRITTEN)
                attempt.committing = True
                link.talk([_COMMIT], self._until())
            return rows
        except (PerdureError, ServerError):
            if link.in_transaction:
                attempt.committing = False
                link.talk([_ROLLBACK], self._until())
            raise

    def _last_batch(self, link: Link, statements: Sequence[Statement], begun: bool) -> list[Rows]:
        """With its commit. Alone in its transaction, it needs no words for beginning and end."""
        if begun:
            return self._batch(link, (), statements, [_COMMIT])
        if self._unit.snapshot or self._unit.long:
            return self._batch(link, self._opening(link), statements, [_COMMIT])
        return self._batch(link, link.begin_with(), statements)

    def _batch(self, link: Link, before: Batch, statements: Sequence[Statement], after: Batch = ()) -> list[Rows]:
        if not IDLE.isdisjoint(statement.name for statement in statements):
            asked = [statement for statement in statements if statement.name not in IDLE]
            rows = iter(self._batch(link, before, asked, after))
            return [[] if statement.name in IDLE else next(rows) for statement in statements]
        if len(statements) < MANY_MIN:
            return self._exchange(link, before, statements, after)
        many = Gathered(statements)
        return many.spread(self._exchange(link, before, many.sent, after))

    def _exchange(self, link: Link, before: Batch, statements: Sequence[Statement], after: Batch) -> list[Rows]:
        try:
            answers = link.talk([*before, *statements, *after], self._until())
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

    def _opening(self, link: Link) -> Batch:
        unit = self._unit
        begin = _BEGIN_SNAPSHOT if unit.snapshot else _BEGIN
        return [begin, *link.begin_with(), *(link.no_hurry() if unit.long else ())]

    def _until(self) -> float:
        return time.monotonic() + self._pool.place.statement_seconds + ANSWER_SECONDS


def answered(pool: Pool, queries: Sequence[Statement], absence: Absence) -> list[Rows]:
    """The rows of queries that go out together; asked again on a new connection when one was lost."""
    patience = Patience(pool.place.reconnect_seconds, absence)
    while True:
        try:
            with pool.link(patience.until) as link:
                until = time.monotonic() + pool.place.statement_seconds + ANSWER_SECONDS
                before = link.begin_with()
                found = [answer.rows for answer in link.talk([*before, *queries], until)[len(before) :]]
            absence.over()
            return found
        except ServerError as error:
            if not error.again:
                raise translated(error, pool.place.shown) from error
            why: Exception = error
        except Cut as error:
            why = error
        patience.pause(why, pool.place.shown)
