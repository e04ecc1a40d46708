"""`PerdureStepStore`: runs, events, snapshots and tool effects of pydantic-ai-harness. Snapshots are threads."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai_harness.step_persistence._types import ContinuableSnapshot, RunRecord, StepEvent, ToolEffectRecord

from perdure.adapters.open_engine import AgentOrStore, EngineHolder
from perdure.adapters.saved_session import SavedSession, SessionState
from perdure.api.aio.state import AsyncAgentState
from perdure.kernel.protocol import drive_async

T = TypeVar("T")

_FRAMEWORK = "pydantic-ai"
_RUNS, _EVENTS, _EFFECTS = "step-runs", "step-events", "step-effects"


def _adapter_of(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


_RUN, _EVENT, _EFFECT = _adapter_of(RunRecord), _adapter_of(StepEvent), _adapter_of(ToolEffectRecord)


class PerdureStepStore:
    """Stores steps in a Perdure store: `StepPersistence(store=PerdureStepStore("agent.db"))`.

    The snapshots of a run are a thread with the run's id: `agent.threads` lists and reads it.
    """

    def __init__(self, store: AgentOrStore = None, *, agent: str = _FRAMEWORK) -> None:
        self._home = EngineHolder(store, agent)
        self._state = AsyncAgentState(self._home.engine)

    async def register_run(self, record: RunRecord) -> None:
        """Record a run."""
        await self._state.set(_RUNS, record.run_id, _RUN.dump_python(record, mode="json"))

    async def get_run(self, *, run_id: str) -> RunRecord | None:
        """Return a run, or None."""
        found = await self._state.get(_RUNS, run_id)
        return None if found is None else _RUN.validate_python(found)

    async def list_runs(
        self, *, parent_run_id: str | None = None, conversation_id: str | None = None
    ) -> list[RunRecord]:
        """Return the runs of a parent or a conversation, or all of them, oldest first."""
        records = [_RUN.validate_python(value) for _, value in await self._state.items(_RUNS)]
        found = [
            record
            for record in records
            if parent_run_id in (None, record.parent_run_id) and conversation_id in (None, record.conversation_id)
        ]
        return sorted(found, key=lambda record: record.started_at)

    async def append_event(self, event: StepEvent) -> None:
        """Add an event. One with a known idempotency key is ignored."""
        made = _EVENT.dump_python(event, mode="json")

        def add(events: Any) -> Any:
            known = list(events or ())
            again = event.idempotency_key is not None and any(
                one["idempotency_key"] == event.idempotency_key for one in known
            )
            return known if again else [*known, made]

        await self._state.update(_EVENTS, event.run_id, add)

    async def list_events(self, *, run_id: str) -> list[StepEvent]:
        """Return the events of a run in order."""
        return [_EVENT.validate_python(one) for one in await self._state.get(_EVENTS, run_id, [])]

    async def save_snapshot(self, snapshot: ContinuableSnapshot) -> None:
        """Save the messages of a run. A snapshot with a known or older idempotency key is ignored."""
        await drive_async(self._home.engine.store, self._saved(snapshot.run_id).change(lambda s: _add(s, snapshot)))

    async def latest_snapshot(self, *, run_id: str, include_interrupted: bool = False) -> ContinuableSnapshot | None:
        """Return the newest snapshot whose tool calls all have results, or the newest of all."""
        state = await drive_async(self._home.engine.store, self._saved(run_id).load())
        if not state.about:
            return None
        if include_interrupted or state.about["newest"]["state"] == "complete":
            return _snapshot(state.about["newest"], state.items)
        complete = state.about["complete"]
        return None if complete is None else _snapshot(complete["fields"], complete["messages"])

    async def record_tool_effect(self, record: ToolEffectRecord) -> None:
        """Record the state of a tool call."""
        made = _EFFECT.dump_python(record, mode="json")
        await self._state.set(f"{_EFFECTS}:{record.run_id}", record.tool_call_id, made)

    async def get_tool_effect(self, *, run_id: str, tool_call_id: str) -> ToolEffectRecord | None:
        """Return the state of a tool call, or None."""
        found = await self._state.get(f"{_EFFECTS}:{run_id}", tool_call_id)
        return None if found is None else _EFFECT.validate_python(found)

    async def list_unresolved_tool_effects(self, *, run_id: str) -> list[ToolEffectRecord]:
        """Return the tool calls of a run that started and have no outcome."""
        records = [_EFFECT.validate_python(value) for _, value in await self._state.items(f"{_EFFECTS}:{run_id}")]
        return [record for record in records if record.status == "started"]

    def _saved(self, run_id: str) -> SavedSession:
        return SavedSession(self._home.engine, run_id, _FRAMEWORK)


def _add(state: SessionState, snapshot: ContinuableSnapshot) -> SessionState | None:
    about = state.about
    if snapshot.idempotency_key is not None and _is_known(about.get("keys", []), snapshot.idempotency_key):
        return None
    complete = about.get("complete")
    if about and about["newest"]["state"] == "complete":
        complete = {"fields": about["newest"], "messages": state.items}
    fields = {
        field.name: getattr(snapshot, field.name) for field in dataclasses.fields(snapshot) if field.name != "messages"
    }
    keys = [*about.get("keys", []), *([snapshot.idempotency_key] if snapshot.idempotency_key else [])][-64:]
    kept = None if snapshot.state == "complete" else complete
    items = ModelMessagesTypeAdapter.dump_python(snapshot.messages, mode="json")
    return SessionState(items, {"newest": fields, "complete": kept, "keys": keys})


def _is_known(keys: list[str], key: str) -> bool:
    """Whether a key was used, or belongs before one that was: a replay saves old snapshots again."""
    number = _number_of(key)
    return key in keys or (number is not None and any((_number_of(other) or 0) > number for other in keys))


def _number_of(key: str) -> int | None:
    prefix, colon, _ = key.partition(":")
    return int(prefix) if colon and prefix.isdecimal() else None


def _snapshot(fields: dict[str, Any], messages: list[Any]) -> ContinuableSnapshot:
    return ContinuableSnapshot(**fields, messages=ModelMessagesTypeAdapter.validate_python(messages))
