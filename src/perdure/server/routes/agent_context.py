"""`/v1/agents/{agent}/context`, `/bootstrap`, `/handoff`, `/usage`, `/savings`: what an agent needs to go on."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from perdure.api.aio import AsyncAgent
from perdure.errors import AgentNotFound, RequestInvalid, ResourceNotFound, WorkspaceNotFound
from perdure.kernel.protocol import drive_async
from perdure.presence.workspace.wake_up import boot
from perdure.server.calls import ApiCall
from perdure.server.routing import Route
from perdure.server.values import to_json
from perdure.server.views import plain

PATH = "/v1/agents/{agent}"
CHARACTERS_PER_TOKEN = 4


class ShownContextQuery(msgspec.Struct, frozen=True):
    """Of which run or thread, and within which budget of tokens."""

    run: str | None = None
    thread: str | None = None
    query: str | None = None
    budget: int = 8000


class ContextAnswer(msgspec.Struct, frozen=True):
    """What a model should be shown."""

    budget: int
    tokens: int
    estimated: bool
    system: str
    messages: list[Any]
    dropped: list[Any]


class BootstrapQuery(msgspec.Struct, frozen=True):
    """The budget of tokens."""

    budget: int = 10_000


class BootstrapAnswer(msgspec.Struct, frozen=True):
    """What the agent should read when it starts."""

    text: str
    tokens: int
    budget: int
    dropped: list[str]


class HandoffQuery(msgspec.Struct, frozen=True):
    """Of one run, or of the whole agent."""

    run: str | None = None


class HandoffAnswer(msgspec.Struct, frozen=True):
    """A brief for whoever continues."""

    agent: str
    run: str | None
    unfinished: list[str]
    markdown: str


class CostQuery(msgspec.Struct, frozen=True):
    """Of one run, or of all."""

    run: str | None = None


class CostAnswer(msgspec.Struct, frozen=True):
    """Totals, and the same by run, model and day."""

    total: dict[str, Any]
    by_run: dict[str, Any]
    by_model: dict[str, Any]
    by_day: dict[str, Any]


async def get_context(call: ApiCall) -> ContextAnswer:
    """Return the context that a model would be shown of a run or of a thread."""
    agent, query = await call.agent(), call.query
    if (query.run is None) == (query.thread is None):
        raise RequestInvalid("context needs either run= or thread=")
    run = query.run
    if run is None:
        turns = await agent.thread(query.thread).turns()
        if not turns:
            raise ResourceNotFound(f"there is no thread {query.thread!r}")
        run = turns[-1].run
    made = await agent.runs.context(run, query.query, query.budget)
    dropped = [plain(part) for part in made.dropped]
    return ContextAnswer(made.budget, made.tokens, made.estimated, made.system, to_json(made.messages), dropped)


async def _known_agent(call: ApiCall) -> AsyncAgent:
    """Return an agent that exists: a brief would create it, and readers create nothing."""
    agent = await call.agent()
    if not await asyncio.to_thread(agent._engine.is_known):
        raise AgentNotFound(f"there is no agent {agent.name!r}", hint="its first write creates it")
    return agent


async def get_bootstrap(call: ApiCall) -> BootstrapAnswer:
    """Return what the agent should read when it starts. It comes from the journal, never from the server's folders."""
    agent, budget = await _known_agent(call), call.query.budget
    try:
        made = await drive_async(agent._engine.store, boot(agent._engine, None, budget, None))
    except WorkspaceNotFound:  # an agent that never had one is told what it was doing
        text = str(await agent.handoff())[: max(0, budget) * CHARACTERS_PER_TOKEN]
        return BootstrapAnswer(text, len(text) // CHARACTERS_PER_TOKEN, budget, [])
    return BootstrapAnswer(made.text, made.tokens, made.budget, list(made.dropped))


async def get_handoff(call: ApiCall) -> HandoffAnswer:
    """Return a brief of a run, or of the whole agent."""
    agent, run = await call.agent(), call.query.run
    if run is not None:
        brief = await agent.runs.handoff(run)
        unfinished = [] if brief.summary.status.over else [run]
        return HandoffAnswer(agent.name, run, unfinished, brief.markdown())
    await _known_agent(call)
    desk = await agent.handoff()
    return HandoffAnswer(agent.name, None, [left.id for left in desk.left], str(desk))


async def get_usage(call: ApiCall) -> CostAnswer:
    """Return what model calls have cost."""
    return _cost(plain(await (await call.agent()).usage(run=call.query.run)))


async def get_savings(call: ApiCall) -> CostAnswer:
    """Return what resuming has saved."""
    return _cost(plain(await (await call.agent()).savings(run=call.query.run)))


def _cost(found: dict[str, Any]) -> CostAnswer:
    groups = {name: found.pop(name) for name in ("by_run", "by_model", "by_day")}
    found.pop("by_step", None)
    return CostAnswer(total=found, **groups)


ROUTES = (
    Route(
        method="GET",
        path=f"{PATH}/context",
        operation="get_context",
        summary="Return the context that a model would be shown of a run or of a thread.",
        handler=get_context,
        query=ShownContextQuery,
        response=ContextAnswer,
    ),
    Route(
        method="GET",
        path=f"{PATH}/bootstrap",
        operation="get_bootstrap",
        summary="Return what the agent should read when it starts, within a budget of tokens.",
        handler=get_bootstrap,
        query=BootstrapQuery,
        response=BootstrapAnswer,
    ),
    Route(
        method="GET",
        path=f"{PATH}/handoff",
        operation="get_handoff",
        summary="Return a brief of a run, or of the whole agent, for whoever continues.",
        handler=get_handoff,
        query=HandoffQuery,
        response=HandoffAnswer,
    ),
    Route(
        method="GET",
        path=f"{PATH}/usage",
        operation="get_usage",
        summary="Return what model calls have cost.",
        handler=get_usage,
        query=CostQuery,
        response=CostAnswer,
    ),
    Route(
        method="GET",
        path=f"{PATH}/savings",
        operation="get_savings",
        summary="Return what resuming has saved.",
        handler=get_savings,
        query=CostQuery,
        response=CostAnswer,
    ),
)
