"""Google ADK: sessions, memories and artifacts in the store, and a plugin that pays and acts once.

    from perdure.adapters.adk import DurabilityPlugin, PerdureSessionService

    app = App(name="travel", root_agent=agent, plugins=[DurabilityPlugin("agent.db", checks={"book": booked})])
    runner = Runner(app=app, session_service=PerdureSessionService("agent.db"))

Needs `pip install perdure[adk]`. See docs/guides/adk.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.adapters.lazy_names import lazy_names

if TYPE_CHECKING:
    from perdure.adapters.adk.artifacts import PerdureArtifactService
    from perdure.adapters.adk.memories import PerdureMemoryService
    from perdure.adapters.adk.plugin import DurabilityPlugin
    from perdure.adapters.adk.sessions import PerdureSessionService
    from perdure.adapters.call_policy import effect_key

__all__ = ["DurabilityPlugin", "PerdureArtifactService", "PerdureMemoryService", "PerdureSessionService", "effect_key"]

_MODULES = {
    "DurabilityPlugin": "plugin",
    "PerdureArtifactService": "artifacts",
    "PerdureMemoryService": "memories",
    "PerdureSessionService": "sessions",
    "effect_key": ".call_policy",
}

__getattr__ = lazy_names(__name__, _MODULES, "adk")
