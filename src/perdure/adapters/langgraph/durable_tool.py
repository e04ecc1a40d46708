"""`durable(tool)`: turns a tool, a function or a node of a graph into an effect, with or without middleware."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import update_wrapper
from typing import TYPE_CHECKING, Any

from langchain_core.tools import BaseTool

from perdure.adapters.call_policy import CallPolicy, EffectGivenUp
from perdure.adapters.langgraph import known_types
from perdure.adapters.langgraph.calls import GraphCall, ado, digest_of, do
from perdure.adapters.langgraph.location import GraphTask, place_of
from perdure.adapters.langgraph.results import make_abandoned_message, message_of
from perdure.errors import InDoubt, NotDurable, WrongType
from perdure.kernel.awaitables import is_async
from perdure.kernel.engine import Engine
from perdure.run.function import CallSignature, signature_of

if TYPE_CHECKING:
    from perdure import Agent, AsyncAgent

_NOT_ARGUMENTS = frozenset({"config", "runtime", "writer", "store", "previous", "run_manager", "callbacks"})
"""Parameters that LangGraph injects. They say where a call is, not what it is."""


def durable(
    tool: Any,
    *,
    agent: Agent | AsyncAgent | None = None,
    check: Callable[..., Any] | None = None,
    key: str | None = None,
    in_doubt: str = "ask",
    not_done: tuple[type[BaseException], ...] = (),
    step: bool = False,
    on_change: str = "error",
    wait: float | None = 0.0,
    name: str | None = None,
) -> Any:
    """Turn a tool, a function or a node into an effect that is never silently repeated.

    >>> tools = ToolNode([durable(pay, check=paid)])
    >>> graph.add_node("notify", durable(notify, in_doubt="retry"))

    - `key` names the parameter that receives the idempotency key; it is hidden from the model. For a function, the
      default is a keyword-only parameter `key` without a default. `effect_key()` returns the key anywhere.
    - `check(**arguments, key=...)` finds out whether the call happened: `Done(result)`, `NotDone` or `Unknown`.
    - `in_doubt` says what to do when the outcome is unknown: "ask" a person, "retry" with the same key, or "fail".
    - `not_done` lists exceptions that mean nothing happened.
    - `step=True` marks a call that is safe to repeat: it is recorded and never in doubt.
    - `agent` defaults to the agent of the graph's PerdureSaver.
    """
    policy = CallPolicy(not step, check, in_doubt, not_done, on_change, wait)
    policy.options(None)  # report a mistake here, not at the first call
    known_types.learn()
    engine = None if agent is None else agent._engine
    if isinstance(tool, BaseTool):
        return DurableTool(inner=tool, policy=policy, engine=engine, key=key, **_collect_declared_fields(tool))
    if not callable(tool):
        raise WrongType(f"durable() needs a tool, a function or a node, not {tool!r}")
    return _function(tool, policy, engine, key, name)


# -- functions and nodes -------------------------------------------------------------------------------------------


def _function(
    function: Callable[..., Any], policy: CallPolicy, engine: Engine | None, key: str | None, name: str | None
) -> Any:
    signature = signature_of(function)
    told = key or CallSignature(function, ()).key_name
    if told is not None and told not in signature.parameters:
        raise WrongType(f"durable(key={told!r}): {function!r} has no such parameter")
    label = str(name or getattr(function, "__name__", type(function).__name__))
    wrap = _async_wrapper if is_async(function) else _wrapper
    made = update_wrapper(wrap(function, signature, label, policy, engine, told), function)
    left = [one for one in signature.parameters.values() if one.name != told]
    made.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
    made.__annotations__ = {k: v for k, v in getattr(function, "__annotations__", {}).items() if k != told}
    del made.__wrapped__  # following __wrapped__ would reveal the hidden parameter
    return made


def abandoned_error(error: EffectGivenUp) -> InDoubt:
    """Return the error of a tool whose effect a person gave up, with the hint that names the run."""
    return InDoubt(str(error), hint=getattr(error.__cause__, "hint", ""))


def _wrapper(
    function: Callable[..., Any],
    signature: inspect.Signature,
    name: str,
    policy: CallPolicy,
    engine: Engine | None,
    key: str | None,
) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        place, made, bound = _call_of(signature, name, policy, args, kwargs, key)

        def body(_: Mapping[str, Any], made_key: str) -> Any:
            return function(*bound.args, **_add_key(bound.kwargs, key, made_key))

        try:
            return do(engine_of(engine, place, name), place, made, body).result
        except EffectGivenUp as error:
            raise abandoned_error(error) from error

    return call


def _async_wrapper(
    function: Callable[..., Any],
    signature: inspect.Signature,
    name: str,
    policy: CallPolicy,
    engine: Engine | None,
    key: str | None,
) -> Any:
    async def call(*args: Any, **kwargs: Any) -> Any:
        place, made, bound = _call_of(signature, name, policy, args, kwargs, key)

        async def body(_: Mapping[str, Any], made_key: str) -> Any:
            return await function(*bound.args, **_add_key(bound.kwargs, key, made_key))

        try:
            return (await ado(engine_of(engine, place, name), place, made, body)).result
        except EffectGivenUp as error:
            raise abandoned_error(error) from error

    return call


def _call_of(
    signature: inspect.Signature, name: str, policy: CallPolicy, args: Any, kwargs: Any, key: str | None
) -> tuple[GraphTask, GraphCall, inspect.BoundArguments]:
    place = place_of(None, name)
    bound = signature.bind(*args, **(kwargs if key is None else {**kwargs, key: ""}))
    arguments = {k: v for k, v in bound.arguments.items() if k not in _NOT_ARGUMENTS and k != key}
    return place, GraphCall(name, digest_of((place.path, arguments)), arguments, policy, counted=True), bound


def _add_key(kwargs: Mapping[str, Any], key: str | None, made: str) -> dict[str, Any]:
    return dict(kwargs) if key is None else {**kwargs, key: made}


def engine_of(engine: Engine | None, place: GraphTask, name: str) -> Engine:
    """Return the engine that records the calls: the given one, else that of the graph's saver."""
    found = engine or getattr(place.saver, "_engine", None)
    if not isinstance(found, Engine):
        raise NotDurable(
            f"durable {name} has no agent to record its calls",
            hint="pass durable(..., agent=agent), or compile the graph with checkpointer=PerdureSaver(agent)",
        )
    return found


