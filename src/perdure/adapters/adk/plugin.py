"""`DurabilityPlugin`: model calls of ADK become steps, tool calls become effects, a turn of a session is a run."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextvars import ContextVar
from typing import Any

from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin

from perdure.adapters.adk.sessions import PerdureSessionService
from perdure.adapters.call_policy import STEP, AdapterCall, CallPolicy, EffectGivenUp, digest_of
from perdure.adapters.model_usage import report_usage
from perdure.adapters.open_engine import AgentOrStore, EngineHolder
from perdure.adapters.session_calls import SessionCalls, StreamFormat
from perdure.api.aio.state import AsyncAgentState
from perdure.errors import NotDone, WrongType

_TURNS = "adk-turns"
"""The namespace with the last turn of each session: its number, a digest of its input, and whether it is done."""
_CALLS: ContextVar[SessionCalls | None] = ContextVar("perdure_adk_calls", default=None)


class DurabilityPlugin(BasePlugin):
    """Makes the runs of an app durable: `App(..., plugins=[DurabilityPlugin("agent.db", checks={"pay": paid})])`.

    A killed turn is resumed by the same message, or by its `invocation_id`. Finished model calls are not paid for
    again, and no tool call is silently repeated.

    - `checks` maps a tool to a function that finds out whether a call happened: `check(**arguments, key=...)` returns
      `Done(result)`, `NotDone` or `Unknown`.
    - `steps` names tools that are safe to repeat. `plain` names tools to leave alone.
    - `in_doubt` says what to do when the outcome is unknown: "ask" a person, "retry" with the same key, or "fail".
    """

    def __init__(
        self,
        store: AgentOrStore = None,
        checks: Mapping[str, Callable[..., Any]] | None = None,
        *,
        agent: str = "adk",
        steps: Collection[str] = (),
        plain: Collection[str] = (),
        in_doubt: str | Mapping[str, str] = "ask",
        not_done: tuple[type[BaseException], ...] = (),
    ) -> None:
        super().__init__(name="perdure_durability")
        if isinstance(steps, str) or isinstance(plain, str):
            raise WrongType('steps= and plain= must be lists of names: steps=["search"]')
        self._home = EngineHolder(store, agent)
        self._state = AsyncAgentState(self._home.engine)
        self._checks, self._steps, self._plain = dict(checks or {}), frozenset(steps), frozenset(plain)
        self._in_doubt, self._not_done = in_doubt, not_done
        self._nothing_happened: tuple[type[BaseException], ...] = (NotDone, *not_done)
        self._open: dict[str, SessionCalls] = {}
        for name in {"", *self._checks, *(in_doubt if isinstance(in_doubt, Mapping) else ())}:
            self._policy_of(name).options(None)  # report a mistake here, not at the first call

    def _policy_of(self, name: str) -> CallPolicy:
        doubt = self._in_doubt if isinstance(self._in_doubt, str) else self._in_doubt.get(name, "ask")
        return CallPolicy(name not in self._steps, self._checks.get(name), doubt, self._not_done)

    # -- turns --------------------------------------------------------------------------------------------------------

    async def on_user_message_callback(self, *, invocation_context: Any, user_message: Any) -> None:
        """Begin the next turn; or begin the last one again, if it was killed and has the same message."""
        session = invocation_context.session
        thread, given = _thread_of(session), digest_of(user_message.model_dump(mode="json", exclude_none=True))
        last = await self._state.get(_TURNS, thread, {"turn": 0, "done": True})
        if not last["done"] and last["input"] == given:
            await self._rewind(invocation_context, last["events"])
            return
        turn = {"turn": last["turn"] + 1, "input": given, "done": False, "events": len(session.events)}
        await self._state.set(_TURNS, thread, turn)

    async def _rewind(self, context: Any, first: int) -> None:
        """Take back the events of a killed turn. They are made again, from the recorded calls."""
        del context.session.events[first:]
        if isinstance(context.session_service, PerdureSessionService):
            await context.session_service.drop_events(context.session, first)

    async def before_run_callback(self, *, invocation_context: Any) -> None:
        """Record the calls of this invocation in the run of the session's turn."""
        thread = _thread_of(invocation_context.session)
        last = await self._state.get(_TURNS, thread, {"turn": 1})
        calls = SessionCalls(self._home.engine, lambda: f"{thread}#{last['turn']}")
        self._open[invocation_context.invocation_id] = calls
        _CALLS.set(calls)
        _wrap_models(invocation_context.agent)

    async def after_run_callback(self, *, invocation_context: Any) -> None:
        """End the turn. One that waits, for a long-running tool or a person, is only left."""
        calls = self._open.pop(invocation_context.invocation_id, None)
        _CALLS.set(None)
        if calls is None:
            return
        events = invocation_context.session.events
        if not events or not events[-1].is_final_response() or events[-1].long_running_tool_ids:
            calls.leave()
            return
        content = events[-1].content
        text = "".join(part.text or "" for part in (content.parts or ())) if content else ""
        await asyncio.to_thread(calls.finish, text)
        await self._state.update(_TURNS, _thread_of(invocation_context.session), lambda turn: {**turn, "done": True})

    async def close(self) -> None:
        """Leave open turns, and close the store if it was opened here."""
        for calls in self._open.values():
            calls.leave()
        self._home.close()

    # -- tools --------------------------------------------------------------------------------------------------------

    async def before_tool_callback(self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any) -> Any:
        """Execute a tool call once. ADK takes the result and does not call the tool."""
        calls = self._open.get(tool_context.invocation_id)
        if calls is None or tool.name in self._plain or getattr(tool, "is_long_running", False):
            return None

        async def body(_: dict[str, Any], key: str) -> Any:
            return _storable(await tool.run_async(args=tool_args, tool_context=tool_context))

        ident = tool_context.function_call_id
        call = AdapterCall(tool.name, dict(tool_args), self._policy_of(tool.name), id=ident)
        try:
            result = await calls.execute_async(call, body)
        except EffectGivenUp as error:
            return {"error": error.tell_model(tool.name)}
        except self._nothing_happened as error:
            return {"error": str(error)}
        return result if isinstance(result, dict) else {"result": result}


