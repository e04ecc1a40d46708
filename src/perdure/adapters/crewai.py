"""CrewAI: the states of flows, kept as threads of Perdure.

    from perdure.adapters.crewai import PerdureFlowPersistence

    @persist(PerdureFlowPersistence("agent.db"))
    class Trip(Flow[TripState]): ...

Needs `pip install perdure[crewai]`, in an environment without packages that need `mcp>=2` or `openai>=3`. See
docs/guides/crewai.md.
"""

from __future__ import annotations

from typing import Any

from perdure.adapters.open_engine import AgentOrStore, EngineHolder
from perdure.adapters.saved_session import SavedSession, SessionState
from perdure.errors import ExtraMissing
from perdure.kernel.protocol import drive_sync

try:
    from crewai.flow.async_feedback.types import PendingFeedbackContext
    from crewai.flow.persistence.base import FlowPersistence
except ModuleNotFoundError as missing:
    raise ExtraMissing("perdure.adapters.crewai needs crewai", hint='pip install "perdure[crewai]"') from missing

__all__ = ["PerdureFlowPersistence"]

_FRAMEWORK = "crewai"


class PerdureFlowPersistence(FlowPersistence):
    """Stores the state of a flow after each method, durably. Every state stays readable in `agent.threads.history`.

    CrewAI restores the state of a flow and executes its methods again. Make a method that acts on the world an effect
    of an agent, in a run with the flow's id, so that it does not act twice.
    """

    persistence_type: str = "PerdureFlowPersistence"
    _home: Any = None

    def __init__(self, store: AgentOrStore = None, *, agent: str = _FRAMEWORK, **fields: Any) -> None:
        super().__init__(**fields)
        self._home = EngineHolder(store, agent)

    def init_db(self) -> None:
        """Do nothing: the store is created when it is first used."""

    def save_state(self, flow_uuid: str, method_name: str, state_data: Any) -> None:
        """Save the state of a flow durably."""
        self._save(flow_uuid, {"method": method_name, "state": _to_dict(state_data), "pending": None})

    def load_state(self, flow_uuid: str) -> dict[str, Any] | None:
        """Return the newest state of a flow, or None."""
        about = self._load(flow_uuid).about
        return about["state"] if about else None

    def save_pending_feedback(self, flow_uuid: str, context: PendingFeedbackContext, state_data: Any) -> None:
        """Save the state of a flow that waits for a person."""
        made = {"method": context.method_name, "state": _to_dict(state_data), "pending": context.to_dict()}
        self._save(flow_uuid, made)

    def load_pending_feedback(self, flow_uuid: str) -> tuple[dict[str, Any], PendingFeedbackContext] | None:
        """Return the state of a flow and the question that it waits for, or None."""
        about = self._load(flow_uuid).about
        if not about or about["pending"] is None:
            return None
        return about["state"], PendingFeedbackContext.from_dict(about["pending"])

    def clear_pending_feedback(self, flow_uuid: str) -> None:
        """Record that the question was answered."""
        about = self._load(flow_uuid).about
        if about:
            self._save(flow_uuid, {**about, "pending": None})

    def _save(self, flow: str, about: dict[str, Any]) -> None:
        saved = self._saved(flow)
        drive_sync(saved.engine.store, saved.change(lambda _: SessionState([], about)))

    def _load(self, flow: str) -> SessionState:
        saved = self._saved(flow)
        return drive_sync(saved.engine.store, saved.load())

    def _saved(self, flow: str) -> SavedSession:
        return SavedSession(self._home.engine, flow, _FRAMEWORK)


def _to_dict(state: Any) -> dict[str, Any]:
    """Return the state of a flow as a dict. What JSON cannot hold becomes text, as in the storage of CrewAI."""
    return dict(state) if isinstance(state, dict) else dict(state.model_dump(mode="json", fallback=str))
