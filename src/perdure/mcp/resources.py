"""The resources of an agent. Each is also available through a tool, for clients that know tools only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from perdure.api.aio import AsyncAgent
from perdure.errors import ResourceNotFound
from perdure.mcp.tool import to_plain
from perdure.mcp.wake import wake
from perdure.presence.context.sources import memory_line
from perdure.presence.handoff.pending import desk_of
from perdure.values.tokens import counter

MEMORIES_SHOWN = 100
RUNS_SHOWN = 100
RUN, MEMORY, PROGRESS = "perdure://runs/", "perdure://memories/", "perdure://progress"


class McpResource(msgspec.Struct, frozen=True):
    """A resource."""

    name: str
    title: str
    description: str
    read: Callable[[AsyncAgent], Awaitable[str]]
    media_type: str = "text/markdown"

    @property
    def uri(self) -> str:
        """Its address."""
        return f"perdure://{self.name}"

    def describe(self) -> dict[str, Any]:
        """Return the resource as `resources/list` shows it."""
        return {
            "uri": self.uri,
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "mimeType": self.media_type,
        }


async def _read_bootstrap(agent: AsyncAgent) -> str:
    return (await wake(agent)).text


async def _read_progress(agent: AsyncAgent) -> str:
    return await agent._read(lambda: desk_of(agent._engine).markdown())


async def _read_runs(agent: AsyncAgent) -> str:
    runs = await agent.runs.list(limit=RUNS_SHOWN)
    listed = [{"id": run.id, "status": str(run.status), "error": run.error, "resumes": run.resumes} for run in runs]
    return msgspec.json.encode({"runs": listed}).decode()


async def _read_memories(agent: AsyncAgent) -> str:
    count, _ = counter(None)
    found = await agent.memory.list(limit=MEMORIES_SHOWN)
    return "\n".join(f"{memory_line(memory, count)} [{memory.id}]" for memory in found) or "Nothing is remembered yet."


RESOURCES = (
    McpResource("bootstrap", "Bootstrap", "What the agent should read when a session starts.", _read_bootstrap),
    McpResource("progress", "Progress", "Open work: progress, questions, effects in doubt, decisions.", _read_progress),
    McpResource("runs", "Runs", "The newest runs with their status.", _read_runs, "application/json"),
    McpResource("memories", "Memories", "The newest memories.", _read_memories),
)

TEMPLATES: tuple[dict[str, Any], ...] = (
    {
        "uriTemplate": f"{RUN}{{run}}",
        "name": "run",
        "title": "Run",
        "description": "A brief of one run: what is done, in doubt, waiting, and how to go on.",
        "mimeType": "text/markdown",
    },
    {
        "uriTemplate": f"{MEMORY}{{memory}}",
        "name": "memory",
        "title": "Memory",
        "description": "One memory with its origin and history.",
        "mimeType": "application/json",
    },
)


async def read_resource(agent: AsyncAgent, uri: str) -> dict[str, Any]:
    """Return the content of a resource."""
    known = next((one for one in RESOURCES if one.uri == uri), None)
    if known is not None:
        return {"uri": uri, "mimeType": known.media_type, "text": await known.read(agent)}
    if uri.startswith(RUN):
        text = str(await agent.runs.handoff(uri.removeprefix(RUN)))
        return {"uri": uri, "mimeType": "text/markdown", "text": text}
    if uri.startswith(MEMORY):
        memory = to_plain(await agent.memory.get(uri.removeprefix(MEMORY)))
        return {"uri": uri, "mimeType": "application/json", "text": msgspec.json.encode(memory).decode()}
    raise ResourceNotFound(f"there is no resource {uri!r}", hint="resources/list names them")
