"""Calls that give something to await: known before the call where possible, and by its result otherwise."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType
from typing import Any

from ..errors import NotAwaited


def is_async(call: object) -> bool:
    """Whether a call gives a coroutine, as far as the callable tells: also an object with `async def __call__`."""
    if type(call) is FunctionType and call.__code__.co_flags & inspect.CO_COROUTINE:
        return True
    while isinstance(call, partial):
        call = call.func
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(_called(call))


def _called(call: object) -> object:
    """What runs when an object is called."""
    return inspect.getattr_static(type(call), "__call__", None)


def refuse_generators(call: object, name: str) -> None:
    """A call of a generator function runs nothing: its body runs when somebody iterates, outside of the step."""
    plain = call
    while isinstance(plain, partial):
        plain = plain.func
    for one in (plain, _called(plain)):
        if inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one):
            raise TypeError(f"{name} is a generator function: calling it runs nothing. Return a list instead")


def is_awaitable(result: object) -> bool:
    """Whether a result has to be awaited. Cheap: it is asked after every call."""
    kind = type(result)
    return hasattr(kind, "__await__") or (kind is GeneratorType and inspect.isawaitable(result))


def settled(result: Any, call: Callable[..., Any]) -> Any:
    """The result of a call where nobody awaits. A coroutine that has not begun is closed: nothing was done."""
    kind = type(result)
    if kind is CoroutineType and inspect.getcoroutinestate(result) == inspect.CORO_CREATED:
        result.close()
    elif kind is not AsyncGeneratorType or result.ag_frame is None or result.ag_running:
        return result
    name = getattr(call, "__qualname__", None) or type(call).__qualname__
    what = "a coroutine" if kind is CoroutineType else "an async generator"
    raise NotAwaited(f"{name} returned {what}, which nobody awaits in a synchronous run. Its code did not run")


def plain(result: Any, call: Callable[..., Any]) -> Any:
    """The result of a function that is called where nobody can await, under asyncio too."""
    if is_awaitable(result) or type(result) is AsyncGeneratorType:
        if type(result) is CoroutineType:
            result.close()
        name = getattr(call, "__qualname__", None) or type(call).__qualname__
        raise TypeError(f"{name} returned {result!r}: it has to be a plain function, which nobody needs to await")
    return result