# -- tools ---------------------------------------------------------------------------------------------------------


class DurableTool(BaseTool):
    """A tool wrapped by `durable`: unchanged for the model, an effect when called."""

    inner: Any
    policy: Any
    engine: Any = None
    key: str | None = None

    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        place, call = self.call_of(input, config)

        def body(_: Mapping[str, Any], key: str) -> Any:
            return KeyedTool(self, key).invoke(input, config, **kwargs)

        try:
            came = do(engine_of(self.engine, place, self.name), place, call, body)
        except EffectGivenUp as error:
            return make_abandoned_message(error, self.name, _id_of(input))
        return message_of(came.result, self.name, _id_of(input))

    async def ainvoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        place, call = self.call_of(input, config)

        async def body(_: Mapping[str, Any], key: str) -> Any:
            return await KeyedTool(self, key).ainvoke(input, config, **kwargs)

        try:
            came = await ado(engine_of(self.engine, place, self.name), place, call, body)
        except EffectGivenUp as error:
            return make_abandoned_message(error, self.name, _id_of(input))
        return message_of(came.result, self.name, _id_of(input))

    def call_of(self, input: Any, config: Any) -> tuple[GraphTask, GraphCall]:
        """Return where the tool is called, and its call."""
        place = place_of(config, self.name)
        asked = input["args"] if _id_of(input) else input if isinstance(input, Mapping) else {"input": input}
        arguments = select_model_arguments(self.inner, asked, self.key)
        return place, tool_call(self.name, _id_of(input), arguments, place, self.policy)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner._run(*args, **kwargs)

    def get_input_schema(self, config: Any = None) -> Any:
        return self.inner.get_input_schema(config)

    @property
    def tool_call_schema(self) -> Any:
        return self.inner.tool_call_schema


class KeyedTool:
    """The inner tool for one call, with the key filled in."""

    def __init__(self, tool: DurableTool, key: str) -> None:
        self._tool, self._name, self._key = tool.inner, tool.key, key

    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        return self._tool.invoke(self._add_key(input), config, **kwargs)

    async def ainvoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        return await self._tool.ainvoke(self._add_key(input), config, **kwargs)

    def _add_key(self, input: Any) -> Any:
        if self._name is None:
            return input
        given = {self._name: self._key}
        return {**input, "args": {**input["args"], **given}} if _id_of(input) else {**input, **given}


def _collect_declared_fields(tool: BaseTool) -> dict[str, Any]:
    kept = ("name", "description", "args_schema", "return_direct", "response_format", "metadata", "tags")
    return {part: getattr(tool, part) for part in kept}


def _id_of(input: Any) -> str:
    whole = isinstance(input, Mapping) and input.get("type") == "tool_call"
    return str(input.get("id") or "") if whole else ""


def tool_call(name: str, id: str, arguments: dict[str, Any], place: GraphTask, policy: CallPolicy) -> GraphCall:
    """Return a call requested by a model, identified by the id from the model."""
    return GraphCall(name, id or digest_of((place.path, arguments)), arguments, policy, counted=not id)


def select_model_arguments(tool: Any, arguments: Mapping[str, Any], key: str | None = None) -> dict[str, Any]:
    """Return the arguments from the model, without injected ones."""
    schema = tool.tool_call_schema if tool is not None else None
    fields = getattr(schema, "model_fields", None)
    if fields is None and isinstance(schema, Mapping):
        fields = schema.get("properties")
    return {k: v for k, v in arguments.items() if k != key and (not fields or k in fields)}
