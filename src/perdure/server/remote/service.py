"""Answers the requests of remote stores. It works on any store and knows nothing of HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from perdure.errors import PerdureError, RequestInvalid
from perdure.journal.rebuild import refresh
from perdure.server.access import Principal, Role
from perdure.server.remote.guard import StatementGuard
from perdure.server.remote.replay import ReplayedUnit, ReplayEnded, check_shape
from perdure.server.remote.turns import ClientTurns
from perdure.store.base import Store
from perdure.store.remote.wire import (
    BATCHES_MAX,
    PROTOCOL,
    ReadAnswer,
    RemoteFacts,
    ScrubRequest,
    UnitOutcome,
    UnitProgress,
    WireUnit,
    decode_commit,
    decode_read,
    decode_scrub,
    decode_watch,
    digest_statements,
    encode,
    write_error,
)
from perdure.values.limits import BATCH_COMMITS_MAX

WATCH_LOOK_SECONDS = 0.2
"""How often a long poll looks at its streams. On SQLite each commit ends it, also those of the run that waits."""
WATCH_SECONDS_MAX = 30.0
WATCHED_MAX = 1000


class RemoteService:
    """One store, served to remote clients."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._guard = StatementGuard(store)
        self._turns = ClientTurns()

    async def facts(self, principal: Principal, body: bytes) -> bytes:
        """Tell a client what it must know of the store. Views that a dead client has left unfinished are made first."""
        return await asyncio.to_thread(self._facts, principal)

    def _facts(self, principal: Principal) -> bytes:
        store = self.store
        if store.read("get_meta", ("stale",)) and not store.read_only:
            store.stale = True
            refresh(store)
        reads = "" if principal.role.includes(Role.WRITER) else "this key may only read"
        return encode(
            RemoteFacts(
                PROTOCOL,
                store.identity,
                store.content_key,
                digest_statements(),
                store.read_only or reads,
                dict(store.doubts),
                bool(store.scrub_note("")),
            )
        )

    async def commit(self, principal: Principal, body: bytes) -> bytes:
        """Replay units, and commit those that are complete."""
        units = _decoded(decode_commit, body).units
        if len(units) > BATCH_COMMITS_MAX or any(len(unit.batches) > BATCHES_MAX for unit in units):
            raise RequestInvalid("the request has too many units or batches")
        for unit in units:
            check_shape(unit)
        # Only checks may read from the store: the usual one finds everything in memory.
        checked = [self._guard.check_unit(principal, unit) for unit in units]
        show = partial(self._guard.show_rows, principal)
        replays = [
            self._replay(unit, ReplayedUnit(unit, batches, show), links)
            for unit, (batches, links) in zip(units, checked, strict=True)
        ]
        if len(replays) == 1:
            return encode([await replays[0]])
        return encode(await asyncio.gather(*replays))

    async def _replay(self, given: WireUnit, unit: ReplayedUnit, links: Any) -> UnitOutcome:
        waits = given.turn or (given.commit and len(given.batches) > 1)
        if waits:
            await self._turns.enter(given.turn)
        try:
            outcome = await self.store.submit_async(unit)
            self._guard.note_committed(links)
        except ReplayEnded:
            outcome = unit.outcome
        except PerdureError as error:
            outcome = UnitOutcome(UnitProgress.FAILED, error=write_error(error))
        if outcome.progress in (UnitProgress.COMMITTED, UnitProgress.FAILED):
            self._turns.leave(given.turn)
        return outcome

    async def read(self, principal: Principal, body: bytes) -> bytes:
        """Run queries outside any transaction."""
        return await asyncio.to_thread(self._read, principal, _decoded(decode_read, body).queries)

    def _read(self, principal: Principal, queries: Any) -> bytes:
        statements = self._guard.check_reads(principal, queries)
        try:
            rows = self._guard.show_rows(principal, statements, self.store.read_all(statements))
        except PerdureError as error:
            return encode(ReadAnswer(error=write_error(error)))
        return encode(ReadAnswer(list(rows)))

    async def watch(self, principal: Principal, body: bytes) -> bytes:
        """Answer when one of some streams may have received something, or after a while."""
        asked = _decoded(decode_watch, body)
        if len(asked.streams) > WATCHED_MAX:
            raise RequestInvalid(f"at most {WATCHED_MAX} streams can be watched at once")
        self._guard.owners.check_streams(principal, asked.streams)
        checks = [self.store.watch(stream) for stream in asked.streams]
        for check in checks:
            check()  # the first call is always true
        until = time.monotonic() + min(asked.seconds, WATCH_SECONDS_MAX)
        while time.monotonic() < until:
            await asyncio.sleep(WATCH_LOOK_SECONDS)
            if any(check() for check in checks):
                return encode(True)
        return encode(False)

    async def scrub(self, principal: Principal, body: bytes) -> bytes:
        """Remove erased data from the files."""
        principal.require(Role.WRITER)
        asked: ScrubRequest = _decoded(decode_scrub, body)
        return encode(await asyncio.to_thread(self.store.scrub, asked.texts, asked.token))


_SERVICES: WeakKeyDictionary[Store, RemoteService] = WeakKeyDictionary()


def service_of(store: Store) -> RemoteService:
    """Return the service of an open store."""
    found = _SERVICES.get(store)
    if found is None:
        found = _SERVICES[store] = RemoteService(store)
    return found


def _decoded(decode: Callable[[bytes], Any], body: bytes) -> Any:
    try:
        return decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RequestInvalid(f"the body: {error}") from error
