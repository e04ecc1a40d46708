"""Shared commits of an event loop: its own thread sends and receives them and never waits.

So a commit costs no change of threads, and units that are ready in the same iteration of the loop go together. A
blocked loop receives no answer: then a thread that waits for a lane or a connection receives it (`rescue`). Without an
idle connection, a thread opens one and commits.
"""

from __future__ import annotations

import asyncio
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from perdure.errors import PerdureError
from perdure.platform import interrupts
from perdure.store.lanes import CommitLanes, CommitThreads
from perdure.store.outage import ConnectionCut, ServerAbsence
from perdure.store.postgres.connection import LOOK_UP_SECONDS, PendingReply, PipelineConnection, StatementResult
from perdure.store.postgres.errors import ServerError
from perdure.store.postgres.pool import ConnectionPool
from perdure.store.postgres.shared import SharedCommit, SharedUnit, deadline

UNITS_MAX = 32
"""Units of one shared commit. More runs share several commits, so that server and loop work at the same time."""

UNDER_WAY_MAX = 4
"""Shared commits of one loop at the same time."""

OVERLAP_MIN = 16
"""Units that do not wait for the commit that is under way: fewer share the next one, and its sync."""

CHECK_SECONDS = 1.0
"""How often the loop looks for answers that are overdue."""


