"""The store for many machines: a schema in a PostgreSQL database.

`commit` commits one unit, `shared` the entries of many runs at once, `loop_commits` does so for event loops, `pool`
provides connections, `schema` creates and migrates the tables. Threads make the other commits of event loops: those
take several round trips and must proceed while the loop is blocked, for example by a synchronous call.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.platform.failpoints import is_armed
from perdure.store.answer_watch import AnswerWatch
from perdure.store.base import Rows, Statement, Store, UnitOfWork
from perdure.store.lanes import CommitLanes, CommitThreads, LaneTicket, commit_group, is_unwanted
from perdure.store.outage import ConnectionCut, OutagePatience, ServerAbsence
from perdure.store.postgres import schema
from perdure.store.postgres.backup import CopyStore
from perdure.store.postgres.commit import PostgresCommit, run_queries
from perdure.store.postgres.connection import PipelineConnection
from perdure.store.postgres.errors import (
    ServerError,
    connection_error,
    is_permanent,
    is_transient,
    translate_error,
)
from perdure.store.postgres.listen import Listener
from perdure.store.postgres.pool import ConnectionPool
from perdure.store.postgres.schema import ServerInfo, StoreFacts
from perdure.store.postgres.shared import SharedCommits, SharedUnit, shared
from perdure.store.postgres.url import parse
from perdure.store.schema_version import StoreVersions, compare_versions
from perdure.values.clock import Clock
from perdure.values.limits import OPEN_SECONDS_MAX

if TYPE_CHECKING:
    import asyncio

    from perdure.store.postgres.loop_commits import LoopCommits

T = TypeVar("T")


class PostgresStore(Store):
    """A schema of a database. Processes on many hosts may use it at once."""

    one_host = False

    def __init__(self, url: str, *, clock: Clock, durability: str = "full", create: bool = True) -> None:
        self._place = parse(url)
        self.url = self._place.shown
        self.clock = clock
        self.durability = durability
        self._pool = ConnectionPool(self._place, durability)
        self._listener = Listener(self._pool)
        self._absence = ServerAbsence(self.url)
        facts = _ask(self._pool, lambda link: schema.prepare_schema(link, self._place, create))
        self.secret, self.identity, self.stale = facts.secret, facts.identity, facts.stale
        self._lanes = _LANES.setdefault(self.identity, CommitLanes())
        self._workers = CommitThreads(self._lanes, self._place.pool_size)
        self._shared = SharedCommits(self._pool, self._absence)
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopCommits] = weakref.WeakKeyDictionary()
        self._pool.before_waiting = self._rescue
        super().__init__()

    def _submit(self, unit: UnitOfWork[T]) -> T:
        ticket = LaneTicket(unit)
        self._lanes.go(ticket, self._commit, self._rescue)
        result: T = ticket.get()
        return result

    async def _submit_async(self, unit: UnitOfWork[T]) -> T:
        if unit.shareable and not is_armed():
            ticket = LaneTicket(unit)
            if self._lanes.take(ticket):
                row = shared(ticket)
                if row is not None:
                    result: T = await self._loop_commits().commit(row)
                    return result
                self._lanes.give_back(ticket)
        return await self._workers.result_of(unit, self._commit)

    def read(self, name: str, args: tuple[Any, ...] = ()) -> Rows:
        [rows] = self.read_all([Statement(name, args)])
        return rows

    def read_all(self, queries: Sequence[Statement]) -> list[Rows]:
        self._check_open()
        return run_queries(self._pool, queries, self._absence)

    def watch(self, stream: int) -> Callable[[], bool]:
        self._check_open()
        return AnswerWatch(self._listener, stream)

    def backup(self, path: str, progress: Callable[[int, int], None] | None = None) -> int:
        self.submit(CopyStore(path, self.url, self.clock, progress))
        return os.path.getsize(path)

    def server(self) -> ServerInfo:
        """The server's settings, for `perdure doctor`."""
        self._check_open()
        with self._pool.link(time.monotonic() + self._place.connect_seconds) as link:
            return schema.server(link, self._place)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if not self._forked:
            self._listener.close()
            self._rescue()
            self._workers.close()
            self._pool.close()

    # -- inside -----------------------------------------------------------------------------------------------

    def _commit(self, group: Sequence[LaneTicket]) -> None:
        def commit_joint(joint: UnitOfWork[Any]) -> Any:
            return PostgresCommit(self._pool, joint, self._absence, partial(is_unwanted, group)).run()

        commit_group(group, commit_joint, self._commit_one)

    def _commit_one(self, ticket: LaneTicket) -> Any:
        """Commit a unit together with those of other lanes if possible, else alone."""
        unit = ticket.unit
        row = shared(ticket) if unit.shareable and not is_armed() else None
        if row is None:
            return PostgresCommit(self._pool, unit, self._absence, partial(is_unwanted, [ticket])).run()
        try:
            self._shared.submit(row)
        except BaseException:
            unit.settle(False)
            raise
        return row.result if row.landed else self._alone(row)

    def _alone(self, row: SharedUnit) -> Any:
        """Commit a unit that a shared commit has left out; look it up first if the answer was lost."""
        ticket, earlier = row.ticket, row.doubtful
        if earlier is None:
            row.attempt.script.close()
        return PostgresCommit(self._pool, ticket.unit, self._absence, partial(is_unwanted, [ticket]), earlier).run()

    def _loop_commits(self) -> LoopCommits:
        import asyncio

        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            from perdure.store.postgres.loop_commits import LoopCommits

            found = LoopCommits(self._pool, self._absence, self._lanes, self._workers, self._alone)
            self._loops[loop] = found
        return found

    def _rescue(self) -> None:
        """Receive what event loops have sent: this thread may block one of them."""
        for commits in list(self._loops.values()):
            commits.rescue()

    def _abandon(self) -> None:
        super()._abandon()
        self._pool.abandon()
        _LANES.clear()


def versions_of(url: str) -> StoreVersions:
    """Compare the schema of a store with this program, without changing it."""
    place = parse(url)
    pool = ConnectionPool(place, "full")
    try:
        facts = _ask(pool, lambda link: schema.read_facts(link, place))
    finally:
        pool.close()
    return compare_versions("postgres", facts.version, facts.oldest)


def _ask(pool: ConnectionPool, work: Callable[[PipelineConnection], StoreFacts]) -> StoreFacts:
    """Run `work` on a temporary connection before the store is open."""
    place = pool.place
    patience, hope = (
        OutagePatience(place.reconnect_seconds),
        OutagePatience(min(OPEN_SECONDS_MAX, place.reconnect_seconds)),
    )
    while True:
        try:
            link = pool.connect(patience.until)
        except ConnectionCut as error:
            if is_permanent(error) or (not is_transient(error) and time.monotonic() > hope.until):
                raise connection_error(str(error), place.shown) from error
            patience.pause(error, place.shown)
            continue
        try:
            return work(link)
        except (ConnectionCut, ServerError) as error:
            if isinstance(error, ServerError) and not error.is_retryable:
                raise translate_error(error, place.shown) from error
            patience.pause(error, place.shown)
        finally:
            pool.close_link(link)


_LANES: dict[str, CommitLanes] = {}
"""By store, for the whole process: several instances of one store share its streams."""
