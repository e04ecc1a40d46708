"""Memory: search as agents do and see why, follow a subject over time, find contradictions, forget."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from perdure.errors import MemoryNotFound
from perdure.memory.archive import find_archived, traces_of
from perdure.memory.arguments import select_to_forget
from perdure.memory.lifecycle.usage import leave_uncounted
from perdure.server.access import Role
from perdure.server.page.of_agent import AgentQuery, ListPart, ask, show_list
from perdure.server.page.page import Page, PageCall, Shown
from perdure.server.page.render import link
from perdure.server.routes.memories import MemoryListQuery, list_memories

if TYPE_CHECKING:
    from perdure.api.aio import AsyncAgent

FOUND = 20
PAIRS = 100
FACTS = 500


class MemorySearchQuery(AgentQuery, frozen=True, kw_only=True):
    """What is looked for. Forms send empty fields too."""

    q: str = ""
    about: str = ""
    user: str = ""
    all: bool = False
    left: int | None = None
    """After forgetting: in how many other places the text still is."""


class SubjectQuery(msgspec.Struct, frozen=True):
    """Facts about what."""

    about: str = ""
    user: str = ""


async def show_memory(call: PageCall) -> Shown:
    """Show the memories that answer a question, best first; without one, all, newest first."""
    query: MemorySearchQuery = call.query

    async def load(agent: str) -> ListPart:
        if query.q.strip():
            return ListPart(await _recall(await ask(call, agent=agent).agent(), query))
        wanted = MemoryListQuery(None, query.about or None, query.user or None, query.all, query.cursor or None)
        page = await list_memories(ask(call, wanted, agent=agent))
        return ListPart(page.memories, page.next)

    kept = {"about": query.about, "user": query.user, "all": "true" if query.all else ""}
    return await show_list(call, "Memory", "memory", load, **kept) | {"query": query}


async def _recall(agent: AsyncAgent, query: MemorySearchQuery) -> list[Any]:
    """Recall as the agent would. A person who looks is no use of a memory, so nothing is counted."""
    with leave_uncounted():
        return await agent.memory.recall(query.q.strip(), FOUND, about=query.about or None, user=query.user or None)


async def show_one(call: PageCall) -> Shown:
    """Show one memory with where it came from, and the form to forget it."""
    agent = await call.agent()
    found = await agent.memory.get(call.path["memory"])
    archives = await asyncio.to_thread(_find_archives, agent, found.id)
    return {
        "title": "Memory",
        "agent": agent.name,
        "memory": found,
        "against": [await agent.memory.get(other) for other in found.contradicts],
        "sources": [await _find(agent, other) for other in found.derived_from],
        "archives": archives,
    }


async def _find(agent: AsyncAgent, memory: str) -> Any:
    try:
        return await agent.memory.get(memory)
    except MemoryNotFound:
        return None


def _find_archives(agent: AsyncAgent, memory: str) -> list[str]:
    which = select_to_forget((memory,), about=None, user=None, source=None, tags=(), text=None)
    return [trace.what for trace in traces_of(find_archived(agent._engine, which.query))]


async def forget(call: PageCall) -> str | Response:
    """Erase one memory for good, in the name of this person."""
    agent = await call.agent()
    done = await agent.memory.forget(call.path["memory"], reason=call.body.get("reason", ""), by=call.by)
    return link("memory", agent=agent.name, left=len(done.elsewhere))


async def show_subject(call: PageCall) -> Shown:
    """Show every fact about a subject, in the order in which they were true."""
    agent, query = await call.agent(), call.query
    found = await agent.memory.history(query.about, user=query.user or None) if query.about else []
    return {"title": query.about or "A subject", "agent": agent.name, "facts": found[-FACTS:], "count": len(found)}


async def show_contradictions(call: PageCall) -> Shown:
    """Show pairs of memories that may contradict each other."""
    agent = await call.agent()
    pairs = await agent.memory.contradictions()
    return {"title": "Contradictions", "agent": agent.name, "pairs": pairs[:PAIRS], "count": len(pairs)}


PAGE = Page(path="/memory", show=show_memory, template="memory.html", query=MemorySearchQuery, section="Memory")
SUBJECT = Page(
    path="/memory/{agent}/subject", show=show_subject, template="subject.html", query=SubjectQuery, section="Memory"
)
CONTRADICTIONS = Page(
    path="/memory/{agent}/contradictions", show=show_contradictions, template="contradictions.html", section="Memory"
)
ONE = Page(
    path="/memory/{agent}/id/{memory}",
    show=show_one,
    act=forget,
    act_role=Role.WRITER,
    template="memory_one.html",
    section="Memory",
)
