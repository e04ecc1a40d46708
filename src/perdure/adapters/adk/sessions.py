"""`PerdureSessionService`: sessions of ADK as threads `<app>/<user>/<session>`."""

from __future__ import annotations

import time
import uuid
from functools import partial
from typing import Any

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.session import Session
from google.adk.sessions.state import State

from perdure.adapters.open_engine import AgentOrStore, EngineHolder
from perdure.adapters.saved_session import SavedSession, SessionState
from perdure.api.aio.state import AsyncAgentState
from perdure.kernel.protocol import Protocol, Read, drive_async
from perdure.work.threads.listing import list_saved_threads

_FRAMEWORK = "adk"
_APP, _USER = "adk-app-state", "adk-user-state"


def store_of(store: AgentOrStore, uri: str) -> AgentOrStore:
    """Return the store that a URI of the ADK command line names: `perdure:///path.db`, `perdure://postgresql://...`."""
    return uri.removeprefix("perdure://") or None if uri else store


class PerdureSessionService(BaseSessionService):
    """Stores sessions of ADK: `Runner(..., session_service=PerdureSessionService("agent.db"))`.

    Keys with `app:` and `user:` are shared by the sessions of an app or a user; keys with `temp:` are not stored.
    """

    def __init__(self, store: AgentOrStore = None, *, uri: str = "", agent: str = _FRAMEWORK, **_: Any) -> None:
        self._home = EngineHolder(store_of(store, uri), agent)
        self._state = AsyncAgentState(self._home.engine)

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        """Create a session. Raises `AlreadyExistsError`."""
        name = (session_id or "").strip() or str(uuid.uuid4())
        own = await self._share(app_name, user_id, state or {})
        now = time.time()

        def create(saved: SessionState) -> SessionState:
            if saved.checkpoint:
                raise AlreadyExistsError(f"Session with id {name} already exists.")
            return SessionState([], {"state": own, "updated": now})

        saved = await self._do(self._saved(app_name, user_id, name).change(create))
        return await self._session(app_name, user_id, name, saved, None)

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """Return a session with all or the newest events, or None."""
        name = session_id.strip()
        saved = await self._do(self._saved(app_name, user_id, name).load())
        return await self._session(app_name, user_id, name, saved, config) if saved.checkpoint else None

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return the sessions of an app or a user without events, least recently used first."""
        start = f"{app_name}/" if user_id is None else f"{app_name}/{user_id}/"
        names = await self._do(_names(self._home.engine, start))
        found = []
        for name in names:
            _, user, session = name.split("/", 2)
            saved = await self._do(SavedSession(self._home.engine, name, _FRAMEWORK).load())
            made = await self._session(app_name, user, session, saved, GetSessionConfig(num_recent_events=0))
            found.append(made)
        return ListSessionsResponse(sessions=sorted(found, key=lambda one: one.last_update_time))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session and its events."""
        await self._do(self._saved(app_name, user_id, session_id).delete())

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state that all sessions of a user share, without the prefix."""
        return dict(await self._state.get(_USER, f"{app_name}/{user_id}", {}))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Add an event durably, with the state that it changes."""
        if event.partial:
            return event
        event = await super().append_event(session, event)
        delta = event.actions.state_delta if event.actions else {}
        own = await self._share(session.app_name, session.user_id, dict(delta))
        made = event.model_dump(mode="json", by_alias=True, exclude_none=True)

        def add(saved: SessionState) -> SessionState:
            if not saved.checkpoint:
                raise SessionNotFoundError(f"Session {session.id} not found.")
            about = {"state": {**saved.about["state"], **own}, "updated": event.timestamp}
            return SessionState([*saved.items, made], about)

        await self._do(self._saved(session.app_name, session.user_id, session.id).change(add))
        session.last_update_time = event.timestamp
        return event

    async def drop_events(self, session: Session, first: int) -> None:
        """Drop the events from a number on: a turn that is resumed makes them again."""
        saved = self._saved(session.app_name, session.user_id, session.id)
        await self._do(saved.change(lambda state: SessionState(state.items[:first], state.about)))

    async def _share(self, app: str, user: str, delta: dict[str, Any]) -> dict[str, Any]:
        """Store what apps and users share, and return the rest."""
        parts: dict[str, dict[str, Any]] = {State.APP_PREFIX: {}, State.USER_PREFIX: {}, State.TEMP_PREFIX: {}}
        own = {}
        for name, value in delta.items():
            prefix = next((prefix for prefix in parts if name.startswith(prefix)), None)
            if prefix is None:
                own[name] = value
            else:
                parts[prefix][name.removeprefix(prefix)] = value
        for space, key, new in (
            (_APP, app, parts[State.APP_PREFIX]),
            (_USER, f"{app}/{user}", parts[State.USER_PREFIX]),
        ):
            if new:
                await self._state.update(space, key, partial(_merge, new))
        return own

    async def _session(
        self, app: str, user: str, name: str, saved: SessionState, config: GetSessionConfig | None
    ) -> Session:
        shared = await self._state.get(_APP, app, {})
        of_user = await self._state.get(_USER, f"{app}/{user}", {})
        state = {
            **saved.about["state"],
            **{State.APP_PREFIX + key: value for key, value in shared.items()},
            **{State.USER_PREFIX + key: value for key, value in of_user.items()},
        }
        events = _select([Event.model_validate(item) for item in saved.items], config)
        updated = saved.about["updated"]
        return Session(app_name=app, user_id=user, id=name, state=state, events=events, last_update_time=updated)

    def _saved(self, app: str, user: str, session: str) -> SavedSession:
        return SavedSession(self._home.engine, f"{app}/{user}/{session}", _FRAMEWORK)

    async def _do(self, protocol: Protocol[Any]) -> Any:
        return await drive_async(self._home.engine.store, protocol)


def _merge(new: dict[str, Any], old: dict[str, Any] | None) -> dict[str, Any]:
    return {**(old or {}), **new}


def _names(engine: Any, start: str) -> Protocol[Any]:
    threads = yield Read(list_saved_threads, (engine,))
    return [thread.id for thread in threads if thread.framework == _FRAMEWORK and thread.id.startswith(start)]


def _select(events: list[Event], config: GetSessionConfig | None) -> list[Event]:
    if config is None:
        return events
    if config.num_recent_events is not None:
        events = events[-config.num_recent_events :] if config.num_recent_events else []
    after = config.after_timestamp
    return events if after is None else [event for event in events if event.timestamp >= after]
