"""The runs that clients drive through this process. Keeping them saves reading a journal for each request."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from perdure.errors import LeaseLost, PerdureError, RunPaused, RunStopped, RunWasCancelled, RunWasPaused
from perdure.kernel.engine import Engine
from perdure.kernel.protocol import Protocol, drive_async
from perdure.run.clients.session import ClientIdentity, ClientSession

T = TypeVar("T")

SESSIONS_KEPT = 1000
"""Sessions in memory. One that is used again later reads its journal again."""


class _KeptSession:
    """A session, and the lock under which its requests are carried out one after the other."""

    __slots__ = ("lock", "session")

    def __init__(self, session: ClientSession) -> None:
        self.session = session
        self.lock = asyncio.Lock()


class RunSessions:
    """Finds the session of a request, in memory or in the store."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str, str, str], _KeptSession] = OrderedDict()

    def keep(self, session: ClientSession) -> None:
        """Remember a session that was just opened."""
        self._keep(session)

    async def drive(self, engine: Engine, run_id: str, token: str, work: Callable[[ClientSession], Protocol[T]]) -> T:
        """Carry out one request of a session."""
        identity = ClientIdentity.parse(token)
        which = (engine.store.identity, engine.name, run_id, str(identity))
        kept = self._kept.get(which)
        if kept is None or kept.session.engine.store is not engine.store:  # the store was closed meanwhile
            kept = self._keep(ClientSession(engine, run_id, identity))
        self._kept.move_to_end(which)
        async with kept.lock:
            try:
                return await drive_request(engine, work(kept.session))
            except LeaseLost:
                if kept.session.run is None:
                    raise
                # Another server may have carried out a request of this session. The store knows who holds the run.
                kept.session.forget()
                return await drive_request(engine, work(kept.session))

    def _keep(self, session: ClientSession) -> _KeptSession:
        which = (session.engine.store.identity, session.engine.name, session.run_id, str(session.identity))
        kept = self._kept[which] = _KeptSession(session)
        if len(self._kept) > SESSIONS_KEPT:
            self._kept.popitem(last=False)
        return kept


async def drive_request(engine: Engine, protocol: Protocol[T]) -> T:
    """Execute a protocol. A stop of the run is an error like others here: the client obeys it."""
    try:
        return await drive_async(engine.store, protocol)
    except RunStopped as stopped:
        if isinstance(stopped, PerdureError):
            raise
        kind = RunWasPaused if isinstance(stopped, RunPaused) else RunWasCancelled
        told = {"hint": stopped.hint, "reason": stopped.reason, "by": stopped.by, "run": stopped.run}
        raise kind(stopped.message, **told) from None
