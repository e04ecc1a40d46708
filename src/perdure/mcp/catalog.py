"""What a server offers: its tools, resources and prompts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from perdure.api.aio import AsyncAgent
from perdure.mcp import data_tools, memory_tools, once_tools, people_tools, work_tools
from perdure.mcp.prompts import PROMPTS, complete, get_prompt
from perdure.mcp.resources import RESOURCES, TEMPLATES, read_resource
from perdure.mcp.tool import McpTool


class McpCatalog(msgspec.Struct, frozen=True, kw_only=True):
    """The protocol works on this alone, and knows nothing of memories and runs."""

    tools: Mapping[str, McpTool]
    resources: Sequence[Mapping[str, Any]]
    """As `resources/list` shows them."""
    templates: Sequence[Mapping[str, Any]]
    prompts: Sequence[Mapping[str, Any]]
    """As `prompts/list` shows them."""
    read: Callable[[AsyncAgent, str], Awaitable[dict[str, Any]]]
    """Returns the content of a resource, by its address."""
    prompt: Callable[[AsyncAgent, str, dict[str, str]], Awaitable[dict[str, Any]]]
    """Returns a prompt, by its name, for its arguments."""
    complete: Callable[[AsyncAgent, dict[str, Any], dict[str, Any]], Awaitable[dict[str, Any]]]
    """Returns the values that begin with what was typed."""


TOOLS: Mapping[str, McpTool] = {
    tool.name: tool
    for module in (memory_tools, data_tools, work_tools, people_tools, once_tools)
    for tool in module.TOOLS
}

PERDURE = McpCatalog(
    tools=TOOLS,
    resources=[resource.describe() for resource in RESOURCES],
    templates=TEMPLATES,
    prompts=[prompt.describe() for prompt in PROMPTS],
    read=read_resource,
    prompt=get_prompt,
    complete=complete,
)
"""What `perdure mcp` and `/mcp` offer."""
