"""The prompts of an agent, and the completion of ids in them."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.api.aio import AsyncAgent
from perdure.errors import ResourceNotFound
from perdure.mcp.resources import MEMORY, PROGRESS, RUN, read_resource
from perdure.mcp.wake import wake

COMPLETIONS_MAX = 100
LOOKED_AT = 1000


class McpPrompt(msgspec.Struct, frozen=True):
    """A prompt."""

    name: str
    title: str
    description: str
    arguments: tuple[tuple[str, str], ...]

    def describe(self) -> dict[str, Any]:
        """Return the prompt as `prompts/list` shows it."""
        told = [{"name": name, "description": text, "required": False} for name, text in self.arguments]
        return {"name": self.name, "title": self.title, "description": self.description, "arguments": told}


PROMPTS = (
    McpPrompt(
        "resume",
        "Resume",
        "Go on where the last session stopped.",
        (("run", "Only this run"), ("topic", "What to work on")),
    ),
    McpPrompt(
        "hand_over",
        "Hand over",
        "Write down where the work stands, for whoever continues.",
        (("to", "Who continues"),),
    ),
)

_RESUME = (
    "Go on with your work where it stopped. Settle first what is in doubt: check the outside world, then call "
    "finish_once. Do not repeat what is done. Then continue with the next action.\n\n{text}"
)
_HAND_OVER = (
    "You stop now, and {to} continues. Call update_progress with the goal, what is done, the next action and blockers. "
    "Call remember for every decision and fact that must outlive this session. Then call hand_off with a summary.\n\n"
    "What is open:\n\n{text}"
)


async def get_prompt(agent: AsyncAgent, name: str, arguments: dict[str, str]) -> dict[str, Any]:
    """Return the messages of a prompt."""
    if name == "resume":
        run = arguments.get("run", "")
        text = str(await agent.runs.handoff(run)) if run else (await wake(agent, topic=arguments.get("topic", ""))).text
        return _message("Go on where the last session stopped.", _RESUME.format(text=text))
    if name == "hand_over":
        to = arguments.get("to", "") or "the next session"
        return _message("Hand over.", _HAND_OVER.format(to=to, text=(await read_resource(agent, PROGRESS))["text"]))
    raise ResourceNotFound(f"there is no prompt {name!r}", hint="prompts/list names them")


def _message(description: str, text: str) -> dict[str, Any]:
    return {"description": description, "messages": [{"role": "user", "content": {"type": "text", "text": text}}]}


async def complete(agent: AsyncAgent, ref: dict[str, Any], argument: dict[str, Any]) -> dict[str, Any]:
    """Return the ids that begin with what was typed."""
    name, typed = str(argument.get("name", "")), str(argument.get("value", ""))
    uri = str(ref.get("uri", ""))
    found: list[str] = []
    if name == "run" and (uri.startswith(RUN) or ref.get("name") == "resume"):
        found = [run.id for run in await agent.runs.list(limit=LOOKED_AT)]
    elif name == "memory" and uri.startswith(MEMORY):
        found = [memory.id for memory in await agent.memory.list(limit=LOOKED_AT)]
    matching = [one for one in found if one.startswith(typed)]
    more = len(matching) > COMPLETIONS_MAX
    return {"values": matching[:COMPLETIONS_MAX], "total": len(matching), "hasMore": more}
