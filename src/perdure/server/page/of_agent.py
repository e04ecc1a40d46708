"""Pages about what one agent has. They call the handlers of the API, so they show and do what those allow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from perdure.server.calls import NoQuery
from perdure.server.page.page import PageCall, Shown
from perdure.server.page.render import link
from perdure.server.routes.agents import list_agents

AGENTS_TRIED = 12
"""Without a choice, so many agents are looked at for something to show."""


class AgentQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Whose, and which page of the list."""

    agent: str = ""
    cursor: str = ""


class ListPart(msgspec.Struct, frozen=True):
    """One page of a list, and the cursor of the next."""

    rows: Sequence[Any]
    next: str | None = None


def ask(call: PageCall, query: Any = None, **path: str) -> PageCall:
    """Return the call that a handler of the API gets."""
    return msgspec.structs.replace(call, path=path, query=NoQuery() if query is None else query)


async def list_names(call: PageCall) -> list[str]:
    """Return the agents that this person may see."""
    return [one.name for one in (await list_agents(call)).agents]


async def show_list(
    call: PageCall, title: str, section: str, load: Callable[[str], Awaitable[ListPart]], **filters: str
) -> Shown:
    """Show what one agent has: the chosen one, else the first that has something."""
    names = await list_names(call)
    chosen = call.query.agent or call.principal.agent or ""
    call.principal.require_agent(chosen or call.principal.agent or "")
    agent, part = chosen, ListPart(())
    for name in [chosen] if chosen else names[:AGENTS_TRIED]:
        found = await load(name)
        if found.rows or not agent:
            agent, part = name, found
        if found.rows:
            break
    return {
        "title": title,
        "agent": agent,
        "agents": names,
        "rows": part.rows,
        "first": link(section, agent=agent, **filters) if call.query.cursor else "",
        "next": link(section, agent=agent, cursor=part.next, **filters) if part.next else "",
    }
