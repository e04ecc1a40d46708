"""LangGraph and LangChain adapters: a checkpointer, a long-term memory, and durable tools.

from perdure.adapters.langgraph import DurableTools, PerdureSaver, PerdureStore

saver, store = PerdureSaver(agent), PerdureStore(agent)
graph = create_agent(model, tools, checkpointer=saver, store=store, middleware=[DurableTools(agent)])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from perdure.errors import ExtraMissing

if TYPE_CHECKING:
    from perdure.adapters.call_policy import effect_key
    from perdure.adapters.langgraph.durable_tool import durable
    from perdure.adapters.langgraph.middleware import DurableTools
    from perdure.adapters.langgraph.migration import Migrated, migrate
    from perdure.adapters.langgraph.saver import PerdureSaver
    from perdure.adapters.langgraph.store import PerdureStore

__all__ = ["DurableTools", "Migrated", "PerdureSaver", "PerdureStore", "durable", "effect_key", "migrate"]

_PLACES = {
    "DurableTools": "middleware",
    "Migrated": "migration",
    "PerdureSaver": "saver",
    "PerdureStore": "store",
    "durable": "durable_tool",
    "effect_key": ".call_policy",
    "migrate": "migration",
}


def __getattr__(name: str) -> Any:
    """Load a name on first use: only some of them need all of LangChain."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f".{_PLACES[name]}", __name__)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "perdure":
            raise
        raise ExtraMissing(f"{name} needs the package {package}", hint='pip install "perdure[langgraph]"') from error
    return getattr(module, name)
