"""`Durability`: an agent run of Pydantic AI is a run of Perdure. Model requests are steps, tool calls are effects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, SkipToolExecution, ToolFailed
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse

from perdure.adapters.call_policy import STEP, AdapterCall, CallPolicy, EffectGivenUp, digest_of, to_plain
from perdure.adapters.model_usage import report_usage
from perdure.adapters.open_engine import AgentOrStore, EngineHolder
from perdure.adapters.session_calls import SessionCalls
from perdure.errors import WrongType
from perdure.values import codec

_CONTROL_FLOW = (ModelRetry, ToolFailed, CallDeferred, ApprovalRequired, SkipToolExecution)
"""Raised by a tool to tell the model or the caller something: nothing happened."""
_CHANGING = frozenset({"timestamp", "run_id", "conversation_id", "instructions", "metadata", "state"})
"""Fields of messages that differ between two processes that ask the same."""


class Durability(AbstractCapability[Any]):
    """Makes an agent durable: `Agent(model, capabilities=[Durability("agent.db")])`.

    The id of the run is Pydantic AI's `run_id=`: the same id after a crash continues the run. Finished model requests
    are not paid for again, and no tool call is silently repeated.

    - `checks` maps a tool to a function that finds out whether a call happened: `check(**arguments, key=...)` returns
      `Done(result)`, `NotDone` or `Unknown`.
    - `steps` names tools that are safe to repeat. `plain` names tools to leave alone.
    - `in_doubt` says what to do when the outcome is unknown: "ask" a person, "retry" with the same key, or "fail". It
      applies to all tools, or is a mapping by name.
    """

    def __init__(
        self,
        store: AgentOrStore = None,
        checks: Mapping[str, Callable[..., Any]] | None = None,
        *,
        agent: str = "pydantic-ai",
        steps: Collection[str] = (),
        plain: Collection[str] = (),
        in_doubt: str | Mapping[str, str] = "ask",
        not_done: tuple[type[BaseException], ...] = (),
    ) -> None:
        if isinstance(steps, str) or isinstance(plain, str):
            raise WrongType('steps= and plain= must be lists of names: steps=["search"]')
        codec.register_exception(*_CONTROL_FLOW, *not_done)
        self._home = EngineHolder(store, agent)
        self._checks, self._steps, self._plain = dict(checks or {}), frozenset(steps), frozenset(plain)
        self._in_doubt, self._not_done = in_doubt, (*_CONTROL_FLOW, *not_done)
        self._open: dict[str, SessionCalls] = {}
        for name in {"", *self._checks, *(in_doubt if isinstance(in_doubt, Mapping) else ())}:
            self._policy_of(name).options(None)  # report a mistake here, not at the first call

    def close(self) -> None:
        """Close the store if it was opened here."""
        self._home.close()

    def _policy_of(self, name: str) -> CallPolicy:
        doubt = self._in_doubt if isinstance(self._in_doubt, str) else self._in_doubt.get(name, "ask")
        return CallPolicy(name not in self._steps, self._checks.get(name), doubt, self._not_done)

    async def wrap_run(self, ctx: Any, *, handler: Any) -> Any:
        """Open the run at its first call, and end it as the agent's run ends."""
        run_id = str(ctx.run_id)
        calls = self._open[run_id] = SessionCalls(self._home.engine, lambda: run_id)
        try:
            result = await handler()
        except BaseException as error:
            calls.leave(error)
            raise
        finally:
            del self._open[run_id]
        await asyncio.to_thread(calls.finish, to_plain(result.output))
        return result

    async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> ModelResponse:
        """Make a model request once. A recorded answer is returned whole, also to a caller that streams."""
        calls = self._open.get(str(ctx.run_id))
        if calls is None:
            live: ModelResponse = await handler(request_context)
            return live
        asked = _identify(request_context.messages)
        call = AdapterCall("model", {"request": digest_of((asked, _describe_tools(request_context)))}, STEP)
        made: list[ModelResponse] = []

        async def body(_: dict[str, Any], key: str) -> Any:
            made.append(await handler(request_context))
            used = made[0].usage
            report_usage(
                made[0].model_name or "unknown",
                used.input_tokens,
                used.output_tokens,
                provider=made[0].provider_name or "",
                cached=used.cache_read_tokens,
                cache_write=used.cache_write_tokens,
            )
            return ModelMessagesTypeAdapter.dump_python(made, mode="json")

        stored = await calls.execute_async(call, body)
        answer = made or ModelMessagesTypeAdapter.validate_python(stored)
        assert isinstance(answer[0], ModelResponse)
        return answer[0]

    async def wrap_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any) -> Any:
        """Execute a tool call once."""
        calls = self._open.get(str(ctx.run_id))
        if calls is None or call.tool_name in self._plain:
            return await handler(args)

        async def body(_: dict[str, Any], key: str) -> Any:
            return await handler(args)

        given = args if isinstance(args, dict) else {"input": args}
        made = AdapterCall(call.tool_name, given, self._policy_of(call.tool_name), id=call.tool_call_id)
        try:
            return await calls.execute_async(made, body)
        except EffectGivenUp as error:
            return error.tell_model(call.tool_name)


def _identify(messages: list[Any]) -> Any:
    """Return what identifies a conversation: not the times and ids that every process makes anew."""
    return _strip(ModelMessagesTypeAdapter.dump_python(messages, mode="json"))


def _strip(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _strip(inner) for name, inner in value.items() if name not in _CHANGING}
    return [_strip(inner) for inner in value] if isinstance(value, list) else value


def _describe_tools(request: Any) -> list[str]:
    parameters = request.model_request_parameters
    return [tool.name for tool in (*parameters.function_tools, *parameters.output_tools)]
