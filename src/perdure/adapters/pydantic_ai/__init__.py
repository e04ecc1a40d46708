"""Pydantic AI: agents that survive, and stores for steps, memories and files.

    from perdure.adapters.pydantic_ai import Durability

    agent = Agent("openai:gpt-5.5", capabilities=[Durability("agent.db", checks={"book": booked})])
    result = await agent.run("Book a flight", run_id="trip-42")

Needs `pip install perdure[pydantic-ai]`. See docs/guides/pydantic-ai.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.adapters.lazy_names import lazy_names

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

_MODULES = {
    "Durability": "durability",
    "PerdureMemoryStore": "memory_store",
    "PerdureStepStore": "step_store",
    "PerdureWorkspace": "workspace",
    "effect_key": ".call_policy",
    "to_model_messages": "history",
}

__getattr__ = lazy_names(__name__, _MODULES, "pydantic-ai", {"pydantic_ai_harness": "pydantic-ai-harness"})
