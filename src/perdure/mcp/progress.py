"""Tells a client that a long call still goes on, so that the client does not give up waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

PROGRESS_SECONDS = 1.0
"""How long after the start of a call, and after one report, the next one is sent."""

Notify = Callable[[str, dict[str, Any]], None]
"""Sends a notification: its method, its params."""


def find_token(params: Any) -> Any:
    """Return the token by which the client wants to hear of progress; None if it does not want to."""
    meta = params.get("_meta") if isinstance(params, dict) else None
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    return token if isinstance(token, str | int) else None


async def report_progress(work: Coroutine[Any, Any, dict[str, Any]], token: Any, notify: Notify) -> dict[str, Any]:
    """Return the result of the work. Until then, report how many seconds it has taken."""
    began = asyncio.get_running_loop().time()
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait([task], timeout=PROGRESS_SECONDS))[0]:
            seconds = round(asyncio.get_running_loop().time() - began, 3)
            told = {"progressToken": token, "progress": seconds, "message": "seconds so far; it is still working"}
            notify("notifications/progress", told)
        return task.result()
    finally:
        task.cancel()
