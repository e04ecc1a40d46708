"""Pydantic AI: agents that survive, and stores for steps, memories and files.

    from perdure.adapters.pydantic_ai import Durability

    agent = Agent("openai:gpt-5.5", capabilities=[Durability("agent.db", checks={"book": booked})])
    result = await agent.run("Book a flight", run_id="trip-42")

Needs `pip install perdure[pydantic-ai]`. See docs/guides/pydantic-ai.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from perdure.errors import ExtraMissing

if TYPE_CHECKING:
    from perdure.adapters.call_policy import effect_key
    from perdure.adapters.pydantic_ai.durability import Durability
    from perdure.adapters.pydantic_ai.history import to_model_messages
    from perdure.adapters.pydantic_ai.memory_store import PerdureMemoryStore
    from perdure.adapters.pydantic_ai.step_store import PerdureStepStore
    from perdure.adapters.pydantic_ai.workspace import PerdureWorkspace

__all__ = [
    "Durability",
    "PerdureMemoryStore",
    "PerdureStepStore",
    "PerdureWorkspace",
    "effect_key",
    "to_model_messages",
]

_PLACES = {
    "Durability": "durability",
    "PerdureMemoryStore": "memory_store",
    "PerdureStepStore": "step_store",
    "PerdureWorkspace": "workspace",
    "effect_key": ".call_policy",
    "to_model_messages": "history",
}


def __getattr__(name: str) -> Any:
    """Load a name on first use: only the stores need pydantic-ai-harness."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f".{_PLACES[name]}", __name__)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "perdure":
            raise
        raise ExtraMissing(f"{name} needs the package {package}", hint='pip install "perdure[pydantic-ai]"') from error
    return getattr(module, name)
