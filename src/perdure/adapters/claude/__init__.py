"""Claude Agent SDK and Anthropic's memory tool: sessions, tools that never run twice, and a memory in the store.

    from perdure.adapters.claude import PerdureSessionStore, durable

    store = PerdureSessionStore("agent.db")
    tools = create_sdk_mcp_server("shop", tools=[durable(pay, session=store, check=paid)])
    options = ClaudeAgentOptions(session_store=store, session_store_flush="eager", mcp_servers={"shop": tools})

Needs `pip install perdure[claude]`. See docs/guides/claude.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.adapters.lazy_names import lazy_names

if TYPE_CHECKING:
    from perdure.adapters.call_policy import effect_key
    from perdure.adapters.claude.memory_tool import AsyncMemoryTool, MemoryTool
    from perdure.adapters.claude.session_store import PerdureSessionStore
    from perdure.adapters.claude.tools import durable

__all__ = ["AsyncMemoryTool", "MemoryTool", "PerdureSessionStore", "durable", "effect_key"]

_MODULES = {
    "AsyncMemoryTool": "memory_tool",
    "MemoryTool": "memory_tool",
    "PerdureSessionStore": "session_store",
    "durable": "tools",
    "effect_key": ".call_policy",
}

__getattr__ = lazy_names(__name__, _MODULES, "claude", {"anthropic": "anthropic"})
