"""`PerdureMemoryService`: what ADK remembers of sessions is memory of the agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.genai import types

from perdure.adapters.adk.sessions import store_of
from perdure.adapters.open_engine import AgentOrStore, EngineHolder
from perdure.api.aio.memory import AsyncMemories
from perdure.api.aio.state import AsyncAgentState

_KNOWN = "adk-remembered"
"""The namespace with the ids of remembered events."""
_FOUND_MAX = 10


class PerdureMemoryService(BaseMemoryService):
    """Remembers the texts of sessions, each event once, and recalls them by words, meaning and time.

    Memories belong to the user `<app>/<user>`: `agent.memory.recall(query, user="travel/ann")` finds them too.
    """

    def __init__(self, store: AgentOrStore = None, *, uri: str = "", agent: str = "adk", **_: Any) -> None:
        self._home = EngineHolder(store_of(store, uri), agent)
        self._memory, self._state = AsyncMemories(self._home.engine), AsyncAgentState(self._home.engine)

    async def add_session_to_memory(self, session: Any) -> None:
        """Remember the events of a session that are not remembered yet."""
        await self.add_events_to_memory(
            app_name=session.app_name, user_id=session.user_id, events=session.events, session_id=session.id
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Any],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Remember events that are not remembered yet, all or none."""
        user, space = f"{app_name}/{user_id}", f"{_KNOWN}:{app_name}/{user_id}"
        known = {key for key, _ in await self._state.items(space)}
        new = [event for event in events if event.id not in known and _text(event.content)]
        if not new:
            return
        await self._memory.remember_all(
            [
                {
                    "text": _text(event.content),
                    "source": session_id or "adk",
                    "valid_from": datetime.fromtimestamp(event.timestamp, UTC),
                    "meta": {"author": event.author or "", "event": event.id},
                }
                for event in new
            ],
            kind="episodic",
            user=user,
        )
        async with self._state.transaction() as change:
            for event in new:
                await change.set(space, event.id, True)

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """Return the memories that answer a query best."""
        found = await self._memory.recall(query, _FOUND_MAX, user=f"{app_name}/{user_id}")
        return SearchMemoryResponse(memories=[_to_entry(one) for one in found])


def _text(content: Any) -> str:
    return " ".join(part.text for part in (content.parts if content and content.parts else ()) if part.text)


def _to_entry(found: Any) -> MemoryEntry:
    about = found.meta or {}
    author = about.get("author") or None
    content = types.Content(role="user" if author == "user" else "model", parts=[types.Part(text=found.text)])
    at = found.valid_from.isoformat() if found.valid_from else None
    return MemoryEntry(content=content, author=author, timestamp=at)
