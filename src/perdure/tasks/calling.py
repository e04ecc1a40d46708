"""Calling the function of a task under asyncio: a plain one gets a thread, so that the loop goes on."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any


async def called(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What it returns."""
    if inspect.iscoroutinefunction(call):
        return await call(*args, **kwargs)
    result = await asyncio.to_thread(call, *args, **kwargs)
    return await result if inspect.isawaitable(result) else result
