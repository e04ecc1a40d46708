"""How adapters record the calls of a framework: the policy of a tool, its idempotency key, and the step or effect."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec

from perdure.errors import InDoubt, RunFinished
from perdure.kernel.protocol import Protocol
from perdure.kernel.scope import Frame
from perdure.run.core import RunCore
from perdure.run.effect import call_effect
from perdure.run.function import CallOptions, CallSignature, DurableFunction, Key
from perdure.run.ledger import RecordedCall
from perdure.run.outcome import EffectCall
from perdure.run.step import call_step
from perdure.values import codec

_KEY: ContextVar[str] = ContextVar("perdure_effect_key", default="")


def effect_key() -> str:
    """Return the idempotency key of the current tool call. It is the same after a retry. Empty outside a tool call.

    >>> def pay(amount: int) -> str:
    ...     return bank.transfer(amount, idempotency_key=effect_key())
    """
    return _KEY.get()


@contextmanager
def bind_key(key: str) -> Iterator[None]:
    """Set the key that `effect_key` returns in a body."""
    token = _KEY.set(key)
    try:
        yield
    finally:
        _KEY.reset(token)


class CallPolicy(msgspec.Struct, frozen=True):
    """How a call is executed, and what happens when its outcome is unknown."""

    effect: bool = True
    check: Callable[..., Any] | None = None
    in_doubt: str = "ask"
    not_done: tuple[type[BaseException], ...] = ()
    on_change: str = "error"
    wait: float | None = 0.0

    def options(self, id: str | None) -> CallOptions:
        """Return the options of the step or effect. An id identifies the call, whatever its arguments are."""
        if not self.effect:
            return CallOptions(id=id)
        return CallOptions(
            id=id,
            check=self.check,
            in_doubt=self.in_doubt,
            not_done=self.not_done,
            on_change=None if self.on_change == "error" else self.on_change,
        )


STEP = CallPolicy(effect=False)
"""The policy of a model call: it is paid once, and repeating it after a crash is safe."""


class EffectGivenUp(Exception):
    """A person has decided that the outcome of an effect stays unknown."""

    def tell_model(self, tool: str) -> str:
        """Return the text that a model gets in place of the tool's result."""
        return f"The outcome of {tool} is unknown, and it will not be tried again: {self}"


class AdapterCall(msgspec.Struct, frozen=True):
    """A call of a framework: a model or tool, its identity and its arguments."""

    name: str
    arguments: dict[str, Any]
    policy: CallPolicy = CallPolicy()
    id: str | None = None
    """The id that the model gave the call. Without one, the arguments and the order identify it."""


class KeywordSignature(CallSignature):
    """Passes keyword arguments through unchanged. The key goes to the body."""

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        return dict(kwargs)


CallBody = Callable[[dict[str, Any], str], Any]
"""What a call executes, with the arguments and the idempotency key."""


def make_body(body: CallBody) -> Callable[..., Any]:
    """Return a body as the run calls it."""
    if inspect.iscoroutinefunction(body):

        async def perform_async(*, perdure_key: Key, **arguments: Any) -> Any:
            with bind_key(perdure_key):
                return await body(arguments, perdure_key)

        return perform_async

    def perform(*, perdure_key: Key, **arguments: Any) -> Any:
        with bind_key(perdure_key):
            return body(arguments, perdure_key)

    return perform


def perform_call(run: RunCore, frame: Frame, call: AdapterCall, body: Callable[..., Any]) -> Protocol[Any]:
    """Execute a call as a step or an effect of a run, or return its recorded result."""
    options = call.policy.options(call.id)
    definition = _define(call, body, options)
    if not call.policy.effect:
        return (yield from call_step(frame, definition, options, (), {**call.arguments, "perdure_key": ""}))
    try:
        return (yield from call_effect(EffectCall(run, frame, definition, options, (), call.arguments)))
    except InDoubt as error:
        if any(one.final for one in run.ledger.by_intent.values()):
            raise EffectGivenUp(error.message) from error
        raise


def _define(call: AdapterCall, body: Callable[..., Any], options: CallOptions) -> DurableFunction:
    return DurableFunction(call.name, body, call.policy.effect, KeywordSignature(body, ()), options)


def find_recorded(run: RunCore, frame: Frame, call: AdapterCall) -> RecordedCall | None:
    """Return what is recorded of the next call like this one, if it is done."""
    definition = _define(call, _nothing, call.policy.options(call.id))
    ident = definition.ident({**call.arguments, "perdure_key": ""}, definition.options)
    nth = 0 if call.id is not None else frame.counts.get((call.name, ident), 0)
    found = run.ledger.find(frame.path, call.name, ident, nth)
    if found is None and run.finished:
        raise RunFinished(f"run {run.id!r} is finished: a replay cannot do anything new")
    return found if found is not None and found.done else None


def is_recorded(run: RunCore, frame: Frame, call: AdapterCall) -> bool:
    """Return whether the next call like this one is done, so that its result is only read."""
    return find_recorded(run, frame, call) is not None


def _nothing(*, perdure_key: Key, **arguments: Any) -> None:
    """Stand for a body where only the identity of a call is needed."""


def digest_of(value: Any) -> str:
    """Return a digest of a request, which is plain data or can be dumped to it."""
    return codec.digest(to_plain(value), "request").hex()


def to_plain(value: Any) -> Any:
    """Return a value as JSON types. Objects of SDKs are dumped, and anything else becomes its type's name."""
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, Mapping):
        return {str(key): to_plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(one) for one in value]
    if isinstance(value, bytes):
        return value.hex()
    dump = getattr(value, "model_dump", None)
    return to_plain(dump(mode="json", exclude_none=True)) if callable(dump) else type(value).__qualname__


def parse_arguments(given: Any) -> dict[str, Any]:
    """Return the arguments of a tool call as a mapping. Models write them as JSON."""
    if isinstance(given, str):
        try:
            given = json.loads(given or "{}")
        except ValueError:
            return {"input": given}
    return dict(given) if isinstance(given, Mapping) else {"input": given}
