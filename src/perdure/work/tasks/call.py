"""Calls the function of a task under asyncio. A plain function gets a thread, so it does not block the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from perdure.kernel.awaitables import is_async, is_awaitable


async def call_task(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the function of a task and return its result."""
    result = call(*args, **kwargs) if is_async(call) else await asyncio.to_thread(call, *args, **kwargs)
    while is_awaitable(result):
        result = await result
    return result
