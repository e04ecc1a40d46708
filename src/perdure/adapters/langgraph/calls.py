"""One call of a model, a tool or a node: a run of its own, in which it is a step or an effect, once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec

from ... import codec
from ...codec.refusals import type_name
from ...engine import Engine
from ...errors import Diverged, EffectInsideStep, InDoubt, NotDone, NotStorable, PerdureError
from ...run.core import RunCore
from ...run.effects import call_effect
from ...run.functions import Function, Key, Options, Signature
from ...run.lifecycle import end_run, open_run
from ...run.lines import called
from ...run.outcomes import EffectCall
from ...run.requests import Protocol, drive_async, drive_sync
from ...run.scope import FRAME
from ...run.steps import call_step
from .places import Place
from .storable import kept, tell
from .trail import Entry, Trail, refuse_rivals, trail_of, write

_KEY: ContextVar[str] = ContextVar("perdure_effect_key", default="")


def effect_key() -> str:
    """The idempotency key of the tool that is being done; the same when it is done again. Empty elsewhere.

    >>> def pay(amount: int) -> str:
    ...     return bank.transfer(amount, idempotency_key=effect_key())
    """
    return _KEY.get()


class Policy(msgspec.Struct, frozen=True):
    """How a call is done, and what is done when nobody knows whether it was."""

    effect: bool = True
    check: Callable[..., Any] | None = None
    on_doubt: str = "ask"
    not_done: tuple[type[BaseException], ...] = ()
    on_change: str = "error"
    wait: float | None = 0.0

    def options(self) -> Options:
        """The same, as a step or an effect has it."""
        if not self.effect:
            return Options(id="call")
        return Options(
            id="call",
            check=self.check,
            in_doubt=self.on_doubt,
            not_done=self.not_done,
            on_change=None if self.on_change == "error" else self.on_change,
        )


class Call(msgspec.Struct, frozen=True):
    """What is called, and with what."""

    name: str
    id: str
    """What it is known by in its thread, whatever the task is called that makes it."""
    arguments: dict[str, Any]
    policy: Policy
    counted: bool = False
    """Whether several that are alike in one task are several calls."""


class GaveUp(Exception):
    """A person has said that nobody will know how an effect ended."""


class _Interrupted(NotDone):
    """The body waits for an answer that LangGraph gives it when it is done again."""


class _Arguments(Signature):
    """The arguments of a call by their names, as they are; the key goes to the body."""

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        return dict(kwargs)


class Came(msgspec.Struct, frozen=True):
    """What a call came to."""

    result: Any
    again: bool
    """Whether it was begun before."""


Body = Callable[[dict[str, Any], str], Any]
"""What is done: it is given the arguments, and the key."""


def do(engine: Engine, place: Place, call: Call, body: Body) -> Came:
    """Do it once, and wait for it."""
    lost: list[str] = []

    def perform(*, perdure_key: Key, **arguments: Any) -> Any:
        with _inside(perdure_key):
            return kept(body(arguments, perdure_key), call.name, lost)

    with _for_langgraph():
        came = drive_sync(engine.store, once(engine, place, call, perform))
    tell(lost)
    return came


async def ado(engine: Engine, place: Place, call: Call, body: Body) -> Came:
    """The same under asyncio."""
    lost: list[str] = []

    async def perform(*, perdure_key: Key, **arguments: Any) -> Any:
        with _inside(perdure_key):
            return kept(await body(arguments, perdure_key), call.name, lost)

    with _for_langgraph():
        came = await drive_async(engine.store, once(engine, place, call, perform))
    tell(lost)
    return came


@contextmanager
def _inside(key: str) -> Iterator[None]:
    """A body, which may raise what is meant for LangGraph: then nothing has happened that counts."""
    from langgraph.errors import GraphBubbleUp

    token = _KEY.set(key)
    try:
        yield
    except GraphBubbleUp as error:
        raise _Interrupted("it waits for an answer that LangGraph gives when it is resumed") from error
    finally:
        _KEY.reset(token)


@contextmanager
def _for_langgraph() -> Iterator[None]:
    """Errors as LangGraph has to see them: its own as they were, ours past all handlers of a tool's errors."""
    try:
        yield
    except _Interrupted as error:
        raise (error.__cause__ or error) from None
    except NotDone:
        raise
    except PerdureError as error:
        raise bubbling(error) from error.__cause__


def once(engine: Engine, place: Place, call: Call, body: Callable[..., Any]) -> Protocol[Came]:
    """Do it, unless it is done: what it came to, recorded before this returns."""
    with _alone():
        trail = yield from trail_of(engine, place)
        entry = yield from _claim(engine, place, trail, call)
    run = yield from _opened(engine, place, entry, call.policy)
    _credit(trail, run)
    try:
        result = yield from _perform(run, call, body)
    except BaseException as error:
        yield from _leave(run, trail, entry, error)
        raise
    yield from end_run(run, None)
    trail.unsettled.discard(entry.run)
    return Came(result, run.resumed)


