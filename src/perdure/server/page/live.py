"""Live pages: a part of the page is sent again whenever it has changed.

The part is rendered every second and compared by its digest, so that a process that was killed is noticed although it
wrote nothing. The digest is the id of the event: a browser that comes back with it gets only what it has missed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from hashlib import sha256
from typing import TYPE_CHECKING

from starlette.responses import StreamingResponse

from perdure.errors import PerdureError
from perdure.server.page.render import HEADERS

if TYPE_CHECKING:
    from perdure.server.page.page import PageCall

LOOK_SECONDS = 1.0
WORK_SHARE_MAX = 0.05
"""A page that takes long to render is looked at less often."""
SESSION_SECONDS = 10.0
"""How often it is looked whether the session still holds."""
COMMENT_SECONDS = 15.0

BlockRenderer = Callable[["PageCall"], Awaitable[str]]


def follow_page(call: PageCall, render: BlockRenderer) -> StreamingResponse:
    """Return the stream of a page. `Last-Event-ID` says what the browser shows now."""
    known = call.request.headers.get("last-event-id", "")
    headers = {**HEADERS, "x-accel-buffering": "no"}
    return StreamingResponse(_events(call, render, known), media_type="text/event-stream", headers=headers)


async def _events(call: PageCall, render: BlockRenderer, known: str) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n\n"
    stopping, checked = call.services.stopping, time.monotonic()
    said = checked
    while not stopping.is_set():
        began = time.monotonic()
        if began - checked > SESSION_SECONDS:
            checked = began
            if await call.services.sessions.find(call.request) is None:
                return
        try:
            text = await render(call)
        except PerdureError:
            return  # the browser asks again, and gets the problem as an answer
        now = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:20]
        if now != known:
            known, said = now, began
            lines = "".join(f"data: {line}\n" for line in text.splitlines())
            yield f"id: {now}\n{lines}\n".encode("utf-8", "backslashreplace")
        elif began - said > COMMENT_SECONDS:
            said = began
            yield b": nothing new\n\n"
        await _pause(stopping, max(LOOK_SECONDS, (time.monotonic() - began) / WORK_SHARE_MAX))


async def _pause(stopping: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        return
