"""One program in two colours: written as coroutines, run on `AsyncAgent` or, without a loop, on `Agent`.

Two victims kept alike by hand would soon test two different things.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

import perdure
from perdure.kernel.protocol import Protocol, drive_async, drive_sync


async def settle(value: Any) -> Any:
    """The result of a call, whichever colour made it."""
    return await value if inspect.isawaitable(value) else value


def run_at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("something waited in the synchronous colour")


@asynccontextmanager
async def enter(run: Any) -> AsyncIterator[Any]:
    """`with` or `async with`."""
    if inspect.iscoroutinefunction(run.__aenter__ if hasattr(run, "__aenter__") else None):
        async with run as opened:
            yield opened
    else:
        with run as opened:
            yield opened


class Over:
    """`for` or `async for`."""

    def __init__(self, loop: Any) -> None:
        self._loop = aiter(loop) if hasattr(loop, "__aiter__") else iter(loop)

    def __aiter__(self) -> Over:
        return self

    async def __anext__(self) -> Any:
        if hasattr(self._loop, "__anext__"):
            return await self._loop.__anext__()
        try:
            return next(self._loop)
        except StopIteration:
            raise StopAsyncIteration from None


class Palette:
    """An agent of one colour, and what turns coroutines into functions for it."""

    def __init__(self, colour: str, name: str, store: str) -> None:
        self.is_async = colour == "async"
        self.agent: Any = (perdure.AsyncAgent if self.is_async else perdure.Agent)(name, store=store)

    def paint(self, body: Callable[..., Any]) -> Callable[..., Any]:
        """The body as this colour wants it."""
        if self.is_async:
            return body

        @wraps(body)
        def plain(*args: Any, **kwargs: Any) -> Any:
            return run_at_once(body(*args, **kwargs))

        return plain

    def drive(self, protocol: Protocol[Any]) -> Any:
        """Perform a protocol for which there is no method of the agent."""
        return (drive_async if self.is_async else drive_sync)(self.agent._engine.store, protocol)

    def perform(self, program: Coroutine[Any, Any, Any]) -> Any:
        """Run all of it."""
        return asyncio.run(program) if self.is_async else run_at_once(program)
