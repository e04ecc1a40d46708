"""LangGraph and LangChain adapters: a checkpointer, a long-term memory, and durable tools.

from perdure.adapters.langgraph import DurableTools, PerdureSaver, PerdureStore

saver, store = PerdureSaver(agent), PerdureStore(agent)
graph = create_agent(model, tools, checkpointer=saver, store=store, middleware=[DurableTools(agent)])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.adapters.lazy_names import lazy_names

if TYPE_CHECKING:
    from perdure.adapters.call_policy import effect_key
    from perdure.adapters.langgraph.durable_tool import durable
    from perdure.adapters.langgraph.middleware import DurableTools
    from perdure.adapters.langgraph.migration import Migrated, migrate
    from perdure.adapters.langgraph.saver import PerdureSaver
    from perdure.adapters.langgraph.store import PerdureStore

__all__ = ["DurableTools", "Migrated", "PerdureSaver", "PerdureStore", "durable", "effect_key", "migrate"]

_MODULES = {
    "DurableTools": "middleware",
    "Migrated": "migration",
    "PerdureSaver": "saver",
    "PerdureStore": "store",
    "durable": "durable_tool",
    "effect_key": ".call_policy",
    "migrate": "migration",
}

__getattr__ = lazy_names(__name__, _MODULES, "langgraph")
