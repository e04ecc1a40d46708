"""OpenAI Agents SDK: sessions that are threads of Perdure, models that are paid once, tools that never run twice.

    from perdure.adapters.openai_agents import PerdureSession, durable, durable_model

    session = PerdureSession("agent.db", "user-123")
    agent = Agent("travel", model=durable_model(session, "gpt-5.5"), tools=[durable(book, session=session)])
    result = await Runner.run(agent, "Book a flight", session=session)

Needs `pip install perdure[openai-agents]`. See docs/guides/openai-agents.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from typing import Any

from perdure.adapters.call_policy import (
    STEP,
    AdapterCall,
    CallPolicy,
    EffectGivenUp,
    digest_of,
    effect_key,
    parse_arguments,
    to_plain,
)
from perdure.adapters.conversations import find_messages
from perdure.adapters.model_usage import report_usage
from perdure.adapters.open_engine import AgentOrStore, EngineHolder
from perdure.adapters.saved_session import SavedSession, SessionState
from perdure.adapters.session_calls import SessionCalls, StreamFormat
from perdure.errors import ExtraMissing, NotDone, PerdureError, WrongType
from perdure.kernel.protocol import Protocol, drive_async

try:
    from agents.exceptions import ModelBehaviorError
    from agents.items import ModelResponse, TResponseStreamEvent
    from agents.memory.session_settings import SessionSettings, resolve_session_limit
    from agents.models.interface import Model
    from agents.models.multi_provider import MultiProvider
    from agents.tool import FunctionTool, function_tool, maybe_invoke_function_tool_failure_error_function
except ModuleNotFoundError as missing:
    raise ExtraMissing(
        "perdure.adapters.openai_agents needs openai-agents", hint='pip install "perdure[openai-agents]"'
    ) from missing

__all__ = ["PerdureSession", "durable", "durable_model", "effect_key"]

_FRAMEWORK = "openai-agents"
_LAST_EVENTS = frozenset({"response.completed", "response.incomplete"})


class PerdureSession:
    """A session of the OpenAI Agents SDK. It survives the process, and any process can continue it.

    `store` is a URL, a path or an agent. A conversation that another framework has saved under the same id goes on
    here. A turn that was killed is resumed by the same input, or by `[]`: recorded
    model calls and tool calls are not repeated.
    """

    def __init__(
        self,
        store: AgentOrStore,
        session_id: str,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        *,
        agent: str = _FRAMEWORK,
    ) -> None:
        self.session_id = session_id
        self.session_settings = _check_settings(session_settings)
        self._home = EngineHolder(store, agent)
        self._saved = SavedSession(self._home.engine, session_id, _FRAMEWORK, begin=self._read_other_frameworks)
        self._repeated: tuple[int, list[Any]] = (0, [])
        """Where the input of a resumed turn was given again, and that input."""
        self.calls = SessionCalls(self._home.engine, self._run_id)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the items, or the newest ones, oldest first."""
        state = await self._do(self._saved.load())
        most = resolve_session_limit(limit, self.session_settings)
        return list(state.items if most is None else state.items[-most:] if most > 0 else [])

    async def add_items(self, items: Sequence[Any]) -> None:
        """Add items durably. An input that resumes the unfinished turn is not added again."""
        self._home.check_open()
        given = [item if isinstance(item, dict) else to_plain(item) for item in items]
        if not given:
            return
        self._repeated = (0, []) if _has_input(given) else self._repeated
        state = await self._do(self._saved.change(lambda state: self._add(state, given)))
        if _is_answer(state.items[-1]):
            self.calls.finish(_text_of(state.items[-1]))

    def _add(self, state: SessionState, given: list[Any]) -> SessionState | None:
        if not _has_input(given):
            return SessionState([*state.items, *given], state.about)
        start, end = state.about.get("input", (0, 0))
        if end and not _is_answer(state.items[-1]) and state.items[start:end] == given:
            self._repeated = (len(state.items), given)
            return None
        self.calls.next_turn()
        turn, size = state.about.get("turn", 0) + 1, len(state.items)
        about = {**state.about, "turn": turn, "input": (size, size + len(given))}
        return SessionState([*state.items, *given], about)

    async def pop_item(self) -> Any | None:
        """Remove and return the newest item, or None."""
        popped: list[Any] = []

        def pop(state: SessionState) -> SessionState | None:
            popped[:] = state.items[-1:]
            return SessionState(state.items[:-1], {**state.about, "input": (0, 0)}) if state.items else None

        await self._do(self._saved.change(pop))
        return popped[0] if popped else None

    async def clear_session(self) -> None:
        """Remove all items. `agent.threads.delete(session_id)` also deletes the checkpoints."""
        self.calls.next_turn()
        await self._do(self._saved.change(lambda state: SessionState([], {**state.about, "input": (0, 0)})))

    def close(self) -> Closing:
        """Leave the turn, and close the store if the session has opened it. Some sessions of the SDK await this."""
        self.calls.leave()
        self._home.close()
        return Closing()

    def _read_other_frameworks(self) -> list[Any]:
        """Return the conversation that another framework has begun under this id."""
        return find_messages(self._home.engine, self.session_id, "responses")

    async def _do(self, protocol: Protocol[Any]) -> Any:
        self._home.check_open()
        return await drive_async(self._home.engine.store, protocol)

    def _run_id(self) -> str:
        turn, life = self._saved.read().about.get("turn", 0), self._saved.life
        return f"{self.session_id}#{f'{life}.' if life else ''}{turn}"

    def drop_repeated(self, input: str | list[Any]) -> str | list[Any]:
        """Return the input of a model without the question of a resumed turn, which the history contains already."""
        at, given = self._repeated
        if isinstance(input, str) or not given or to_plain(input[at : at + len(given)]) != to_plain(given):
            return input
        return [*input[:at], *input[at + len(given) :]]


