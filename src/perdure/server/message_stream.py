"""An answer to one message of a client that goes on: notifications first, the result last, as server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from perdure.errors import PerdureError
from perdure.mcp.handshake import INTERNAL_ERROR, RpcError
from perdure.mcp.progress import Notify
from perdure.server.calls import ApiCall
from perdure.server.routes.events import COMMENT_SECONDS
from perdure.values.log import warn

StreamWork = Callable[[Notify], Awaitable[dict[str, Any]]]
"""Answers a request. What it notifies is sent at once."""


class MessageStream(StreamingResponse):
    """The stream. It counts as an open stream of its key, and its work ends with it."""

    def __init__(self, call: ApiCall, id: Any, work: StreamWork) -> None:
        self._call = call
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(_events(id, work), media_type="text/event-stream", headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        with self._call.services.quotas.open_stream(self._call.principal):
            await super().__call__(scope, receive, send)


async def _events(id: Any, work: StreamWork) -> AsyncIterator[bytes]:
    messages: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
    task = asyncio.ensure_future(
        _answer(id, work, lambda method, params: messages.put_nowait({"method": method, "params": params}))
    )
    task.add_done_callback(lambda _: messages.put_nowait(None))
    try:
        while not task.done() or not messages.empty():
            try:
                message = await asyncio.wait_for(messages.get(), COMMENT_SECONDS)
            except TimeoutError:
                yield b": nothing new\n\n"
                continue
            if message is not None:
                yield _encode(message)
        yield _encode(task.result())
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _answer(id: Any, work: StreamWork, notify: Notify) -> dict[str, Any]:
    """Return the last message of the stream."""
    try:
        return {"id": id, "result": await work(notify)}
    except RpcError as error:
        return {"id": id, "error": error.describe()}
    except PerdureError as error:
        return {"id": id, "error": RpcError(INTERNAL_ERROR, str(error)).describe()}
    except Exception as error:  # the status of the answer has been sent: the stream has to tell
        warn("a request in a stream raised %r", error)
        return {"id": id, "error": RpcError(INTERNAL_ERROR, f"internal error: {type(error).__name__}").describe()}


def _encode(message: dict[str, Any]) -> bytes:
    data = msgspec.json.encode({"jsonrpc": "2.0", **message}, enc_hook=repr)
    return b"event: message\ndata: %s\n\n" % data
