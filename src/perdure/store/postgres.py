"""The store for many machines: a schema in a PostgreSQL database.

Nothing here decides anything: `postgres_commit` knows how a unit gets in, `postgres_pool` where connections come from,
`postgres_schema` what is in the database. A commit from an event loop is made by a thread beside it, as with SQLite:
it must go on when the loop stands still, for example because a task waits for a commit without awaiting it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from .. import interrupts
from ..clock import Clock
from ..errors import PerdureError, StoreProblem
from ..failpoints import armed
from ..limits import OPEN_SECONDS_MAX
from . import postgres_schema
from .base import Rows, Statement, Store, Unit
from .lanes import Lanes, Ticket, Workers
from .postgres_absence import Absence
from .postgres_commit import Commit, Patience, answered
from .postgres_copy import Copy
from .postgres_errors import Cut, ServerError, hopeful, hopeless, refused, translated
from .postgres_link import Link
from .postgres_listen import Listener, Watch
from .postgres_pool import Pool
from .postgres_schema import Facts, Server
from .postgres_url import parse
from .versions import Versions, compared

T = TypeVar("T")


class PostgresStore(Store):
    """A schema of a database. Processes on many hosts may use it at once."""

    one_host = False

    def __init__(self, url: str, *, clock: Clock, durability: str = "full", create: bool = True) -> None:
        self._place = parse(url)
        self.url = self._place.shown
        self.clock = clock
        self.durability = durability
        self._pool = Pool(self._place, durability)
        self._listener = Listener(self._pool)
        self._absence = Absence(self.url)
        facts = _ask(self._pool, lambda link: postgres_schema.prepared(link, self._place, create))
        self.secret, self.identity, self.stale = facts.secret, facts.identity, facts.stale
        self._lanes = _LANES.setdefault(self.identity, Lanes())
        self._workers = Workers(self._lanes, self._place.pool_size)
        super().__init__()

    def _submit(self, unit: Unit[T]) -> T:
        ticket = Ticket(unit)
        self._lanes.go(ticket, self._commit)
        result: T = ticket.get()
        return result

    async def _submit_async(self, unit: Unit[T]) -> T:
        return await self._workers.result_of(unit, self._commit)

    def read(self, name: str, args: tuple[Any, ...] = ()) -> Rows:
        [rows] = self.read_all([Statement(name, args)])
        return rows

    def read_all(self, queries: Sequence[Statement]) -> list[Rows]:
        self._must_be_open()
        return answered(self._pool, queries, self._absence)

    def watch(self, stream: int) -> Callable[[], bool]:
        self._must_be_open()
        return Watch(self._listener, stream)

    def backup(self, path: str, progress: Callable[[int, int], None] | None = None) -> int:
        self.submit(Copy(path, self.url, self.clock, progress))
        return os.path.getsize(path)

    def server(self) -> Server:
        """What the server says about itself, for doctor."""
        self._must_be_open()
        with self._pool.link(time.monotonic() + self._place.connect_seconds) as link:
            return postgres_schema.server(link, self._place)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if not self._forked:
            self._listener.close()
            self._workers.close()
            self._pool.close()

    # -- inside -----------------------------------------------------------------------------------------------

    def _commit(self, group: Sequence[Ticket]) -> None:
        """Commit units of one lane: as one if they can be, else one after the other."""
        first, *rest = group
        joint = first.unit.joined([ticket.unit for ticket in rest]) if rest and not armed() else None
        if joint is not None:
            joint.lane = first.unit.lane
            try:
                results = Commit(self._pool, joint, self._absence, partial(_unwanted, group)).run()
            except StoreProblem as error:
                results = None
                for ticket in group:
                    ticket.settle(error=error)
            except PerdureError:
                results = None  # it is the fault of one of them: each hears for itself
            for ticket, result in zip(group, results or (), strict=False):
                ticket.settle(result)
        for ticket in group:
            if not ticket.settled:
                try:
                    alone = Commit(self._pool, ticket.unit, self._absence, partial(_unwanted, [ticket]))
                    ticket.settle(alone.run())
                except PerdureError as error:
                    ticket.settle(error=error)

    def _abandon(self) -> None:
        super()._abandon()
        self._pool.abandon()
        _LANES.clear()


def versions_of(url: str) -> Versions:
    """The schema of a store as it is, beside this program; nothing is changed."""
    place = parse(url)
    pool = Pool(place, "full")
    try:
        facts = _ask(pool, lambda link: postgres_schema.found(link, place))
    finally:
        pool.close()
    return compared("postgres", facts.version, facts.oldest)


def _ask(pool: Pool, work: Callable[[Link], Facts]) -> Facts:
    """Look at a store before it is open, on a connection of its own."""
    place = pool.place
    patience, hope = Patience(place.reconnect_seconds), Patience(min(OPEN_SECONDS_MAX, place.reconnect_seconds))
    while True:
        try:
            link = pool.connect(patience.until)
        except Cut as error:
            if hopeless(error) or (not hopeful(error) and time.monotonic() > hope.until):
                raise refused(str(error), place.shown) from error
            patience.pause(error, place.shown)
            continue
        try:
            return work(link)
        except (Cut, ServerError) as error:
            if isinstance(error, ServerError) and not error.again:
                raise translated(error, place.shown) from error
            patience.pause(error, place.shown)
        finally:
            pool.close_link(link)


def _unwanted(group: Sequence[Ticket]) -> bool:
    return interrupts.pending() or all(ticket.unwanted for ticket in group)


_LANES: dict[str, Lanes] = {}
"""By store, for the whole process: two doors to one store lead to the same streams."""
