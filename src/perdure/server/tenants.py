"""The open stores of tenants, and the agents in them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from perdure.api.aio import AsyncAgent
from perdure.errors import NotAllowed
from perdure.journal.retention_rules import OURS
from perdure.kernel.engine import Engine, close_left
from perdure.server.access import Principal
from perdure.server.addresses import DEFAULT_TENANT, make_folder, tenant_url
from perdure.server.settings import OPEN_TENANTS
from perdure.store.base import Store

AGENTS_KEPT = 100
"""Agents of a tenant that stay open. One that is used again later is opened again."""

SERVER_AGENT = f"{OURS}server"
"""Owns what the server writes to a tenant's store for itself: the audit log."""


class OpenTenant:
    """A tenant's store while it is open, and who uses it."""

    __slots__ = ("agents", "engine", "lock", "users")

    def __init__(self) -> None:
        self.engine: Engine | None = None
        self.agents: OrderedDict[str, AsyncAgent] = OrderedDict()
        self.users = 0
        """Requests and streams that are under way."""
        self.lock = asyncio.Lock()
        """Held while the store is opened or closed."""


_HELD: ContextVar[list[OpenTenant]] = ContextVar("held")
"""What the current request uses. Its tasks and threads see the same list."""


class Tenants:
    """Opens the stores of tenants on first use.

    At most `kept` stay open without use: the one that was used longest ago is closed first. A store in use is never
    closed, so requests and streams may bring the number above `kept`.
    """

    def __init__(self, store: str, kept: int = OPEN_TENANTS) -> None:
        self._store = store
        self._kept = kept
        self._open: OrderedDict[str, OpenTenant] = OrderedDict()
        self._commits_of_closed = 0

    @contextmanager
    def using(self) -> Iterator[None]:
        """Keep the stores open that are asked for inside, until the end."""
        held: list[OpenTenant] = []
        token = _HELD.set(held)
        try:
            yield
        finally:
            _HELD.reset(token)
            for opened in held:
                opened.users -= 1

    async def agent(self, principal: Principal, name: str) -> AsyncAgent:
        """Return an agent of the principal's tenant, which the key must be allowed to use."""
        principal.require_agent(name)
        if name.startswith(OURS):
            raise NotAllowed(f"agents whose names begin with {OURS!r} are Perdure's own")
        return await self._agent(principal.tenant, name)

    async def server_agent(self, tenant: str) -> AsyncAgent:
        """Return the agent that keeps the server's own records of a tenant."""
        return await self._agent(tenant, SERVER_AGENT)

    async def store(self, principal: Principal) -> Store:
        """Return the open store of the principal's tenant."""
        return (await self._engine_of(self._hold(principal.tenant), principal.tenant)).store

    def open_stores(self) -> list[Store]:
        """Return the stores that are open now."""
        stores = []
        for opened in self._open.values():
            if opened.engine is not None and not opened.lock.locked():
                _use(opened)
                stores.append(opened.engine.store)
        return stores

    def is_open(self, tenant: str) -> bool:
        """Whether the store of a tenant is open in this process."""
        return tenant in self._open

    def count_commits(self) -> int:
        """Return the units of work that this process has committed to the stores of all tenants."""
        return self._commits_of_closed + sum(store.commits for store in self.open_stores())

    async def close(self) -> None:
        """Close every store: leases are released."""
        for tenant, opened in list(self._open.items()):
            opened.users = 0
            await self._close(tenant, opened)

    async def _agent(self, tenant: str, name: str) -> AsyncAgent:
        opened = self._hold(tenant)
        engine = await self._engine_of(opened, tenant)
        known = opened.agents.get(name)
        if known is None:
            known = opened.agents[name] = AsyncAgent(name, store=engine.url)
            if len(opened.agents) > AGENTS_KEPT:
                opened.agents.popitem(last=False)
        opened.agents.move_to_end(name)
        return known

    def _hold(self, tenant: str) -> OpenTenant:
        opened = self._open.setdefault(tenant, OpenTenant())
        self._open.move_to_end(tenant)
        _use(opened)
        return opened

    async def _engine_of(self, opened: OpenTenant, tenant: str) -> Engine:
        """Return an engine that keeps the store open. It is opened in a thread: that can take a while."""
        if opened.engine is not None and not opened.lock.locked():
            return opened.engine
        async with opened.lock:
            engine = opened.engine or Engine(SERVER_AGENT, store=make_folder(tenant_url(self._store, tenant)))
            await asyncio.to_thread(lambda: engine.store)
            opened.engine = engine
        await self._close_idle()
        return engine

    async def _close_idle(self) -> None:
        """Close stores that nobody uses, beyond those that are kept. The default tenant's stays open."""
        for tenant, opened in list(self._open.items()):
            if len(self._open) <= self._kept:
                return
            if not opened.users and tenant != DEFAULT_TENANT:
                await self._close(tenant, opened)

    async def _close(self, tenant: str, opened: OpenTenant) -> None:
        async with opened.lock:
            if not opened.users:
                await self._close_store(opened)
        self._forget_closed(tenant)

    async def _close_store(self, opened: OpenTenant) -> None:
        engine, opened.engine = opened.engine, None
        opened.agents.clear()
        if engine is not None:
            self._commits_of_closed += engine.store.commits
            await asyncio.to_thread(close_left, engine.url)

    def _forget_closed(self, tenant: str) -> None:
        """Forget a tenant, unless a request has come meanwhile: that one opens the store again."""
        opened = self._open.get(tenant)
        if opened is not None and opened.engine is None and not opened.users:
            del self._open[tenant]


def _use(opened: OpenTenant) -> None:
    held = _HELD.get()
    if opened not in held:
        held.append(opened)
        opened.users += 1
