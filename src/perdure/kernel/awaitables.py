"""Detects calls that return awaitables: from the callable where possible, otherwise from the result."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType
from typing import Any

from perdure.errors import NotAwaited, WrongType

NEVER_RAN = frozenset({CoroutineType, AsyncGeneratorType})
"""Results of calls whose code may not have run: `require_settled` inspects them."""


def is_async(call: object) -> bool:
    """Whether a call returns a coroutine, judged by the callable; includes objects with `async def __call__`."""
    if type(call) is FunctionType and call.__code__.co_flags & inspect.CO_COROUTINE:
        return True
    while isinstance(call, partial):
        call = call.func
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(_find_call_method(call))


def _find_call_method(call: object) -> object:
    """Return the method that runs when an object is called."""
    return inspect.getattr_static(type(call), "__call__", None)


def refuse_generators(call: object, name: str) -> None:
    """Raise for a generator function: its body would run later, outside of the step, when the caller iterates."""
    plain = call
    while isinstance(plain, partial):
        plain = plain.func
    for one in (plain, _find_call_method(plain)):
        if inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one):
            raise WrongType(f"{name} is a generator function: calling it runs nothing. Return a list instead")


def is_awaitable(result: object) -> bool:
    """Whether a result must be awaited. Cheap, because every call checks it."""
    kind = type(result)
    return hasattr(kind, "__await__") or (kind is GeneratorType and inspect.isawaitable(result))


def require_settled(result: Any, call: Callable[..., Any]) -> Any:
    """Return the result of a synchronous call. Close a coroutine that has not started, and raise: nothing was done."""
    kind = type(result)
    if kind is CoroutineType and inspect.getcoroutinestate(result) == inspect.CORO_CREATED:
        result.close()
    elif kind is not AsyncGeneratorType or result.ag_frame is None or result.ag_running:
        return result
    name = getattr(call, "__qualname__", None) or type(call).__qualname__
    what = "a coroutine" if kind is CoroutineType else "an async generator"
    raise NotAwaited(f"{name} returned {what}, which a synchronous run cannot await. Its code did not run")


def require_plain(result: Any, call: Callable[..., Any]) -> Any:
    """Return the result of a function that must not be async, even under asyncio."""
    if is_awaitable(result) or type(result) is AsyncGeneratorType:
        if type(result) is CoroutineType:
            result.close()
        name = getattr(call, "__qualname__", None) or type(call).__qualname__
        raise WrongType(f"{name} returned {result!r}: it must be a plain function, not an async one")
    return result
