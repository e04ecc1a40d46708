"""Executes one call of a model, a tool or a node exactly once: each is a run with a single step or effect."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from perdure.adapters.call_policy import AdapterCall, CallBody, CallPolicy, bind_key, perform_call
from perdure.adapters.langgraph.location import GraphTask
from perdure.adapters.langgraph.stored_messages import storable_result, warn_reduced
from perdure.adapters.langgraph.trail import CallTrail, TrailCall, refuse_possible_repeats, trail_of, write
from perdure.errors import Diverged, EffectInsideStep, NotDone, NotStorable, PerdureError
from perdure.kernel.engine import Engine
from perdure.kernel.program_line import format_call
from perdure.kernel.protocol import Protocol, drive_async, drive_sync
from perdure.kernel.scope import FRAME
from perdure.run.core import RunCore
from perdure.run.finish import end_run
from perdure.run.function import Key
from perdure.run.lifecycle import open_run
from perdure.values import codec
from perdure.values.codec.refusals import type_name


class GraphCall(msgspec.Struct, frozen=True):
    """A call: the tool, model or node and its arguments."""

    name: str
    id: str
    """The id of the call within its thread, independent of the LangGraph task that makes it."""
    arguments: dict[str, Any]
    policy: CallPolicy
    counted: bool = False
    """Whether equal calls in one task count as several calls."""


class _Interrupted(NotDone):
    """The body waits for an answer that LangGraph supplies when it calls the body again."""


class CallOutcome(msgspec.Struct, frozen=True):
    """The outcome of a call."""

    result: Any
    again: bool
    """Whether the call had been started before."""


def do(engine: Engine, place: GraphTask, call: GraphCall, body: CallBody) -> CallOutcome:
    """Execute a call once and wait for the result."""
    lost: list[str] = []

    def perform(*, perdure_key: Key, **arguments: Any) -> Any:
        with _bind_key(perdure_key):
            return storable_result(body(arguments, perdure_key), call.name, lost)

    with _convert_errors():
        came = drive_sync(engine.store, execute_once(engine, place, call, perform))
    warn_reduced(lost)
    return came


async def ado(engine: Engine, place: GraphTask, call: GraphCall, body: CallBody) -> CallOutcome:
    """Execute a call once under asyncio."""
    lost: list[str] = []

    async def perform(*, perdure_key: Key, **arguments: Any) -> Any:
        with _bind_key(perdure_key):
            return storable_result(await body(arguments, perdure_key), call.name, lost)

    with _convert_errors():
        came = await drive_async(engine.store, execute_once(engine, place, call, perform))
    warn_reduced(lost)
    return came


@contextmanager
def _bind_key(key: str) -> Iterator[None]:
    """Set the key for a body. An interrupt meant for LangGraph counts as "not done"."""
    from langgraph.errors import GraphBubbleUp

    with bind_key(key):
        try:
            yield
        except GraphBubbleUp as error:
            raise _Interrupted("it waits for an answer that LangGraph supplies on resume") from error


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Convert errors for LangGraph: its own pass unchanged, ours bypass all handlers of tool errors."""
    try:
        yield
    except _Interrupted as error:
        raise (error.__cause__ or error) from None
    except NotDone:
        raise
    except PerdureError as error:
        raise to_graph_bubble_up(error) from error.__cause__


def execute_once(engine: Engine, place: GraphTask, call: GraphCall, body: Callable[..., Any]) -> Protocol[CallOutcome]:
    """Execute a call unless it is done. The outcome is recorded before this returns."""
    with _leave_frame():
        trail = yield from trail_of(engine, place)
        entry = yield from _claim(engine, place, trail, call)
    run = yield from _open_run(engine, place, entry, call.policy)
    _credit(trail, run)
    try:
        result = yield from _perform(run, call, body)
    except BaseException as error:
        yield from _leave(run, trail, entry, error)
        raise
    yield from end_run(run, None)
    trail.unsettled.discard(entry.run)
    return CallOutcome(result, run.resumed)


@contextmanager
def _leave_frame() -> Iterator[None]:
    """Leave the enclosing frame: the record of a call must not wait for the end of a surrounding item."""
    token = FRAME.set(None)
    try:
        yield
    finally:
        FRAME.reset(token)


