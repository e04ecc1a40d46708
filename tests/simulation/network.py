"""Connections: the server's end (`Session`), the client's (`Link`, `Pool`), and what can befall a message.

`Pool` and `Link` stand in for those of `store/postgres/pool.py` and `postgres_link.py`, so that the real
`PostgresCommit` drives them: what is repeated, looked up and given up is decided by the code that ships.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.errors import PerdureError
from perdure.store.base import Statement
from perdure.store.outage import ConnectionCut
from perdure.store.postgres.errors import NOT_NULL, UNIQUE, ServerError
from perdure.values.limits import (
    CONNECT_SECONDS_MAX,
    RECONNECT_SECONDS_MAX,
    SERVER_LOCK_SECONDS_MAX,
    STATEMENT_SECONDS_MAX,
)
from tests.simulation.database import Duplicate, Transaction
from tests.simulation.statements import STATEMENTS, Rows
from tests.simulation.world import Signal, Steps, Wait

if TYPE_CHECKING:
    from tests.simulation.history import History
    from tests.simulation.hosts import Process

LOCK_TIMEOUT, SHUTDOWN = "55P03", "57P01"
CONNECT_MS = int(CONNECT_SECONDS_MAX * 1000)
LOCK_MS = int(SERVER_LOCK_SECONDS_MAX * 1000)


class Answer(msgspec.Struct, frozen=True):
    """What came back for one statement."""

    rows: Rows
    changed: int


class Place(msgspec.Struct, frozen=True):
    """How long a client is patient, in seconds."""

    reconnect_seconds: float = RECONNECT_SECONDS_MAX
    statement_seconds: float = STATEMENT_SECONDS_MAX
    shown: str = "the simulated server"


class Session:
    """The server's end of a connection: one transaction at a time."""

    def __init__(self, history: History, client: Process) -> None:
        self._history = history
        self._world = history.world
        self._client = client.name
        self._host = client.host
        self.transaction: Transaction | None = None
        self._explicit = False
        self._failed = False
        self._last_message = 0
        self.closed = False

    @property
    def in_transaction(self) -> bool:
        """Begun and not ended."""
        return self._explicit

    def receive(self, batch: Sequence[Any], reply: Signal, fate: Fate) -> Steps:
        """Do what a message says, and send the answer back, if it is its fate to be answered."""
        if self.closed:
            self._world.fire(reply, ConnectionCut("the connection is closed"))
            return
        self._last_message += 1
        serial = self._last_message
        outcome = yield from self._execute(batch)
        if self.closed:
            self._world.fire(reply, ConnectionCut("the connection was closed"))
            return
        if self.transaction is not None:
            self._world.spawn(self._watch(serial), None, CONNECT_MS)
        if fate.answered:
            yield fate.answer_ms + self._history.reply_ms(self._host)
            self._world.fire(reply, outcome)

    def close(self) -> None:
        """The client is gone, or the server is: whatever was open is undone."""
        self.closed = True
        if self.transaction is not None:
            self._end(commit=False)

    def _watch(self, serial: int) -> Steps:
        """A transaction in which nothing happens any more is ended, so that nobody waits for it for ever."""
        yield 0
        if self.transaction is not None and self._last_message == serial and not self.closed:
            self.close()

    def _execute(self, batch: Sequence[Any]) -> Steps:
        answers: list[Answer] = []
        for index, statement in enumerate(batch):
            if took := self._history.statement_ms():
                yield took
            if self.closed:
                return None
            try:
                answers.append((yield from self._execute_one(statement)))
            except ServerError as error:
                error.index = index
                self._failed = self._explicit
                if self.transaction is not None:
                    self._end(commit=False)
                return error
        if self.transaction is not None and not self._explicit:
            yield self._history.statement_ms()
            if self.closed:
                return None
            self._end(commit=True)
        return answers

    def _execute_one(self, statement: Any) -> Steps:
        if isinstance(statement, Statement):
            return (yield from self._execute_named(statement))
        verb = statement.text.split()[0]
        if verb == b"BEGIN":
            self._explicit = True
            self.transaction = Transaction(self._history.database)
        elif verb in (b"COMMIT", b"ROLLBACK"):
            if self.transaction is not None:
                self._end(commit=verb == b"COMMIT" and not self._failed)
            self._explicit = self._failed = False
        return Answer([], 0)
        yield

    def _execute_named(self, statement: Statement) -> Steps:
        if self._failed:
            raise ServerError("25P02", "the transaction is aborted", 0)
        if self.transaction is None:
            self.transaction = Transaction(self._history.database)
        executing = STATEMENTS[statement.name](self.transaction, self._history.server, *statement.args)
        try:
            blocker = next(executing)
            while True:
                if not (yield Wait(blocker.ended, LOCK_MS)):
                    raise ServerError(LOCK_TIMEOUT, "a row stayed locked", 0)
                if self.closed:
                    raise ServerError(SHUTDOWN, "the session was ended", 0)
                blocker = executing.send(None)
        except StopIteration as stop:
            rows, changed = stop.value
        except Duplicate as error:
            raise ServerError(UNIQUE, str(error), 0) from error
        self._history.rules.note_executed(statement)
        if self._world.lines is not None:
            self._world.note(
                "server", f"{self._client}: {statement.name}{format_arguments(statement)} -> {changed or len(rows)}"
            )
        if statement.must is not None and changed != 1:
            raise ServerError(NOT_NULL, f"{statement.name} changed {changed} rows", 0)
        return Answer(rows, changed)

    def _end(self, *, commit: bool) -> None:
        transaction, self.transaction = self.transaction, None
        assert transaction is not None
        if commit:
            self._history.rules.note_committed(transaction)
            transaction.commit()
        else:
            transaction.abort()
        if self._world.lines is not None:
            self._world.note("server", f"{self._client}: {'COMMIT' if commit else 'rolled back'}")
        self._world.fire(transaction.ended)


