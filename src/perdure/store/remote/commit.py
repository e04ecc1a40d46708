"""Commits one unit on a server: the script runs here, its batches are replayed there.

Each request carries all batches so far and a summary of the rows that the script has seen. The last batch travels
together with the commit, so a step is one round trip. A lost answer leaves the outcome unknown: the unit is looked up
by its proof, submitted again if it is missing, and looked up again if that fails, because the first request may have
arrived late. The primary key of an entry and the lock on its lease admit only one of them.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from perdure.errors import PerdureError, StoreBusy, StoreUnavailable
from perdure.platform import interrupts
from perdure.platform.failpoints import CommitMoment, reach
from perdure.store.attempt import CommitAttempt
from perdure.store.base import FinalBatch, Overtaken, Rows, Statement, UnitOfWork
from perdure.store.outage import CancelCheck, ConnectionCut, OutagePatience, ServerAbsence
from perdure.store.remote.transport import HttpLinks, HttpRefusal, RequestCut
from perdure.store.remote.wire import (
    BATCHES_MAX,
    COMMIT,
    READ,
    CommitRequest,
    ReadRequest,
    SeenRows,
    UnitOutcome,
    UnitProgress,
    WireStatement,
    WireUnit,
    decode_outcomes,
    decode_rows,
    encode,
    read_error,
    summarize_rows,
    write_statements,
    write_unit,
)

T = TypeVar("T")

OVERTAKEN_MAX = 200
"""Retries because another process was faster; each time one of the others made progress."""

REFUSALS_MAX = 2
"""Refusals in a row while nothing has changed. The server has repeated the unit itself, so its content is at fault;
the second try finds out whether the first one had landed."""

TURN_AFTER = 2
"""After so many retries, the client asks for a turn: then other clients wait for it."""

ANSWER_SECONDS = 2.0
"""Network time allowed in addition to the time of the statements."""

LONG_SECONDS_MAX = 3600.0
"""How long a unit of maintenance may take."""

WireBatch = tuple[WireStatement, ...]


class RemoteCommit(Generic[T]):
    """The commit of one unit, with retries."""

    def __init__(
        self,
        links: HttpLinks,
        unit: UnitOfWork[T],
        absence: ServerAbsence,
        unwanted: CancelCheck = interrupts.is_pending,
        earlier: CommitAttempt[T] | None = None,
    ) -> None:
        self._links = links
        self._unit = unit
        self._absence = absence
        seconds = links.place.reconnect_seconds
        if unit.seconds is not None:
            seconds = min(seconds, unit.seconds)
        self._patience = OutagePatience(seconds, absence, unit.lane, unwanted)
        self._attempt: CommitAttempt[T] | None = None
        self._doubtful: list[CommitAttempt[T]] = [earlier] if earlier is not None else []
        """Attempts whose answer was lost."""
        self._overtaken = 0
        self._refusals = 0
        self._turn = ""
        self._conditions: dict[str, type[PerdureError]] = {}
        """The errors of the statements, by the names that the server knows them by."""
        self._known: list[tuple[WireBatch, list[Rows]]] = []
        """Batches of the last attempt with their rows, all from one transaction of the server."""

    def run(self) -> T:
        """Commit; when this returns, the unit is durable and has been applied once."""
        try:
            while True:
                try:
                    return self._try()
                except Overtaken as error:
                    self._unit.settle(False)
                    self._note_overtaken(error)
                    continue
                except (ConnectionCut, HttpRefusal) as error:
                    self._judge(error)
                    why: Exception = error
                self._patience.pause(why, self._links.place.shown)
        except BaseException:
            self._unit.settle(False)
            raise

    def _note_overtaken(self, error: Overtaken) -> None:
        self._overtaken += 1
        if self._refusals >= REFUSALS_MAX:
            raise error
        if self._overtaken > OVERTAKEN_MAX:
            raise StoreBusy("other processes were faster each time; nothing was written")
        if self._overtaken >= TURN_AFTER and not self._turn:
            self._turn = secrets.token_hex(8)

    def _try(self) -> T:
        """Look for a landed attempt, else commit; if that fails, look again."""
        if self._doubtful and self._has_landed():
            return self._finish(self._doubtful[0])
        self._attempt = attempt = CommitAttempt(self._unit)
        try:
            rows = self._perform(attempt)
        except Overtaken:
            attempt.script.close()
            raise
        except PerdureError:
            self._unit.settle(False)
            if self._doubtful and self._has_landed():
                return self._finish(self._doubtful[0])
            raise
        return self._finish(attempt, rows)

    def _judge(self, error: ConnectionCut | HttpRefusal) -> None:
        """Record an attempt with unknown outcome; raise errors that are not retried."""
        attempt, self._attempt = self._attempt, None
        unknown = isinstance(error, RequestCut) and error.sent
        if unknown and attempt is not None and attempt.committing:
            self._doubtful.append(attempt)
        else:
            if attempt is not None:
                attempt.script.close()  # releases its resources before the retry
            self._unit.settle(False)
        if isinstance(error, HttpRefusal):
            if not error.is_retryable:
                raise error.translate(self._links.place.shown) from error
            time.sleep(min(error.wait_seconds, max(0.0, self._patience.until - time.monotonic())))

    def _finish(self, attempt: CommitAttempt[T], rows: list[Rows] | None = None) -> T:
        self._absence.note_answer()
        result = attempt.finish(rows or [])
        self._unit.settle(True)
        return result

    def _has_landed(self) -> bool:
        """Whether a doubtful attempt has landed; if so, it becomes the only one."""
        for attempt in self._doubtful:
            if attempt.proof is not None:
                [rows] = read_remote(self._links, [attempt.proof.query], self._patience.until)
                if rows == attempt.proof.rows:
                    self._doubtful = [attempt]
                    return True
        return False

    def _perform(self, attempt: CommitAttempt[T]) -> list[Rows]:
        """Run the script; return the rows of the last batch."""
        batches: list[WireBatch] = []
        seen: list[SeenRows] = []
        rows: list[Rows] = []
        statements = attempt.start()
        while not attempt.ended:
            last = isinstance(statements, FinalBatch)
            if statements:
                self._conditions |= {one.must.__name__: one.must for one in statements if one.must is not None}
                batches.append(write_statements(statements))
                if last:
                    attempt.proof = statements.proof  # type: ignore[attr-defined]
                    return self._send(attempt, batches, seen, commit=True)
                rows = self._recall(batches) or self._send(attempt, batches, seen, commit=False)
                seen.append(summarize_rows(batches[-1], rows))
            else:
                rows = []
                if last:
                    break
            statements = attempt.go_on(rows)
        if batches:
            self._send(attempt, batches, seen, commit=True)
        return rows

    def _recall(self, batches: list[WireBatch]) -> list[Rows] | None:
        """Return the rows that the server gave for these batches when it overtook the last attempt."""
        place = len(batches) - 1
        if place < len(self._known) and self._known[place][0] == batches[place]:
            return self._known[place][1]
        del self._known[place:]
        return None

    def _send(
        self, attempt: CommitAttempt[T], batches: list[WireBatch], seen: Sequence[SeenRows], *, commit: bool
    ) -> list[Rows]:
        if len(batches) > BATCHES_MAX:
            raise StoreUnavailable(
                f"this takes more than {BATCHES_MAX} exchanges in one transaction; nothing was written",
                hint="run it on the machine of the server: perdure ... --store ...",
            )
        # The failpoints inside the transaction: here the client dies before the server commits.
        if len(batches) == 1:
            reach(self._unit.site, CommitMoment.BEGUN)
        if commit:
            reach(self._unit.site, CommitMoment.WRITTEN)
        unit = write_unit(self._unit, batches, seen=tuple(seen), commit=commit, turn=self._turn)
        attempt.committing = commit
        [outcome] = send_units(self._links, [unit], self._patience.until, long=self._unit.long)
        rows: list[Rows] = outcome.rows
        if outcome.progress == UnitProgress.OVERTAKEN:
            attempt.committing, self._refusals = False, 0
            before = self._known[: outcome.index]
            self._known = [*before, (batches[outcome.index], rows)] if len(before) == outcome.index else []
            raise Overtaken
        if outcome.error is not None:
            attempt.committing = False
            own = self._conditions.get(outcome.error.name)
            refusal = own() if own is not None else read_error(outcome.error)
            self._refusals += isinstance(refusal, Overtaken)
            raise refusal
        if not commit:
            self._known = [*self._known[: len(batches) - 1], (batches[-1], rows)]
        return rows


def send_units(links: HttpLinks, units: Sequence[WireUnit], until: float, *, long: bool = False) -> list[UnitOutcome]:
    """Send units in one request and return their outcomes."""
    seconds = (LONG_SECONDS_MAX if long else links.place.statement_seconds) + ANSWER_SECONDS
    data = links.exchange(COMMIT, encode(CommitRequest(tuple(units))), until, seconds)
    outcomes = _decoded(decode_outcomes, data)
    if len(outcomes) != len(units):
        raise RequestCut("the answer does not fit the request", sent=True)
    return outcomes


def read_remote(links: HttpLinks, queries: Sequence[Statement], until: float) -> list[Rows]:
    """Run queries on the server, in one round trip and without retries."""
    return _rows_of(links.exchange(READ, encode(ReadRequest(write_statements(queries))), until), len(queries))


def _rows_of(data: bytes, count: int) -> list[Rows]:
    answer = _decoded(decode_rows, data)
    if answer.error is not None:
        raise read_error(answer.error)
    if len(answer.rows) != count:
        raise StoreUnavailable("the answer of the server does not fit the request")
    return answer.rows


def _decoded(decode: Callable[[bytes], T], data: bytes) -> T:
    try:
        return decode(data)
    except msgspec.MsgspecError as error:
        raise RequestCut(f"the answer is not Perdure's: {error}", sent=True) from error


def run_remote_queries(links: HttpLinks, queries: Sequence[Statement], absence: ServerAbsence) -> list[Rows]:
    """Run queries; retry while the server is away."""
    body = encode(ReadRequest(write_statements(queries)))
    return _rows_of(request_again(links, READ, body, absence), len(queries))


def request_again(links: HttpLinks, path: str, body: bytes, absence: ServerAbsence) -> bytes:
    """Make a request that may be repeated; retry on a new connection while the server is away."""
    patience = OutagePatience(links.place.reconnect_seconds, absence)
    while True:
        try:
            answer = links.exchange(path, body, patience.until)
            absence.note_answer()
            return answer
        except HttpRefusal as error:
            if not error.is_retryable:
                raise error.translate(links.place.shown) from error
            time.sleep(min(error.wait_seconds, max(0.0, patience.until - time.monotonic())))
            why: Exception = error
        except ConnectionCut as error:
            why = error
        patience.pause(why, links.place.shown)
