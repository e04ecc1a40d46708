"""Google ADK: sessions, memories and artifacts in the store, and a plugin that pays and acts once.

    from perdure.adapters.adk import DurabilityPlugin, PerdureSessionService

    app = App(name="travel", root_agent=agent, plugins=[DurabilityPlugin("agent.db", checks={"book": booked})])
    runner = Runner(app=app, session_service=PerdureSessionService("agent.db"))

Needs `pip install perdure[adk]`. See docs/guides/adk.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from perdure.errors import ExtraMissing

if TYPE_CHECKING:
    from perdure.adapters.adk.artifacts import PerdureArtifactService
    from perdure.adapters.adk.memories import PerdureMemoryService
    from perdure.adapters.adk.plugin import DurabilityPlugin
    from perdure.adapters.adk.sessions import PerdureSessionService
    from perdure.adapters.call_policy import effect_key

__all__ = ["DurabilityPlugin", "PerdureArtifactService", "PerdureMemoryService", "PerdureSessionService", "effect_key"]

_PLACES = {
    "DurabilityPlugin": "plugin",
    "PerdureArtifactService": "artifacts",
    "PerdureMemoryService": "memories",
    "PerdureSessionService": "sessions",
    "effect_key": ".call_policy",
}


def __getattr__(name: str) -> Any:
    """Load a name on first use: ADK takes seconds to import."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f".{_PLACES[name]}", __name__)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "perdure":
            raise
        raise ExtraMissing(f"{name} needs google-adk", hint='pip install "perdure[adk]"') from error
    return getattr(module, name)
