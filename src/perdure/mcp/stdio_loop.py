"""Serves the requests of one client over a channel, several at a time."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
from typing import Any

from perdure.api.aio import AsyncAgent
from perdure.errors import PerdureError
from perdure.mcp.catalog import PERDURE, McpCatalog
from perdure.mcp.client_log import METHOD as LOG_METHOD
from perdure.mcp.client_log import ClientLog
from perdure.mcp.handshake import INTERNAL_ERROR, RpcError
from perdure.mcp.once import OnceHolder
from perdure.mcp.progress import find_token, report_progress
from perdure.mcp.requests import McpRequests
from perdure.mcp.stdio import StdioChannel
from perdure.mcp.subscriptions import Subscriptions
from perdure.mcp.tool import McpCaller
from perdure.platform.process import identify_this_process
from perdure.values.limits import HEARTBEAT_SECONDS
from perdure.values.log import warn

CLOSE_SECONDS_MAX = 5.0
"""How long requests under way may go on after the client has left."""


class StdioLoop:
    """The connection of one client."""

    def __init__(
        self, channel: StdioChannel, agent: str, store: str | None, options: str, catalog: McpCatalog = PERDURE
    ) -> None:
        self._channel = channel
        self._agent = AsyncAgent(agent, store=store)
        label = f"mcp:{channel.client}" if channel.client else "mcp"
        holder = OnceHolder(f"mcp-{secrets.token_hex(12)}", identify_this_process(), label[:80])
        self._holder = holder
        self._requests = McpRequests(McpCaller(self._agent, holder, options), catalog, connected=True)
        self._subscriptions = Subscriptions(self._agent, catalog.read, self._notify)
        self._log = ClientLog(self._notify)
        self._tasks: dict[Any, asyncio.Task[None]] = {}
        self._heart: list[asyncio.Task[None]] = []
        """The task that renews the lease, once this session has begun an action."""

    def run(self, first: dict[str, Any]) -> None:
        """Serve until the client closes its end."""
        asyncio.run(self._serve(first))

    async def _serve(self, first: dict[str, Any]) -> None:
        inbox: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        inbox.put_nowait(first)
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop, inbox), daemon=True).start()
        try:
            while (message := await inbox.get()) is not None:
                self._take(message)
            if self._tasks:
                await asyncio.wait(self._tasks.values(), timeout=CLOSE_SECONDS_MAX)
        finally:
            self._subscriptions.close()
            for task in (*self._tasks.values(), *self._heart):
                task.cancel()
            await self._agent.close()

    def _read(self, loop: asyncio.AbstractEventLoop, inbox: asyncio.Queue[dict[str, Any] | None]) -> None:
        while True:
            message = self._channel.read()
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(inbox.put_nowait, message)
            if message is None:
                return

    def _take(self, message: dict[str, Any]) -> None:
        params = message.get("params")
        if "id" not in message:
            if message["method"] == "notifications/cancelled" and isinstance(params, dict):
                self._cancel(params.get("requestId"))
            return
        task = asyncio.create_task(self._answer(message["id"], message["method"], params))
        key = _key_of(message["id"])
        self._tasks[key] = task
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    def _cancel(self, id: Any) -> None:
        if (task := self._tasks.get(_key_of(id))) is not None:
            task.cancel()

    async def _answer(self, id: Any, method: str, params: Any) -> None:
        try:
            if method in self._subscriptions.METHODS:
                result = await self._subscriptions.answer(id, method, params)
            elif method == LOG_METHOD:
                result = self._log.choose(params)
            else:
                result = await self._perform(method, params)
                self._hold(params)
            self._channel.send_result(id, result)
        except RpcError as error:
            self._channel.send_error(id, error)
        except PerdureError as error:
            self._channel.send_error(id, RpcError(INTERNAL_ERROR, str(error)))
        except BrokenPipeError:
            return  # the client has left
        except Exception as error:  # the connection goes on
            warn("%s raised %r", method, error)
            self._channel.send_error(id, RpcError(INTERNAL_ERROR, f"internal error: {type(error).__name__}"))

    async def _perform(self, method: str, params: Any) -> dict[str, Any]:
        work, token = self._requests.answer(method, params), find_token(params)
        return await (work if token is None else report_progress(work, token, self._notify))

    def _notify(self, method: str, params: dict[str, Any]) -> None:
        self._channel.send({"method": method, "params": params})

    def _hold(self, params: Any) -> None:
        if not self._heart and isinstance(params, dict) and params.get("name") == "begin_once":
            self._heart.append(asyncio.create_task(self._renew()))

    async def _renew(self) -> None:
        """Keep what this session has begun in progress, for as long as the process lives."""
        keeper = await asyncio.to_thread(self._holder.keeper, self._agent._engine)
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            try:
                await asyncio.to_thread(keeper.renew)
            except PerdureError as error:
                warn("the lease was not renewed: %s", error)


def _key_of(id: Any) -> Any:
    """Return a request id as a key: 1 and "1" differ."""
    return type(id).__name__, str(id)
