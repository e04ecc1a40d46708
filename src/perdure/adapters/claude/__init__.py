"""Claude Agent SDK and Anthropic's memory tool: sessions, tools that never run twice, and a memory in the store.

    from perdure.adapters.claude import PerdureSessionStore, durable

    store = PerdureSessionStore("agent.db")
    tools = create_sdk_mcp_server("shop", tools=[durable(pay, session=store, check=paid)])
    options = ClaudeAgentOptions(session_store=store, session_store_flush="eager", mcp_servers={"shop": tools})

Needs `pip install perdure[claude]`. See docs/guides/claude.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from perdure.errors import ExtraMissing

if TYPE_CHECKING:
    from perdure.adapters.call_policy import effect_key
    from perdure.adapters.claude.memory_tool import AsyncMemoryTool, MemoryTool
    from perdure.adapters.claude.session_store import PerdureSessionStore
    from perdure.adapters.claude.tools import durable

__all__ = ["AsyncMemoryTool", "MemoryTool", "PerdureSessionStore", "durable", "effect_key"]

_PLACES = {
    "AsyncMemoryTool": "memory_tool",
    "MemoryTool": "memory_tool",
    "PerdureSessionStore": "session_store",
    "durable": "tools",
    "effect_key": ".call_policy",
}


def __getattr__(name: str) -> Any:
    """Load a name on first use: the memory tools need `anthropic`, the others `claude-agent-sdk`."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f".{_PLACES[name]}", __name__)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "perdure":
            raise
        extra = "anthropic" if package == "anthropic" else "claude"
        raise ExtraMissing(f"{name} needs the package {package}", hint=f'pip install "perdure[{extra}]"') from error
    return getattr(module, name)
