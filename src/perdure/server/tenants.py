"""The open stores of tenants, and the agents in them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from perdure.api.aio import AsyncAgent
from perdure.errors import NotAllowed
from perdure.journal.retention_rules import OURS
from perdure.kernel.engine import Engine, close_left
from perdure.server.access import Principal
from perdure.server.addresses import make_folder, tenant_url
from perdure.store.base import Store

AGENTS_KEPT = 1000
"""Agents that stay open. One that is used again later is opened again."""

SERVER_AGENT = f"{OURS}server"
"""Owns what the server writes to a tenant's store for itself: the audit log."""


class Tenants:
    """Opens the stores of tenants on first use and keeps them open."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._engines: dict[str, Engine] = {}
        self._agents: OrderedDict[tuple[str, str], AsyncAgent] = OrderedDict()
        self._opening: dict[str, asyncio.Lock] = {}

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
        return (await self._engine(principal.tenant)).store

    def open_stores(self) -> list[Store]:
        """Return the stores that are open now."""
        return [engine.store for engine in self._engines.values()]

    def count_commits(self) -> int:
        """Return the units of work that this process has committed to the stores of all tenants."""
        return sum(store.commits for store in self.open_stores())

    async def close(self) -> None:
        """Close every store: leases are released."""
        urls = [engine.url for engine in self._engines.values()]
        self._engines.clear()
        self._agents.clear()
        for url in urls:
            await asyncio.to_thread(close_left, url)

    async def _agent(self, tenant: str, name: str) -> AsyncAgent:
        known = self._agents.get((tenant, name))
        if known is None:
            engine = await self._engine(tenant)
            known = self._agents[tenant, name] = AsyncAgent(name, store=engine.url)
            if len(self._agents) > AGENTS_KEPT:
                self._agents.popitem(last=False)
        self._agents.move_to_end((tenant, name))
        return known

    async def _engine(self, tenant: str) -> Engine:
        """Return an engine that keeps the store open. It is opened in a thread: that can take a while."""
        async with self._opening.setdefault(tenant, asyncio.Lock()):
            engine = self._engines.get(tenant)
            if engine is None:
                engine = Engine(SERVER_AGENT, store=make_folder(tenant_url(self._store, tenant)))
                await asyncio.to_thread(lambda: engine.store)
                self._engines[tenant] = engine
            return engine