def _storable(result: Any) -> Any:
    dump = getattr(result, "model_dump", None)
    return dump(mode="json") if callable(dump) else result


def _thread_of(session: Any) -> str:
    return f"{session.app_name}/{session.user_id}/{session.id}"


# -- models ------------------------------------------------------------------------------------------------------------


def _wrap_models(agent: Any) -> None:
    """Make the models of an agent and its sub-agents durable. A model is wrapped once."""
    if getattr(agent, "model", None) and not isinstance(agent.model, DurableLlm):
        agent.model = DurableLlm(model=agent.canonical_model.model, inner=agent.canonical_model)
    for other in getattr(agent, "sub_agents", None) or ():
        _wrap_models(other)


class DurableLlm(BaseLlm):
    """A model whose answers are recorded while an invocation of the plugin runs."""

    inner: Any

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        calls = _CALLS.get()

        async def start() -> AsyncGenerator[LlmResponse, None]:
            async for response in self.inner.generate_content_async(llm_request, stream):
                _name_calls(response)
                yield response

        if calls is None:
            async for response in start():
                yield response
            return
        call = AdapterCall("model", {"request": digest_of((_identify(llm_request), stream))}, STEP)
        form = StreamFormat(_is_last, self._report, _dump, _load)
        async for response in calls.stream(call, start, form):
            yield response

    def connect(self, llm_request: Any) -> Any:
        return self.inner.connect(llm_request)

    def _report(self, responses: list[Any]) -> None:
        used = responses[-1].usage_metadata
        if used is not None:
            model = responses[-1].model_version or self.model
            cached = used.cached_content_token_count
            report_usage(model, used.prompt_token_count, used.candidates_token_count, cached=cached)


def _identify(request: Any) -> Any:
    """Return what identifies a request: the conversation and the names of the tools."""
    contents = [content.model_dump(mode="json", exclude_none=True) for content in request.contents]
    return contents, sorted(request.tools_dict)


def _name_calls(response: LlmResponse) -> None:
    """Give function calls without an id one that is recorded with the answer, so that it stays the same."""
    if response.partial:
        return
    for part in (response.content.parts or ()) if response.content else ():
        if part.function_call is not None and not part.function_call.id:
            part.function_call.id = f"adk-{uuid.uuid4()}"


def _is_last(response: LlmResponse) -> bool:
    return not response.partial and response.error_code is None


def _dump(responses: list[Any]) -> Any:
    return [response.model_dump(mode="json", exclude_none=True) for response in responses]


def _load(stored: Any) -> list[Any]:
    return [LlmResponse.model_validate(one) for one in stored]
