"""Playbooks: what they say, and what they have done by step and tier."""

from __future__ import annotations

from perdure.server.page.of_agent import AgentQuery, ListPart, ask, show_list
from perdure.server.page.page import Page, PageCall, Shown

ROWS = 100


async def show_playbooks(call: PageCall) -> Shown:
    """Show the playbooks of an agent with their plays and savings."""

    async def load(agent: str) -> ListPart:
        books = (await ask(call, agent=agent).agent()).playbooks
        names = [one.name for one in await books.list() if one.name > call.query.cursor]
        reports = [await books.report(name) for name in names[:ROWS]]
        return ListPart(reports, names[ROWS - 1] if len(names) > ROWS else None)

    return await show_list(call, "Playbooks", "playbooks", load)


async def show_playbook(call: PageCall) -> Shown:
    """Show one playbook with its report."""
    agent, name = await call.agent(), call.path["playbook"]
    book, report = await agent.playbooks.get(name), await agent.playbooks.report(name)
    return {"title": name, "agent": agent.name, "book": book, "report": report, "chart": report.chart}


PAGE = Page(path="/playbooks", show=show_playbooks, template="playbooks.html", query=AgentQuery, section="Playbooks")
ONE = Page(path="/playbooks/{agent}/{playbook}", show=show_playbook, template="playbook.html", section="Playbooks")
