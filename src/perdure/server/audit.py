"""The audit log: each write of a key is an event in the tenant's journal, in the same commit as the write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from perdure import records as r
from perdure.api.aio import AsyncAgent
from perdure.data.events.positions import parse_token
from perdure.journal import objects
from perdure.kernel.open_stream import COMPANION, CommitCompanion
from perdure.records import AgentChange
from perdure.server.access import Principal
from perdure.server.tenants import Tenants
from perdure.store.base import Store

KIND = "http.write"
PATH_CHARACTERS_MAX = 1000


Changes = tuple[AgentChange, ...]


@asynccontextmanager
async def audit(
    tenants: Tenants,
    principal: Principal,
    request_id: str,
    operation: str,
    method: str,
    path: str,
    earlier: Changes | None = None,
) -> AsyncIterator[None]:
    """Record a write: with its commit, or right after it if it commits in a way of its own.

    `earlier` are the changes of a process that committed this write and died: nothing is committed again, and the
    handler gets them.
    """
    agent = await tenants.server_agent(principal.tenant)
    payload = _describe(principal, request_id, operation, method, path)
    companion = await asyncio.to_thread(_make_companion, agent, payload)
    companion.earlier = earlier
    token = COMPANION.set(companion)
    try:
        yield
    finally:
        COMPANION.reset(token)
    if not companion.landed:
        await agent.events.append(KIND, payload)


async def note(tenants: Tenants, principal: Principal, request_id: str, operation: str, method: str, path: str) -> None:
    """Record a request in a commit of its own."""
    agent = await tenants.server_agent(principal.tenant)
    await agent.events.append(KIND, _describe(principal, request_id, operation, method, path))


def _describe(principal: Principal, request_id: str, operation: str, method: str, path: str) -> dict[str, str]:
    return {
        "key": principal.key_id,
        "operation": operation,
        "method": method,
        "path": path[:PATH_CHARACTERS_MAX],
        "request_id": request_id,
    }


def _make_companion(agent: AsyncAgent, payload: dict[str, str]) -> CommitCompanion:
    engine = agent._engine
    engine.ensure_agent()
    packed, made = objects.pack(engine.store, payload, f"event {KIND}")
    assert not made, "the payload is small enough to lie in the entry"
    event = r.EventAppended(engine.stream, KIND, packed, 0, 0)
    return CommitCompanion(engine.store, (r.Landed((event,)),))


async def find_landed(tenants: Tenants, tenant: str, request_id: str, since: str) -> Changes | None:
    """Return what a request of an earlier process has committed since a position of the audit log, if it has."""
    agent = await tenants.server_agent(tenant)
    async for event in agent.events.read(KIND, since=since):
        if event.payload["request_id"] == request_id:
            return await asyncio.to_thread(_read_changes, agent._engine.store, event.position)
    return None


def _read_changes(store: Store, position: str) -> Changes:
    """Return the changes before an entry of the audit log in the same commit; none if it is in a commit of its own."""
    _, stream, seq, _ = parse_token(position)
    for _, kind, _, body, _, _ in store.read("journal_entry", (stream, seq - 1)):
        record = r.decode(kind, body) if body is not None else None
        if isinstance(record, r.Landed):
            return record.landed
    return ()


async def last_position(tenants: Tenants, tenant: str) -> str:
    """Return the position of the newest entry of the audit log; empty if there is none."""
    agent = await tenants.server_agent(tenant)
    async for event in agent.events.read(KIND, last=1):
        return event.position
    return ""
