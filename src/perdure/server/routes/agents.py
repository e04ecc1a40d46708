"""`/v1/agents`: the agents of a tenant."""

from __future__ import annotations

import asyncio

import msgspec

from perdure.journal.retention_rules import OURS
from perdure.server.calls import ApiCall
from perdure.server.routing import Route


class AgentEntry(msgspec.Struct, frozen=True):
    """An agent of the tenant."""

    name: str


class AgentList(msgspec.Struct, frozen=True):
    """The agents that the key may see."""

    agents: list[AgentEntry]


async def list_agents(call: ApiCall) -> AgentList:
    """List agents by name."""
    store = await call.services.tenants.store(call.principal)
    rows = await asyncio.to_thread(store.read, "all_agents")
    names = [name for name, *_ in rows if call.principal.sees(name) and not name.startswith(OURS)]
    return AgentList([AgentEntry(name) for name in sorted(names)])


ROUTES = (
    Route(
        method="GET",
        path="/v1/agents",
        operation="list_agents",
        summary="List the agents that the key may see.",
        handler=list_agents,
        response=AgentList,
    ),
)
