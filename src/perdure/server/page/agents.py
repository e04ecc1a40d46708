"""Agents: who they are, what they have, and how to take one away."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import Any

import msgspec

from perdure.errors import AgentNotFound
from perdure.journal.departures import describe_departure
from perdure.run.listing import list_runs, run_counts
from perdure.server.page.of_agent import list_names
from perdure.server.page.page import Page, PageCall, Shown
from perdure.server.page.render import link
from perdure.store.base import Store

ROWS = 100
RUNS = 10
FINGERPRINT_CHARACTERS = 32


class AgentsQuery(msgspec.Struct, frozen=True):
    """Which page."""

    after: str = ""


class AgentLine(msgspec.Struct, frozen=True):
    """One agent of the list."""

    name: str
    created: int
    runs: int
    unfinished: int
    note: str
    fingerprint: str
    """The beginning of its public key, as hexadecimal digits."""


async def show_agents(call: PageCall) -> Shown:
    """Show the agents by name."""
    names = [name for name in await list_names(call) if name > call.query.after]
    found = await call.read(_read_lines, names[:ROWS])
    more = link("agents", after=names[ROWS - 1]) if len(names) > ROWS else ""
    return {"title": "Agents", "rows": found, "next": more, "first": "/agents" if call.query.after else ""}


async def show_agent(call: PageCall) -> Shown:
    """Show one agent."""
    name = call.path["agent"]
    call.principal.require_agent(name)
    if name not in await list_names(call):
        raise AgentNotFound(f"there is no agent {name!r}", hint="its first write creates it")
    found: Shown = await call.read(_read_agent, name)
    command = f"perdure export {shlex.quote(name)} agent.perdure"
    return {"title": name, "command": command, **found}


def _read_lines(store: Store, names: list[str]) -> list[AgentLine]:
    counts = Counter[tuple[str, bool]]()
    for (agent, status), count in run_counts(store).items():
        counts[agent, status.over] += count
    known = {name: (key, at) for name, _, key, at, _ in store.read("all_agents")}
    return [
        AgentLine(
            name,
            known[name][1],
            counts[name, True] + counts[name, False],
            counts[name, False],
            describe_departure(store, name),
            bytes(known[name][0] or b"").hex()[:FINGERPRINT_CHARACTERS],
        )
        for name in names
    ]


def _read_agent(store: Store, name: str) -> dict[str, Any]:
    [line] = _read_lines(store, [name])
    statuses = {status.value: count for (agent, status), count in run_counts(store).items() if agent == name}
    return {"line": line, "counts": statuses, "runs": list_runs(store, name, limit=RUNS)}


PAGE = Page(path="/agents", show=show_agents, template="agents.html", query=AgentsQuery, section="Agents")
ONE = Page(path="/agents/{agent}", show=show_agent, template="agent.html", section="Agents")