class CommitFuture(asyncio.Future[Any]):
    """The outcome of a unit. A cancelled task still waits for it and is cancelled afterwards."""

    def __init__(self, unit: SharedUnit, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self.unit = unit

    def cancel(self, msg: Any | None = None) -> bool:
        """Refuse: then asyncio delivers the cancellation when the future is done."""
        ticket = self.unit.ticket
        if not ticket.unwanted:
            ticket.give_up()
            self.add_done_callback(_ignore)
        return False

    def resolve(self) -> None:
        """Set the outcome that the ticket has; in the thread of the loop."""
        ticket = self.unit.ticket
        if ticket.error is not None:
            self.set_exception(ticket.error)
        else:
            self.set_result(ticket.result)


def _ignore(future: asyncio.Future[Any]) -> None:
    future.exception()  # the cancelled task does not ask for it


class _UnderWay:
    """A shared commit that was sent. Whoever holds the mutex may receive its answer."""

    __slots__ = ("commit", "done", "futures", "link", "mutex", "reply", "socket", "until", "writes")

    def __init__(self, link: PipelineConnection, futures: Sequence[CommitFuture], commit: SharedCommit) -> None:
        self.link = link
        self.socket = link.connection.socket
        self.futures = futures
        self.commit = commit
        self.reply: PendingReply | None = None
        self.until = 0.0
        self.writes = False
        """Whether the server has not accepted everything yet."""
        self.done = False
        self.mutex = threading.Lock()


class LoopCommits:
    """The shared commits of one event loop and one store."""

    def __init__(
        self,
        pool: ConnectionPool,
        absence: ServerAbsence,
        lanes: CommitLanes,
        workers: CommitThreads,
        alone: Callable[[SharedUnit], Any],
    ) -> None:
        self._pool = pool
        self._absence = absence
        self._lanes = lanes
        self._workers = workers
        self._alone = alone
        self._queue: deque[CommitFuture] = deque()
        self._kicked = self._checking = False
        self._lone = False
        """Whether the last commit had one unit. Then no other task is expected to join the next one."""
        self._under_way: dict[int, _UnderWay] = {}
        """By socket."""
        self._in_threads = 0
        self._epoll = _attached(self._receive)

    def commit(self, unit: SharedUnit) -> CommitFuture:
        """Queue a unit that has taken its turn; the future ends the turn and has its outcome."""
        future = CommitFuture(unit, asyncio.get_running_loop())
        self._queue.append(future)
        if self._lone and not self._under_way and not self._kicked:
            self._send()
        else:
            self._send_soon()
        return future

    def rescue(self) -> None:
        """Send and receive in other threads than the loop's; returns when nothing is under way."""
        if futures := self._take():
            self._workers.start(partial(self._commit_here, futures))
        for sent in list(self._under_way.values()):
            with sent.mutex:
                if not sent.done:
                    self._forget(sent)
                    self._await(sent)

    # -- in the loop ------------------------------------------------------------------------------------------

    def _take(self) -> list[CommitFuture]:
        taken: list[CommitFuture] = []
        with suppress(IndexError):  # another thread has taken the last one
            while self._queue and len(taken) < UNITS_MAX:
                taken.append(self._queue.popleft())
        return taken

    def _send_soon(self) -> None:
        # Deferred, so that all tasks that are ready in this iteration of the loop join the commit.
        if not self._kicked:
            self._kicked = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        """Send the queue, unless enough is under way; then the end of a commit sends on."""
        self._kicked = False
        while self._queue:
            under_way = len(self._under_way) + self._in_threads
            if under_way >= UNDER_WAY_MAX or (under_way and len(self._queue) < OVERLAP_MIN):
                return
            futures = self._take()
            self._lone = len(futures) == 1
            link = self._pool.idle_link() if self._epoll is not None else None
            if link is not None:
                self._depart(link, futures)
            elif futures:
                self._in_threads += 1
                self._workers.start(partial(self._commit_in_thread, futures))

    def _depart(self, link: PipelineConnection, futures: list[CommitFuture]) -> None:
        assert self._epoll is not None
        sent = _UnderWay(link, futures, SharedCommit([future.unit for future in futures], self._absence))
        error: ConnectionCut | None = ConnectionCut("interrupted")
        try:
            sent.reply = sent.commit.begin(link)
            sent.until, sent.writes, error = deadline(self._pool), not sent.reply.flushed, None
        except ConnectionCut as cut:
            error = cut
        finally:
            if error is not None:
                self._end(sent, None, error)
        if error is None:
            self._under_way[sent.socket] = sent
            self._epoll.register(sent.socket, select.EPOLLIN | (select.EPOLLOUT if sent.writes else 0))
            self._check_later()

    def _receive(self) -> None:
        """Receive answers; called by the loop when a connection is readable."""
        assert self._epoll is not None
        for socket, _ in self._epoll.poll(0):
            sent = self._under_way.get(socket)
            if sent is not None and sent.mutex.acquire(blocking=False):
                try:
                    if not sent.done:
                        self._advance(sent)
                finally:
                    sent.mutex.release()
        if self._queue:
            self._send_soon()  # after the tasks whose answers have come: they join it

    def _advance(self, sent: _UnderWay) -> None:
        assert self._epoll is not None
        assert sent.reply is not None
        results: list[StatementResult] | None = None
        error: ConnectionCut | ServerError | None = ConnectionCut("interrupted")
        try:
            results, error = sent.reply.advance(), None
        except (ConnectionCut, ServerError) as problem:
            error = problem
        finally:
            if error is not None or results is not None:
                self._end(sent, results, error)
        if sent.writes and not sent.done and sent.reply.flushed:
            sent.writes = False
            self._epoll.modify(sent.socket, select.EPOLLIN)

    def _end(
        self,
        sent: _UnderWay,
        results: list[StatementResult] | None,
        error: ConnectionCut | ServerError | None,
        *,
        elsewhere: bool = False,
    ) -> None:
        """Return the connection and settle the units."""
        sent.done = True
        self._forget(sent)
        good = error is None or (isinstance(error, ServerError) and not error.gone)
        try:
            if results is not None:
                sent.commit.finish(results)
            elif error is not None:
                sent.commit.fail(error)
        finally:
            self._pool.release(sent.link, good)
            self._settle(sent.futures, elsewhere=elsewhere)

    def _forget(self, sent: _UnderWay) -> None:
        """Let the loop watch the connection no longer."""
        if self._under_way.get(sent.socket) is sent and self._epoll is not None:
            del self._under_way[sent.socket]
            with suppress(OSError):  # libpq has closed the socket
                self._epoll.unregister(sent.socket)

    def _check_later(self) -> None:
        if not self._checking:
            self._checking = True
            asyncio.get_running_loop().call_later(CHECK_SECONDS, self._check)

    def _check(self) -> None:
        """Give up answers that are overdue; earlier if the process was asked to end."""
        self._checking = False
        for sent in list(self._under_way.values()):
            if interrupts.is_pending():
                sent.until = min(sent.until, time.monotonic() + LOOK_UP_SECONDS)
            if time.monotonic() > sent.until and sent.mutex.acquire(blocking=False):
                try:
                    if not sent.done:
                        self._end(sent, None, ConnectionCut("the server did not answer in time"))
                finally:
                    sent.mutex.release()
        if self._under_way:
            self._check_later()
        self._send_soon()

    # -- in other threads -------------------------------------------------------------------------------------

    def _await(self, sent: _UnderWay) -> None:
        assert sent.reply is not None
        results: list[StatementResult] | None = None
        error: ConnectionCut | ServerError | None = ConnectionCut("interrupted")
        try:
            results, error = sent.reply.wait(sent.until), None
        except (ConnectionCut, ServerError) as problem:
            error = problem
        finally:
            self._end(sent, results, error, elsewhere=True)

    def _commit_in_thread(self, futures: Sequence[CommitFuture]) -> None:
        try:
            self._commit_here(futures)
        finally:
            _tell(futures[0].get_loop(), self._returned)

    def _returned(self) -> None:
        self._in_threads -= 1
        self._send_soon()

    def _commit_here(self, futures: Sequence[CommitFuture]) -> None:
        try:
            SharedCommit([future.unit for future in futures], self._absence).run(self._pool)
        except PerdureError as error:  # no connection was free
            for future in futures:
                future.unit.ticket.unit.settle(False)
                future.unit.ticket.settle(error=error)
        finally:
            self._settle(futures, elsewhere=True)

    def _settle(self, futures: Sequence[CommitFuture], *, elsewhere: bool) -> None:
        """End the turns of units that have an outcome; the others commit alone."""
        over = []
        for future in futures:
            unit = future.unit
            if unit.landed:
                unit.ticket.settle(unit.result)
            if unit.ticket.settled:
                self._lanes.give_back(unit.ticket)
                over.append(future)
            else:
                self._workers.start(partial(self._go_on, future))
        if over and elsewhere:
            _tell(over[0].get_loop(), partial(_resolve, over))
        else:
            _resolve(over)

    def _go_on(self, future: CommitFuture) -> None:
        ticket = future.unit.ticket
        try:
            ticket.settle(self._alone(future.unit))
        except BaseException as error:  # raised in the task, not in this thread
            ticket.settle(error=error)
        self._lanes.give_back(ticket)
        _tell(future.get_loop(), future.resolve)


def _resolve(futures: Sequence[CommitFuture]) -> None:
    for future in futures:
        future.resolve()


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    with suppress(RuntimeError):  # the loop is closed, and nobody waits
        loop.call_soon_threadsafe(callback)


def _attached(receive: Callable[[], object]) -> select.epoll | None:
    """Let the loop watch a set of connections that any thread may change; None where that is not possible."""
    if not hasattr(select, "epoll"):
        return None
    watched = select.epoll()
    try:
        asyncio.get_running_loop().add_reader(watched.fileno(), receive)
    except NotImplementedError:
        watched.close()
        return None
    return watched