@contextmanager
def _alone() -> Iterator[None]:
    """What is written about a call must not wait for the end of an item of a run around the whole graph."""
    token = FRAME.set(None)
    try:
        yield
    finally:
        FRAME.reset(token)


def _claim(engine: Engine, place: Place, trail: Trail, call: Call) -> Protocol[Entry]:
    """Which run the call is: the one that it had, or a new one, known from now on."""
    nth = trail.count(place, call.name, call.id) if call.counted else 0
    digest = digest_of(call.arguments)
    made = digest_of((place.task, call.name, call.id, nth))[:12]
    name = f"{place.thread[:300]}/{call.name[:150]}-{made}"
    effect = call.policy.effect
    order = trail.next_order(engine.store.clock.wall_ms())
    wanted = Entry(name, call.name, call.id, effect, digest, place.levels, place.invocation, order, nth)
    entry, changed = trail.find(place, wanted)
    if entry is wanted and effect and call.policy.on_change != "rerun":
        yield from refuse_rivals(engine, trail, wanted, called(call.name, call.arguments))
    if effect and entry.arguments != digest:
        raise Diverged(
            f"{called(call.name, call.arguments)} was begun with other arguments (run {entry.run!r}); nothing was run",
            hint=f"look at it with `perdure show {entry.run}`, and give the call another id to have both",
        )
    if changed:
        yield from write(engine, place, entry)
        trail.keep(entry)
    return entry


def _opened(engine: Engine, place: Place, entry: Entry, policy: Policy) -> Protocol[RunCore]:
    try:
        return (
            yield from open_run(
                engine, entry.run, None, wait=policy.wait, on_change=policy.on_change, parallel=True, budget=None
            )
        )
    except EffectInsideStep as error:
        raise EffectInsideStep(
            f"{entry.name} is called inside of another durable tool, step or effect",
            hint=f"a tool that is a graph of its own, with durable tools in it, is left alone with "
            f"DurableTools(agent, plain=[...]); {error.hint}",
        ) from None


def _credit(trail: Trail, run: RunCore) -> None:
    """What this invocation came past without doing it again is noted with the next call that it does."""
    if run.finished:
        trail.passed += [one for calls in run.ledger.calls.values() for one in calls if one.done]
        return
    passed, trail.passed = trail.passed, []
    for recorded in passed:
        run.account.credit_other(recorded)


def _perform(run: RunCore, call: Call, body: Callable[..., Any]) -> Protocol[Any]:
    options = call.policy.options()
    definition = Function(call.name, body, call.policy.effect, _Arguments(body, ()), options)
    if not call.policy.effect:
        return (yield from call_step(run.root, definition, options, (), {**call.arguments, "perdure_key": ""}))
    try:
        return (yield from call_effect(EffectCall(run.root, definition, options, (), call.arguments)))
    except InDoubt as error:
        if any(one.final for one in run.ledger.by_intent.values()):
            raise GaveUp(error.message) from error
        raise


def _leave(run: RunCore, trail: Trail, entry: Entry, error: BaseException) -> Protocol[None]:
    """The run ends as its call did; what only waits for an answer to LangGraph has not failed."""
    if any(one.in_doubt for one in run.ledger.by_intent.values()):
        trail.unsettled.add(entry.run)
    waits = KeyboardInterrupt("waits for LangGraph's interrupt") if isinstance(error, _Interrupted) else error
    yield from end_run(run, waits)


def digest_of(value: Any) -> str:
    """What a value is known by; of messages, the ids do not count, which are made anew for the same input."""
    return hashlib.blake2b(msgspec.json.encode(plain(value), order="deterministic"), digest_size=16).hexdigest()


def plain(value: Any) -> Any:
    """A value as JSON has it, for digests only."""
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, dict):
        return [[plain(key), plain(value[key])] for key in value]
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if hasattr(value, "tool_calls") or hasattr(value, "response_metadata"):
        parts = ("type", "content", "name", "tool_calls", "tool_call_id", "status", "artifact")
        return [[part, plain(getattr(value, part, None))] for part in parts]
    if hasattr(value, "model_dump"):
        return plain(value.model_dump())
    try:
        return codec.digest(value, "argument").hex()
    except NotStorable:  # an artifact, say: an effect's own arguments are refused when its intent is written
        return type_name(type(value))


def bubbling(error: PerdureError) -> Exception:
    """The same error for LangGraph: no handler of a tool's errors may tell it to the model, which would try again."""
    from langgraph.errors import GraphBubbleUp

    kind = type(error)
    both: type[Exception] = type(kind.__name__, (kind, GraphBubbleUp), {"__module__": kind.__module__})
    made = both(error.message)
    made.__dict__.update(error.__dict__)
    made.__cause__ = error.__cause__
    return made.with_traceback(error.__traceback__)
