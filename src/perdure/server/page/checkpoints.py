"""Checkpoints: named snapshots, the value of one, and the difference between two."""

from __future__ import annotations

import msgspec

from perdure.data.checkpoints import CheckpointInfo
from perdure.server.page.of_agent import AgentQuery, ListPart, ask, show_list
from perdure.server.page.page import Page, PageCall, Shown
from perdure.server.routes.checkpoints import CheckpointVersionQuery, get_checkpoint, list_checkpoints
from perdure.server.views import PageQuery

CHANGES = 500
VERSIONS = 200


class CheckpointQuery(msgspec.Struct, frozen=True):
    """Which version, and with which older one it is compared."""

    version: int | None = None
    since: int | None = None


async def show_checkpoints(call: PageCall) -> Shown:
    """Show the checkpoints of an agent, version by version."""

    async def load(agent: str) -> ListPart:
        page = await list_checkpoints(ask(call, PageQuery(call.query.cursor or None), agent=agent))
        return ListPart(page.checkpoints, page.next)

    return await show_list(call, "Checkpoints", "checkpoints", load)


async def show_checkpoint(call: PageCall) -> Shown:
    """Show one version with its value and what has changed since another."""
    agent, name, query = await call.agent(), call.path["checkpoint"], call.query
    saved = await get_checkpoint(ask(call, CheckpointVersionQuery(query.version), **call.path))
    versions = [one for one in await agent.checkpoint.list() if one.name == name]
    since = query.since or _find_previous(versions, saved.version)
    changes = await agent.checkpoint.diff((name, since), (name, saved.version)) if since else []
    return {
        "title": name,
        "agent": agent.name,
        "saved": saved,
        "info": next((one for one in versions if one.version == saved.version), None),
        "versions": versions[: -VERSIONS - 1 : -1],
        "since": since,
        "changes": changes[:CHANGES],
        "count": len(changes),
    }


def _find_previous(versions: list[CheckpointInfo], number: int) -> int | None:
    return max((one.version for one in versions if one.version < number), default=None)


PAGE = Page(
    path="/checkpoints", show=show_checkpoints, template="checkpoints.html", query=AgentQuery, section="Checkpoints"
)
ONE = Page(
    path="/checkpoints/{agent}/{checkpoint}",
    show=show_checkpoint,
    template="checkpoint.html",
    query=CheckpointQuery,
    section="Checkpoints",
)
