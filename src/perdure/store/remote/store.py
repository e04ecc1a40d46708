"""The store behind a server: `perdure serve` has the database, this process has a key.

Scripts run here, transactions there (`commit`). Lanes stay in this process: units of one stream build on each other.
Plain appends of many runs share a request (`shared`), as they share a statement on PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import msgspec

from perdure.errors import StoreUnavailable
from perdure.platform.failpoints import is_armed
from perdure.store.answer_watch import AnswerWatch
from perdure.store.base import Rows, Statement, Store, UnitOfWork, wait_shielded
from perdure.store.lanes import CommitLanes, CommitThreads, LaneTicket, commit_group, is_unwanted
from perdure.store.outage import ConnectionCut, OutagePatience, ServerAbsence
from perdure.store.remote.address import RemoteAddress, find_key, parse_address
from perdure.store.remote.commit import RemoteCommit, request_again, run_remote_queries
from perdure.store.remote.shared import RequestUnit, SharedRequests, share
from perdure.store.remote.transport import HttpLinks, HttpRefusal
from perdure.store.remote.watch import RemoteListener
from perdure.store.remote.wire import (
    FACTS,
    PROTOCOL,
    SCRUB,
    RemoteFacts,
    ScrubRequest,
    decode_facts,
    digest_statements,
    encode,
)
from perdure.values.clock import Clock
from perdure.values.limits import OPEN_SECONDS_MAX

T = TypeVar("T")


class RemoteStore(Store):
    """A tenant of a server. Processes on many hosts may use it at once."""

    one_host = False

    def __init__(self, url: str, *, clock: Clock, api_key: str | None = None) -> None:
        place = parse_address(url)
        self.url = url
        self.clock = clock
        self._links = HttpLinks(place, find_key(api_key))
        self._absence = ServerAbsence(place.shown)
        try:
            facts = _ask_facts(self._links, place)
        except BaseException:
            self._links.close()
            raise
        self.identity, self._content_key = facts.identity, facts.content_key
        self.read_only, self.doubts = facts.read_only, facts.doubts
        self._scrubs = facts.scrubs
        self._lanes = _LANES.setdefault(self.identity, CommitLanes())
        self._workers = CommitThreads(self._lanes, place.pool_size)
        self._shared = SharedRequests(self._links)
        self._listener = RemoteListener(self._links)
        super().__init__()

    def _submit(self, unit: UnitOfWork[T]) -> T:
        ticket = LaneTicket(unit)
        self._lanes.go(ticket, self._commit)
        result: T = ticket.get()
        return result

    async def _submit_async(self, unit: UnitOfWork[T]) -> T:
        if unit.shareable and not is_armed():
            ticket = LaneTicket(unit)
            if self._lanes.take(ticket):
                result: T = await self._share_async(ticket)
                return result
        return await self._workers.result_of(unit, self._commit)

    def read(self, name: str, args: tuple[Any, ...] = ()) -> Rows:
        [rows] = self.read_all([Statement(name, args)])
        return rows

    def read_all(self, queries: Sequence[Statement]) -> list[Rows]:
        self._check_open()
        return run_remote_queries(self._links, queries, self._absence)

    def watch(self, stream: int) -> Callable[[], bool]:
        self._check_open()
        return AnswerWatch(self._listener, stream)

    def backup(self, path: str, progress: Callable[[int, int], None] | None = None) -> int:
        raise StoreUnavailable(
            "a copy of a whole store is made on the machine of the server; nothing was written",
            hint="there: perdure backup FILE --store STORE",
        )

    def scrub_note(self, token: str) -> Sequence[Statement]:
        # The server writes its own name into the note: it has the file.
        return (Statement("put_meta", (f"scrub {token}", b"")),) if self._scrubs else ()

    def scrub(self, texts: Sequence[bytes] = (), token: str = "") -> str:
        if not self._scrubs:
            return super().scrub(texts, token)
        self._check_open()
        body = encode(ScrubRequest(tuple(texts), token))
        note: str = msgspec.msgpack.decode(request_again(self._links, SCRUB, body, self._absence), type=str)
        return note

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if not self._forked:
            self._listener.close()
            self._workers.close()
            self._shared.close()
            self._links.close()

    # -- inside -----------------------------------------------------------------------------------------------

    def _commit(self, group: Sequence[LaneTicket]) -> None:
        def commit_joint(joint: UnitOfWork[Any]) -> Any:
            return RemoteCommit(self._links, joint, self._absence, partial(is_unwanted, group)).run()

        commit_group(group, commit_joint, self._commit_one)

    def _commit_one(self, ticket: LaneTicket) -> Any:
        """Commit a unit together with those of other lanes if possible, else alone."""
        request = share(ticket) if ticket.unit.shareable and not is_armed() else None
        if request is None:
            return RemoteCommit(self._links, ticket.unit, self._absence, partial(is_unwanted, [ticket])).run()
        try:
            self._shared.submit(request)
        except BaseException:
            ticket.unit.settle(False)
            raise
        return self._conclude(request)

    async def _share_async(self, ticket: LaneTicket) -> Any:
        """Commit a unit that has taken its turn together with others of the event loop."""
        request = share(ticket)
        if request is None:
            self._lanes.give_back(ticket)
            return await self._workers.result_of(ticket.unit, self._commit)
        import asyncio

        cancelled: asyncio.CancelledError | None = None
        try:
            await self._shared.submit_async(request)
        except asyncio.CancelledError as error:
            cancelled = error  # raised after the commit: its outcome must be known before the next one
        except BaseException:
            ticket.unit.settle(False)
            self._lanes.give_back(ticket)
            raise
        if request.landed:
            self._lanes.give_back(ticket)
        else:
            await self._conclude_async(request)
        if cancelled is not None:
            raise cancelled
        return request.result

    async def _conclude_async(self, request: RequestUnit) -> None:
        """Commit a unit alone in a thread, then end its turn."""
        import asyncio

        done: Future[None] = Future()

        def conclude() -> None:
            try:
                request.result = self._conclude(request)
                done.set_result(None)
            except BaseException as error:  # raised in the task, not in this thread
                done.set_exception(error)
            finally:
                self._lanes.give_back(request.ticket)

        self._workers.start(conclude)
        await wait_shielded(asyncio.wrap_future(done), request.ticket.give_up)

    def _conclude(self, request: RequestUnit) -> Any:
        """Return the result of a shared unit; commit it alone if it was left out or its answer was lost."""
        if request.landed:
            return request.result
        ticket, earlier = request.ticket, request.doubtful
        if earlier is None:
            request.attempt.script.close()
        unwanted = partial(is_unwanted, [ticket])
        return RemoteCommit(self._links, ticket.unit, self._absence, unwanted, earlier).run()

    def _abandon(self) -> None:
        super()._abandon()
        self._links.abandon()
        _LANES.clear()


def _ask_facts(links: HttpLinks, place: RemoteAddress) -> RemoteFacts:
    """Ask for the facts of the store; wait a little for a server that starts."""
    patience = OutagePatience(min(OPEN_SECONDS_MAX, place.reconnect_seconds))
    while True:
        try:
            facts = decode_facts(links.exchange(FACTS, b"", patience.until, place.connect_seconds))
            break
        except HttpRefusal as error:
            if not error.is_retryable:
                raise error.translate(place.shown) from error
            why: Exception = error
        except ConnectionCut as error:
            why = error
        patience.pause(why, place.shown)
    if facts.protocol != PROTOCOL or facts.statements != digest_statements():
        raise StoreUnavailable(
            f"{place.shown} runs another version of Perdure; nothing was read or written",
            hint="install the same version here and there",
        )
    return facts


_LANES: dict[str, CommitLanes] = {}
"""By store, for the whole process: several instances of one store share its streams."""