def format_arguments(statement: Statement) -> str:
    """The arguments, short enough for a trace."""
    texts = [f"{len(arg)} bytes" if isinstance(arg, bytes) else str(arg) for arg in statement.args[:7]]
    return f"({', '.join(texts)})"


class Link:
    """The client's end of a connection."""

    def __init__(self, process: Process, session: Session) -> None:
        self._process = process
        self._history = process.history
        self._session = session
        self.cut = False

    @property
    def in_transaction(self) -> bool:
        """As the client knows it."""
        return self._session.in_transaction and not self.cut

    def begin_with(self) -> Sequence[Any]:
        """No pooler here."""
        return ()

    def configure_patience(self) -> Sequence[Any]:
        """Nor long transactions."""
        return ()

    def send_batch(self, batch: Sequence[Any], until: float) -> Steps:
        """Send a message and wait for its answer: it may be lost, late, cut off, or answered to nobody."""
        history, world = self._history, self._history.world
        fate = history.fate_of_a_message(self._process, batch)
        reply = Signal()
        if fate.delay is not None:
            self._deliver(batch, reply, fate)
        wait = int(until * 1000) - world.now
        if fate.noticed is not None:
            wait = min(wait, fate.noticed)
        if self._process.tracing:
            names = " ".join(getattr(statement, "name", None) or statement.text.decode() for statement in batch)
            self._process.note(f"sends {names}{fate}")
        if history.dies(self._process):
            yield Wait(Signal())
        if not (yield Wait(reply, max(wait, 0))):
            self.cut = True
            raise ConnectionCut("no answer")
        if isinstance(reply.value, Exception):
            self.cut = isinstance(reply.value, ConnectionCut)
            raise reply.value
        return reply.value

    def _deliver(self, batch: Sequence[Any], reply: Signal, fate: Fate) -> None:
        assert fate.delay is not None
        self._history.world.spawn(self._session.receive(batch, reply, fate), None, fate.delay)
        self._session_busy_until = self._history.world.now + fate.delay

    _session_busy_until = 0

    def close(self) -> None:
        """Let go of it. The server hears of that later, but not before what was sent earlier."""
        world = self._history.world
        hears = max(world.now, self._session_busy_until) + world.between(1, 15_000)
        world.spawn(_close_session(self._session), None, hears - world.now)


def _close_session(session: Session) -> Steps:
    session.close()
    return
    yield


class Fate(msgspec.Struct, frozen=True):
    """What becomes of a message and of its answer; times in milliseconds."""

    delay: int | None
    """Until it arrives; None: never."""
    answered: bool = True
    answer_ms: int = 0
    """What the answer takes longer than usual."""
    noticed: int | None = None
    """When the client is told that the connection is gone; None: it waits for as long as it has patience."""

    def __str__(self) -> str:
        if self.delay is None:
            return ": lost"
        if self.answer_ms:
            return f": its answer takes {self.answer_ms} ms"
        late = f": arrives after {self.delay} ms" if self.delay > 100 else ""
        return late + (": its answer is lost" if not self.answered else "")


class Pool:
    """The connections of one process."""

    def __init__(self, process: Process) -> None:
        self.place = Place()
        self._process = process
        self._history = process.history
        self._idle: list[Link] = []
        self._all: list[Session] = []

    def link(self, until: float) -> Steps:
        """A connection, new or used; to be used in a `with` block."""
        if self._idle:
            return Borrowed(self, self._idle.pop())
        history = self._history
        fate = history.fate_of_a_message(self._process)
        if fate.delay is None or fate.delay > CONNECT_MS or not fate.answered or history.server_is_down():
            yield history.world.between(1, CONNECT_MS)
            raise ConnectionCut("no connection")
        yield fate.delay
        session = history.connect(self._process)
        self._all = [one for one in self._all if not one.closed] + [session]
        return Borrowed(self, Link(self._process, session))

    def release(self, link: Link, *, good: bool) -> None:
        """Back into the pool, or closed with its idle neighbours."""
        if good and not link.cut and not link.in_transaction:
            self._idle.append(link)
            return
        link.close()
        while not good and self._idle:
            self._idle.pop().close()

    def drop_all(self) -> None:
        """The process has died: its sockets are closed by the system, and the server hears of that in time."""
        world = self._history.world
        for session in self._all:
            world.spawn(_close_session(session), None, world.between(1, 12_000))


class Borrowed:
    """A connection in use, given back as `postgres_pool.Pool.link` does."""

    def __init__(self, pool: Pool, link: Link) -> None:
        self._pool = pool
        self._link = link

    def __enter__(self) -> Link:
        return self._link

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        good = kind is None or (isinstance(error, ServerError) and not error.gone) or isinstance(error, PerdureError)
        self._pool.release(self._link, good=good)
