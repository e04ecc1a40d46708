"""`DurableTools`: middleware for `create_agent`. Model calls become steps; tool calls become effects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, RemoveMessage, ToolMessage

from perdure.adapters.call_policy import CallPolicy, EffectGivenUp
from perdure.adapters.langgraph import known_types
from perdure.adapters.langgraph.calls import CallOutcome, GraphCall, ado, digest_of, do
from perdure.adapters.langgraph.durable_tool import DurableTool, KeyedTool, select_model_arguments, tool_call
from perdure.adapters.langgraph.location import GraphTask, place_of
from perdure.adapters.langgraph.model_answers import answer_of, parts_of
from perdure.adapters.langgraph.results import make_abandoned_message, message_of
from perdure.errors import ExtraMissing, WrongType
from perdure.kernel.protocol import drive_sync
from perdure.kernel.scope import current_frame
from perdure.records import ModelUsage
from perdure.run import usage
from perdure.run.core import core_of

try:
    from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, ModelResponse, ToolCallRequest
except ImportError as error:  # LangGraph alone is enough for durable(); only create_agent has middleware
    raise ExtraMissing("DurableTools needs create_agent of LangChain", hint="pip install langchain") from error

if TYPE_CHECKING:
    from perdure import Agent, AsyncAgent


class DurableTools(AgentMiddleware[Any, Any, Any]):
    """Middleware for `create_agent`: a finished call is never made again, and no tool call is silently repeated.

    >>> create_agent(model, [pay, search], checkpointer=saver, middleware=[DurableTools(agent, steps=["search"])])

    Put it first, around all other middleware. Every tool call is an effect: its intent is on disk before it starts.

    - `steps` names tools that are safe to repeat. `plain` names tools to leave alone, such as a graph with durable
      tools.
    - `checks` maps a tool to a function that finds out whether a call happened: `check(**arguments, key=...)` returns
      `Done(result)`, `NotDone` or `Unknown`.
    - `in_doubt` says what to do when the outcome is unknown: "ask" a person, "retry" with the same key, or "fail". It
      applies to all tools, or is a mapping by name.
    - `models=False` leaves model calls alone.

    A tool wrapped with `durable` keeps its own settings.
    """

    def __init__(
        self,
        agent: Agent | AsyncAgent,
        *,
        steps: Collection[str] = (),
        plain: Collection[str] = (),
        checks: Mapping[str, Callable[..., Any]] | None = None,
        in_doubt: str | Mapping[str, str] = "ask",
        not_done: tuple[type[BaseException], ...] = (),
        on_change: str = "error",
        wait: float | None = 0.0,
        models: bool = True,
    ) -> None:
        super().__init__()
        known_types.learn()
        if isinstance(steps, str) or isinstance(plain, str):
            raise WrongType('steps= and plain= must be lists of names: steps=["search"]')
        self.tools = []
        self._engine = agent._engine
        self._plain, self._models = frozenset(plain), models
        self._in_doubt, self._checks, self._steps = in_doubt, dict(checks or {}), frozenset(steps)
        self._policy = CallPolicy(True, None, "ask", not_done, on_change, wait)
        for name in {"", *self._steps, *self._checks, *(in_doubt if isinstance(in_doubt, Mapping) else ())}:
            self._policy_of(name).options(None)  # report a mistake here, not at the first call

    def _policy_of(self, name: str) -> CallPolicy:
        doubt = self._in_doubt if isinstance(self._in_doubt, str) else self._in_doubt.get(name, "ask")
        base = self._policy
        return CallPolicy(
            name not in self._steps, self._checks.get(name), doubt, base.not_done, base.on_change, base.wait
        )

    # -- tools ------------------------------------------------------------------------------------------------------

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        """Execute a tool call once."""
        name, asked = request.tool_call["name"], str(request.tool_call.get("id") or "")
        if name in self._plain or request.tool is None:
            return handler(request)
        place, call = self._tool_call(request)
        try:
            came = do(self._engine, place, call, lambda _, key: handler(_inner(request, key)))
        except EffectGivenUp as error:
            return make_abandoned_message(error, name, asked)
        return message_of(came.result, name, asked)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Execute a tool call once under asyncio."""
        name, asked = request.tool_call["name"], str(request.tool_call.get("id") or "")
        if name in self._plain or request.tool is None:
            return await handler(request)
        place, call = self._tool_call(request)
        try:
            came = await ado(self._engine, place, call, lambda _, key: handler(_inner(request, key)))
        except EffectGivenUp as error:
            return make_abandoned_message(error, name, asked)
        return message_of(came.result, name, asked)

    def _tool_call(self, request: ToolCallRequest) -> tuple[GraphTask, GraphCall]:
        tool, asked = request.tool, request.tool_call
        place = place_of(request.runtime.config, asked["name"])
        said = tool if isinstance(tool, DurableTool) else None
        policy = self._policy_of(asked["name"]) if said is None else said.policy
        arguments = select_model_arguments(tool, asked["args"], None if said is None else said.key)
        return place, tool_call(asked["name"], str(asked.get("id") or ""), arguments, place, policy)

    # -- models -----------------------------------------------------------------------------------------------------

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Execute a model call once."""
        if not self._models:
            return handler(request)
        if (again := find_pending_answer(request.messages)) is not None:
            return ModelResponse(result=again)
        place, call = _model_call(request)

        def body(_: Mapping[str, Any], key: str) -> Any:
            response = handler(_prepare_request(request))
            _report(response)
            return parts_of(response)

        return _answer(request, do(self._engine, place, call, body))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """Execute a model call once under asyncio."""
        if not self._models:
            return await handler(request)
        if (again := find_pending_answer(request.messages)) is not None:
            return ModelResponse(result=again)
        place, call = _model_call(request)

        async def body(_: Mapping[str, Any], key: str) -> Any:
            response = await handler(_prepare_request(request))
            _report(response)
            return parts_of(response)

        return _answer(request, await ado(self._engine, place, call, body))


def _inner(request: ToolCallRequest, key: str) -> ToolCallRequest:
    """Return the request for the handler. A tool that is already durable must not be made durable twice."""
    tool = request.tool
    if not isinstance(tool, DurableTool):
        return request
    keyed: Any = KeyedTool(tool, key)
    return request.override(tool=keyed)


def _model_call(request: ModelRequest[Any]) -> tuple[GraphTask, GraphCall]:
    """Identify a model call by the conversation. System prompts are ignored: they may contain the time of day."""
    place = place_of(None, "a model")
    asked = request.messages[: len(request.messages) - len(find_repeated_input(request.messages))]
    return place, GraphCall("model", digest_of((place.path, asked)), {}, CallPolicy(effect=False))


def _prepare_request(request: ModelRequest[Any]) -> ModelRequest[Any]:
    """Return the request for the model. In the middle of a turn, drop a repeated question."""
    again = find_repeated_input(request.messages)
    before = request.messages[: len(request.messages) - len(again)]
    return request.override(messages=before) if again and isinstance(before[-1], ToolMessage) else request


def _answer(request: ModelRequest[Any], came: CallOutcome) -> ModelResponse[Any]:
    """Return the response, and remove messages that only repeated the question."""
    response: ModelResponse[Any] = answer_of(came.result, request.response_format)
    if came.again or _prepare_request(request) is not request:
        response.result = [*_drop_repeated(find_repeated_input(request.messages)), *response.result]
    return response


def _drop_repeated(messages: list[HumanMessage]) -> list[BaseMessage]:
    return [RemoveMessage(id=one.id) for one in messages if one.id]


def find_pending_answer(messages: list[AnyMessage]) -> list[BaseMessage] | None:
    """Return the pending answer if the same input was given again while its tool calls were in progress.

    The caller then drops the repeated input and continues with that answer.
    """
    again = find_repeated_input(messages)
    before = messages[: len(messages) - len(again)]
    answers = [n for n, one in enumerate(before) if isinstance(one, AIMessage)]
    if not again or not answers:
        return None
    last = before[answers[-1]]
    said = {one.tool_call_id for one in before[answers[-1] :] if isinstance(one, ToolMessage)}
    missing = isinstance(last, AIMessage) and any(call["id"] not in said for call in last.tool_calls)
    return [*_drop_repeated(again), last] if missing else None


def find_repeated_input(messages: list[AnyMessage]) -> list[HumanMessage]:
    """Return the messages at the end that only repeat an input which was not answered completely."""
    humans = _humans_at_the_end(messages)
    for size in range(1, len(humans) // 2 + 1):
        if digest_of(humans[-size:]) == digest_of(humans[-2 * size : -size]):
            return [*find_repeated_input(messages[:-size]), *humans[-size:]]
    before = messages[: len(messages) - len(humans)]
    if not humans or not before or (isinstance(before[-1], AIMessage) and not before[-1].tool_calls):
        return []
    while before and not isinstance(before[-1], HumanMessage):
        before = before[:-1]
    first = _humans_at_the_end(before)
    asked = first[: len(first) - len(find_repeated_input(before))]
    return humans if digest_of(asked) == digest_of(humans) else []


def _humans_at_the_end(messages: list[AnyMessage]) -> list[HumanMessage]:
    found = list[HumanMessage]()
    for one in reversed(messages):
        if not isinstance(one, HumanMessage):
            break
        found.insert(0, one)
    return found


def _report(response: Any) -> None:
    """Record token usage for `agent.usage()` and `agent.savings()`. The answer is paid for, whatever it contains."""
    frame = current_frame()
    for one in getattr(response, "result", [response]):
        used = getattr(one, "usage_metadata", None)
        if not used or frame is None:
            continue
        try:
            made = _usage_of(one.response_metadata, used)
        except (TypeError, ValueError):  # invalid numbers: record a call of unknown cost
            made = usage.check_report("unknown", "", 0, 0, 0, 0)
        drive_sync(frame.run.store, usage.record(core_of(frame), made, None))


def _usage_of(about: Mapping[str, Any], used: Mapping[str, Any]) -> ModelUsage:
    inside = used.get("input_token_details") or {}
    return usage.check_report(
        str(about.get("model_name") or about.get("model") or "unknown"),
        str(about.get("model_provider") or ""),
        int(used.get("input_tokens") or 0),
        int(used.get("output_tokens") or 0),
        int(inside.get("cache_read") or 0),
        int(inside.get("cache_creation") or 0),
    )