class Closing:
    """A call that has been made, whether the caller awaits it or not."""

    def __await__(self) -> Generator[None]:
        yield from ()


def _check_settings(given: SessionSettings | dict[str, Any] | None) -> SessionSettings:
    """Return the settings of a session. The SDK reads them as an object."""
    if isinstance(given, SessionSettings):
        return given
    return SessionSettings(**(given or {}))


def _has_input(items: Sequence[Any]) -> bool:
    return any(item.get("role") in ("user", "system", "developer") for item in items)


def _is_answer(item: Any) -> bool:
    return isinstance(item, dict) and item.get("role") == "assistant"


def _text_of(item: Any) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or () if isinstance(part, dict))


# -- models ------------------------------------------------------------------------------------------------------------


def durable_model(session: PerdureSession, model: str | Model | None) -> Model:
    """Return a model whose answers are recorded: after a crash, a paid answer is read and not asked for again."""
    if model is None or isinstance(model, str):
        model = MultiProvider().get_model(model)
    if not isinstance(model, Model):
        raise WrongType(f"durable_model() needs a model or its name, not {model!r}")
    return DurableModel(session, model)


class DurableModel(Model):
    """A model made by `durable_model`."""

    def __init__(self, session: PerdureSession, model: Model) -> None:
        self._session, self._model = session, model

    async def close(self) -> None:
        await self._model.close()

    def get_retry_advice(self, request: Any) -> Any:
        return self._model.get_retry_advice(request)

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        asked = self._session.drop_repeated(input)

        live: list[ModelResponse] = []

        async def body(_: dict[str, Any], key: str) -> Any:
            live.append(await self._model.get_response(system_instructions, asked, *args, **kwargs))
            self._report(live[0].usage)
            return _RESPONSE.dump_python(live[0], mode="json", exclude_unset=True, warnings=False)

        stored = await self._session.calls.execute_async(self._call(asked, args, kwargs), body)
        return live[0] if live else _RESPONSE.validate_python(stored)

    async def stream_response(
        self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any
    ) -> AsyncIterator[Any]:
        asked = self._session.drop_repeated(input)

        def start() -> AsyncIterator[Any]:
            return self._model.stream_response(system_instructions, asked, *args, **kwargs)

        form = StreamFormat(_is_last, self._report_last, _dump_events, _EVENTS.validate_python)
        async for event in self._session.calls.stream(self._call(asked, args, kwargs), start, form):
            yield event

    def _call(self, asked: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> AdapterCall:
        """Identify a call by the conversation and the tools. Instructions are ignored: they may contain the time."""
        given = {**dict(zip(_PARAMETERS, args, strict=False)), **kwargs}
        tools = [getattr(tool, "name", "") for tool in given.get("tools") or ()]
        handoffs = [handoff.tool_name for handoff in given.get("handoffs") or ()]
        schema = given.get("output_schema")
        about = (asked, tools, handoffs, schema.name() if schema is not None else "", given.get("previous_response_id"))
        return AdapterCall("model", {"request": digest_of(about)}, STEP)

    def _report(self, used: Any) -> None:
        if used is not None:
            cached = getattr(used.input_tokens_details, "cached_tokens", 0)
            model = str(getattr(self._model, "model", "unknown"))
            report_usage(model, used.input_tokens, used.output_tokens, cached=cached)

    def _report_last(self, events: list[Any]) -> None:
        self._report(getattr(getattr(events[-1], "response", None), "usage", None))


_PARAMETERS = ("model_settings", "tools", "output_schema", "handoffs", "tracing")
"""Positional parameters of a model after the instructions and the input."""


def _adapter_of(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


_RESPONSE, _EVENTS = _adapter_of(ModelResponse), _adapter_of(list[TResponseStreamEvent])


def _dump_events(events: list[Any]) -> Any:
    """Return events as JSON types. Fields that were not set stay away: they would change the next request."""
    return [event.model_dump(mode="json", exclude_unset=True, warnings=False) for event in events]


def _is_last(event: Any) -> bool:
    return getattr(event, "type", "") in _LAST_EVENTS


# -- tools -------------------------------------------------------------------------------------------------------------


def durable(
    tool: FunctionTool | Callable[..., Any],
    *,
    session: PerdureSession,
    check: Callable[..., Any] | None = None,
    in_doubt: str = "ask",
    not_done: tuple[type[BaseException], ...] = (),
    step: bool = False,
) -> FunctionTool:
    """Return a tool whose calls are effects of the session's turn: none is silently repeated.

    - `check(**arguments, key=...)` finds out whether a call happened: `Done(result)`, `NotDone` or `Unknown`.
    - `in_doubt` says what to do when the outcome is unknown: "ask" a person, "retry" with the same key, or "fail".
    - `not_done` lists exceptions that mean nothing happened. The model is told of them.
    - `step=True` marks a tool that is safe to repeat: it is recorded and never in doubt.

    Inside the tool, `effect_key()` returns the idempotency key.
    """
    inner = tool if isinstance(tool, FunctionTool) else function_tool(tool)
    policy = CallPolicy(not step, check, in_doubt, (*not_done, ModelBehaviorError))
    policy.options(None)  # report a mistake here, not at the first call
    # The SDK's own invoker turns exceptions into text for the model. An effect must see them first.
    invoke = getattr(inner.on_invoke_tool, "_invoke_tool_impl", inner.on_invoke_tool)

    async def on_invoke_tool(context: Any, input: str) -> Any:
        async def body(_: dict[str, Any], key: str) -> Any:
            return await invoke(context, input)

        call = AdapterCall(inner.name, parse_arguments(input), policy, id=context.tool_call_id)
        try:
            return await session.calls.execute_async(call, body)
        except EffectGivenUp as error:
            return error.tell_model(inner.name)
        except Exception as error:
            return await _tell_model(inner, context, error)

    return dataclasses.replace(inner, on_invoke_tool=on_invoke_tool)


async def _tell_model(tool: FunctionTool, context: Any, error: Exception) -> Any:
    """Tell the model of an error of the tool, as the SDK does. Errors of Perdure end the turn."""
    if isinstance(error, PerdureError) and not isinstance(error, NotDone):
        raise error
    told = await maybe_invoke_function_tool_failure_error_function(function_tool=tool, context=context, error=error)
    if told is None:
        raise error
    return told