def _claim(engine: Engine, place: GraphTask, trail: CallTrail, call: GraphCall) -> Protocol[TrailCall]:
    """Return the run of a call: its existing one, or a new one that is recorded now."""
    nth = trail.count(place, call.name, call.id) if call.counted else 0
    digest = digest_of(call.arguments)
    made = digest_of((place.task, call.name, call.id, nth))[:12]
    name = f"{place.thread[:300]}/{call.name[:150]}-{made}"
    effect = call.policy.effect
    order = trail.take_next_order(engine.store.clock.wall_ms())
    wanted = TrailCall(name, call.name, call.id, effect, digest, place.levels, place.invocation, order, nth)
    entry, changed = trail.find(place, wanted)
    if entry is wanted and effect and call.policy.on_change != "rerun":
        yield from refuse_possible_repeats(engine, trail, wanted, format_call(call.name, call.arguments))
    if effect and entry.arguments != digest:
        raise Diverged(
            f"{format_call(call.name, call.arguments)} was started with other arguments in run {entry.run!r}; "
            "nothing ran",
            hint=f"inspect it with `perdure show {entry.run}`; to run both, give the call another id",
        )
    if changed:
        yield from write(engine, place, entry)
        trail.keep(entry)
    return entry


def _open_run(engine: Engine, place: GraphTask, entry: TrailCall, policy: CallPolicy) -> Protocol[RunCore]:
    try:
        return (
            yield from open_run(
                engine, entry.run, None, wait=policy.wait, on_change=policy.on_change, parallel=True, budget=None
            )
        )
    except EffectInsideStep as error:
        raise EffectInsideStep(
            f"{entry.name} was called inside another durable tool, step or effect",
            hint=f"if the tool is a graph with durable tools of its own, exclude it with "
            f"DurableTools(agent, plain=[...]); {error.hint}",
        ) from None


def _credit(trail: CallTrail, run: RunCore) -> None:
    """Credit the savings of calls that this invocation skipped to the next call that it executes."""
    if run.finished:
        trail.passed += [one for calls in run.ledger.calls.values() for one in calls if one.done]
        return
    passed, trail.passed = trail.passed, []
    for recorded in passed:
        run.account.credit_other(recorded)


def _perform(run: RunCore, call: GraphCall, body: Callable[..., Any]) -> Protocol[Any]:
    made = AdapterCall(call.name, call.arguments, call.policy, id="call")
    return (yield from perform_call(run, run.root, made, body))


def _leave(run: RunCore, trail: CallTrail, entry: TrailCall, error: BaseException) -> Protocol[None]:
    """End the run as its call ended. A call that waits for a LangGraph interrupt has not failed."""
    if any(one.in_doubt for one in run.ledger.by_intent.values()):
        trail.unsettled.add(entry.run)
    waits = KeyboardInterrupt("waits for LangGraph's interrupt") if isinstance(error, _Interrupted) else error
    yield from end_run(run, waits)


def digest_of(value: Any) -> str:
    """Return a digest of a value. Ids of messages are ignored: they differ for the same input."""
    return hashlib.blake2b(msgspec.json.encode(to_json_types(value), order="deterministic"), digest_size=16).hexdigest()


def to_json_types(value: Any) -> Any:
    """Convert a value to JSON types, for digests only."""
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, dict):
        return [[to_json_types(key), to_json_types(value[key])] for key in value]
    if isinstance(value, list | tuple):
        return [to_json_types(one) for one in value]
    if hasattr(value, "tool_calls") or hasattr(value, "response_metadata"):
        parts = ("type", "content", "name", "tool_calls", "tool_call_id", "status", "artifact")
        return [[part, to_json_types(getattr(value, part, None))] for part in parts]
    if hasattr(value, "model_dump"):
        return to_json_types(value.model_dump())
    try:
        return codec.digest(value, "argument").hex()
    except NotStorable:  # such as an artifact: an effect's own arguments are refused when its intent is written
        return type_name(type(value))


def to_graph_bubble_up(error: PerdureError) -> Exception:
    """Return the error as a `GraphBubbleUp`, so that no handler reports it to the model, which would retry the tool."""
    from langgraph.errors import GraphBubbleUp

    kind = type(error)
    both: type[Exception] = type(kind.__name__, (kind, GraphBubbleUp), {"__module__": kind.__module__})
    made = both(error.message)
    made.__dict__.update(error.__dict__)
    made.__cause__ = error.__cause__
    return made.with_traceback(error.__traceback__)
