"""LangGraph and LangChain adapters: a checkpointer, a long-term memory, and durable tools.

from perdure.adapters.langgraph import DurableTools, PerdureSaver, PerdureStore

saver, store = PerdureSaver(agent), PerdureStore(agent)
graph = create_agent(model, tools, checkpointer=saver, store=store, middleware=[DurableTools(agent)])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .calls import effect_key
    from .middleware import DurableTools
    from .migrating import Migrated, migrate
    from .saver import PerdureSaver
    from .store import PerdureStore
    from .wrapping import durable

__all__ = ["DurableTools", "Migrated", "PerdureSaver", "PerdureStore", "durable", "effect_key", "migrate"]

_PLACES = {
    "DurableTools": "middleware",
    "Migrated": "migrating",
    "PerdureSaver": "saver",
    "PerdureStore": "store",
    "durable": "wrapping",
    "effect_key": "calls",
    "migrate": "migrating",
}


def __getattr__(name: str) -> Any:
    """Load a name on first use: only some of them need all of LangChain."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_PLACES[name]}", __name__), name)
