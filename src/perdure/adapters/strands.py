"""Strands Agents: sessions that are threads of Perdure, and tools that never run twice.

    from perdure.adapters.strands import PerdureSessionManager, durable

    session = PerdureSessionManager("agent.db", "user-123")
    agent = Agent(model, tools=[durable(book, session=session, check=booked)], session_manager=session)
    agent("Book a flight")

Needs `pip install perdure[strands]`. See docs/guides/strands.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.adapters.call_policy import AdapterCall, CallPolicy, EffectGivenUp, effect_key
from perdure.adapters.open_engine import AgentOrStore, EngineHolder
from perdure.adapters.saved_session import SavedSession, SessionState
from perdure.adapters.session_calls import SessionCalls
from perdure.errors import ExtraMissing, NotDone, WrongType
from perdure.kernel.engine import Engine
from perdure.kernel.protocol import drive_sync

try:
    from strands.hooks.events import BeforeInvocationEvent
    from strands.session.repository_session_manager import RepositorySessionManager
    from strands.session.session_repository import SessionRepository
    from strands.tools.decorator import DecoratedFunctionTool
    from strands.types._events import ToolResultEvent
    from strands.types.exceptions import SessionException
    from strands.types.session import Session, SessionAgent, SessionMessage
    from strands.types.tools import AgentTool
except ModuleNotFoundError as missing:
    raise ExtraMissing(
        "perdure.adapters.strands needs strands-agents", hint='pip install "perdure[strands]"'
    ) from missing

__all__ = ["PerdureSessionManager", "durable", "effect_key"]

_FRAMEWORK = "strands"


class StoredSessions(SessionRepository):
    """The sessions of Strands as threads: the messages of each agent are a namespace of its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[tuple[str, str], SavedSession] = {}

    def of(self, session_id: str, part: str = "") -> SavedSession:
        """Return what is saved of a session itself, or of one of its agents."""
        if (session_id, part) not in self._known:
            ns = f"{_FRAMEWORK}/{part}" if part else _FRAMEWORK
            self._known[session_id, part] = SavedSession(self._engine, session_id, _FRAMEWORK, ns)
        return self._known[session_id, part]

    def _load(self, session_id: str, part: str = "") -> SessionState:
        return drive_sync(self._engine.store, self.of(session_id, part).load())

    def change(self, session_id: str, part: str, make: Callable[[SessionState], SessionState | None]) -> SessionState:
        """Change what is saved of an agent, durably."""
        return drive_sync(self._engine.store, self.of(session_id, part).change(make))

    def create_session(self, session: Session, **kwargs: Any) -> Session:
        self.change(session.session_id, "", lambda _: SessionState([], session.to_dict()))
        return session

    def read_session(self, session_id: str, **kwargs: Any) -> Session | None:
        state = self._load(session_id)
        return Session.from_dict(state.about) if state.checkpoint else None

    def delete_session(self, session_id: str, **kwargs: Any) -> None:
        """Delete the thread of a session, with the calls of its turns."""
        if self.read_session(session_id) is None:
            raise SessionException(f"session {session_id} does not exist")
        drive_sync(self._engine.store, self.of(session_id).delete())
        self._known = {place: saved for place, saved in self._known.items() if place[0] != session_id}

    def create_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        self.change(session_id, session_agent.agent_id, lambda s: SessionState(s.items, session_agent.to_dict()))

    def read_agent(self, session_id: str, agent_id: str, **kwargs: Any) -> SessionAgent | None:
        state = self._load(session_id, agent_id)
        return SessionAgent.from_dict(state.about) if state.about else None

    def update_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        def update(state: SessionState) -> SessionState | None:
            if not state.about:
                raise SessionException(f"agent {session_agent.agent_id} of session {session_id} does not exist")
            made = {**session_agent.to_dict(), "created_at": state.about.get("created_at", session_agent.created_at)}
            return None if _same(made, state.about) else SessionState(state.items, made)

        self.change(session_id, session_agent.agent_id, update)

    def create_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any) -> None:
        made = session_message.to_dict()
        self.change(session_id, agent_id, lambda state: SessionState([*state.items, made], state.about))

    def read_message(self, session_id: str, agent_id: str, message_id: int, **kwargs: Any) -> SessionMessage | None:
        found = [item for item in self._load(session_id, agent_id).items if item["message_id"] == message_id]
        return SessionMessage.from_dict(found[0]) if found else None

    def update_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any) -> None:
        made = session_message.to_dict()

        def update(state: SessionState) -> SessionState:
            if all(item["message_id"] != made["message_id"] for item in state.items):
                raise SessionException(f"message {made['message_id']} of session {session_id} does not exist")
            items = [made if item["message_id"] == made["message_id"] else item for item in state.items]
            return SessionState(items, state.about)

        self.change(session_id, agent_id, update)

    def list_messages(
        self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0, **kwargs: Any
    ) -> list[SessionMessage]:
        items = self._load(session_id, agent_id).items[offset:]
        return [SessionMessage.from_dict(item) for item in items[:limit]]

    def create_multi_agent(self, session_id: str, multi_agent: Any, **kwargs: Any) -> None:
        self.change(session_id, f"multi/{multi_agent.id}", lambda _: SessionState([], multi_agent.serialize_state()))

    def read_multi_agent(self, session_id: str, multi_agent_id: str, **kwargs: Any) -> dict[str, Any] | None:
        return self._load(session_id, f"multi/{multi_agent_id}").about or None

    def update_multi_agent(self, session_id: str, multi_agent: Any, **kwargs: Any) -> None:
        if self.read_multi_agent(session_id, multi_agent.id) is None:
            raise SessionException(f"multi-agent {multi_agent.id} of session {session_id} does not exist")
        self.create_multi_agent(session_id, multi_agent)


def _same(made: dict[str, Any], known: dict[str, Any]) -> bool:
    return {**made, "updated_at": ""} == {**known, "updated_at": ""}


class PerdureSessionManager(RepositorySessionManager):
    """A session of Strands that survives the process. A killed turn is resumed by the same input, or by `agent(None)`.

    `store` is a URL, a path or an agent.
    """

    def __init__(self, store: AgentOrStore, session_id: str, *, agent: str = _FRAMEWORK, **kwargs: Any) -> None:
        self._home = EngineHolder(store, agent)
        self._sessions = StoredSessions(self._home.engine)
        self._agent_id = ""
        self.calls = SessionCalls(self._home.engine, self._run_id)
        super().__init__(session_id, self._sessions, **kwargs)

    def register_hooks(self, registry: Any, **kwargs: Any) -> None:
        super().register_hooks(registry, **kwargs)
        registry.add_callback(BeforeInvocationEvent, self._resume)

    def initialize(self, agent: Any, **kwargs: Any) -> None:
        super().initialize(agent, **kwargs)
        self._agent_id = self._agent_id or agent.agent_id

    def append_message(self, message: Any, agent: Any, **kwargs: Any) -> None:
        """Save a message durably. The answer without tool calls ends the turn."""
        if agent.agent_id == self._agent_id and _is_input(message):
            self.calls.next_turn()
        super().append_message(message, agent, **kwargs)
        if agent.agent_id == self._agent_id and message["role"] == "assistant" and not _has(message, "toolUse"):
            self.calls.finish("".join(part.get("text", "") for part in message["content"]))

    def close(self) -> None:
        """Leave the turn, and close the store if the manager has opened it."""
        self.calls.leave()
        self._home.close()

    def _resume(self, event: Any) -> None:
        """Drop an input that repeats the one of an unfinished turn, so that the turn goes on where it was."""
        agent, given = event.agent, event.messages
        if agent.agent_id != self._agent_id or not given:
            return
        kept = [message for message in agent.messages if not _is_repair(message)]
        asked = next((at for at in reversed(range(len(kept))) if _is_input(kept[at])), None)
        unfinished = asked is not None and (kept[-1]["role"] == "user" or _has(kept[-1], "toolUse"))
        if asked is None or not unfinished or [_content(kept[asked])] != [_content(message) for message in given]:
            return
        event.messages = []
        if len(kept) < len(agent.messages) and _is_repair(agent.messages[-1]):
            agent.messages.pop()
            self._sessions.change(
                self.session_id, agent.agent_id, lambda state: SessionState(state.items[:-1], state.about)
            )

    def _run_id(self) -> str:
        saved = self._sessions.of(self.session_id, self._agent_id)
        turn = sum(_is_input(item["message"]) for item in saved.read().items)
        return f"{self.session_id}#{f'{saved.life}.' if saved.life else ''}{turn}"


def _content(message: Any) -> Any:
    return message["role"], message["content"]


def _has(message: Any, part: str) -> bool:
    return any(part in block for block in message["content"])


def _is_input(message: Any) -> bool:
    return bool(message["role"] == "user" and not _has(message, "toolResult"))


def _is_repair(message: Any) -> bool:
    """Whether Strands has made this message in place of the results of tools that were interrupted."""
    results = [block["toolResult"] for block in message["content"] if "toolResult" in block]
    return bool(results) and all(
        result["status"] == "error" and result["content"] == [{"text": "Tool was interrupted."}] for result in results
    )


# -- tools -------------------------------------------------------------------------------------------------------------


def durable(
    tool: Any,
    *,
    session: PerdureSessionManager,
    check: Callable[..., Any] | None = None,
    in_doubt: str = "ask",
    not_done: tuple[type[BaseException], ...] = (),
    step: bool = False,
) -> AgentTool:
    """Return a tool whose calls are effects of the session's turn: none is silently repeated.

    - `check(**arguments, key=...)` finds out whether a call happened: `Done(result)`, `NotDone` or `Unknown`.
    - `in_doubt` says what to do when the outcome is unknown: "ask" a person, "retry" with the same key, or "fail".
    - `not_done` lists exceptions that mean nothing happened. The model is told of them.
    - `step=True` marks a tool that is safe to repeat: it is recorded and never in doubt.

    Inside the tool, `effect_key()` returns the idempotency key.
    """
    if not isinstance(tool, AgentTool):
        raise WrongType(f"durable() needs a tool of Strands, not {tool!r}")
    policy = CallPolicy(not step, check, in_doubt, not_done)
    policy.options(None)  # report a mistake here, not at the first call
    return DurableAgentTool(tool, session, policy)


class DurableAgentTool(AgentTool):
    """A tool made by `durable`: unchanged for the model, an effect when called."""

    def __init__(self, inner: AgentTool, session: PerdureSessionManager, policy: CallPolicy) -> None:
        super().__init__()
        self._inner, self._session, self._policy = inner, session, policy
        self._nothing_happened: tuple[type[BaseException], ...] = (NotDone, *policy.not_done)

    @property
    def tool_name(self) -> str:
        return self._inner.tool_name

    @property
    def tool_spec(self) -> Any:
        return self._inner.tool_spec

    @property
    def tool_type(self) -> str:
        return self._inner.tool_type

    async def stream(self, tool_use: Any, invocation_state: dict[str, Any], **kwargs: Any) -> Any:
        """Execute a call once. Events of the tool other than its result are passed on when it has ended."""
        if _is_invalid(self._inner, tool_use):
            async for event in self._inner.stream(tool_use, invocation_state, **kwargs):
                yield event  # the tool tells the model what is wrong with the arguments
            return
        events: list[Any] = []

        async def body(_: dict[str, Any], key: str) -> Any:
            events.extend([event async for event in self._inner.stream(tool_use, invocation_state, **kwargs)])
            return _result_of(events)

        call = AdapterCall(self.tool_name, dict(tool_use.get("input") or {}), self._policy, id=tool_use["toolUseId"])
        try:
            result = _to_result(await self._session.calls.execute_async(call, body), "success")
        except EffectGivenUp as error:
            result = _to_result(error.tell_model(self.tool_name), "error")
        except self._nothing_happened as error:
            result = _to_result(f"Error: {error}", "error")
        for event in events[:-1]:
            yield event
        yield ToolResultEvent({**result, "toolUseId": tool_use["toolUseId"]})


def _is_invalid(tool: AgentTool, tool_use: Any) -> bool:
    if isinstance(tool, DecoratedFunctionTool):
        try:
            tool._metadata.validate_input(tool_use.get("input") or {})
        except ValueError:
            return True
    return False


def _result_of(events: list[Any]) -> Any:
    """Return the result of a tool. Strands turns its exceptions into text, but an effect must see them."""
    last = events[-1]
    if isinstance(last, ToolResultEvent):
        if last.exception is not None:
            raise last.exception
        return dict(last.tool_result)
    return last


def _to_result(value: Any, status: str) -> Any:
    """Return a value in the form of Strands. A check or a person may answer with a plain value."""
    if isinstance(value, dict) and "content" in value and "status" in value:
        return value
    return {"status": status, "content": [{"text": value if isinstance(value, str) else str(value)}]}
