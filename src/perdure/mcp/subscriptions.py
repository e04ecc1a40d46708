"""Tells a client when a resource that it subscribed to has changed, in this process or in another one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from hashlib import blake2b
from typing import Any, ClassVar

from perdure.api.aio import AsyncAgent
from perdure.errors import PerdureError
from perdure.mcp.handshake import INVALID_PARAMS, RpcError, complete_result, read_envelope
from perdure.mcp.progress import Notify
from perdure.values.codec.decoder import decode_as_dicts

LOOK_SECONDS = 1.0
SUBSCRIPTIONS_MAX = 100
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"


class Subscriptions:
    """The subscriptions of one client, of both revisions: one by one, and as a request that goes on."""

    METHODS: ClassVar = frozenset({"resources/subscribe", "resources/unsubscribe", "subscriptions/listen"})

    def __init__(
        self,
        agent: AsyncAgent,
        read: Callable[[AsyncAgent, str], Awaitable[dict[str, Any]]],
        notify: Notify,
        ending: asyncio.Event | None = None,
    ) -> None:
        self._agent = agent
        self._read = read
        self._notify = notify
        self._ending = ending or asyncio.Event()
        """Ends `subscriptions/listen` with a result."""
        self._digests: dict[str, bytes] = {}
        self._single: set[str] = set()
        self._listening: dict[Any, frozenset[str]] = {}
        self._watch: asyncio.Task[None] | None = None

    async def answer(self, id: Any, method: str, params: Any) -> dict[str, Any]:
        """Answer a request. `subscriptions/listen` ends when the client cancels it, or the server stops."""
        version = read_envelope(params)
        given = params if isinstance(params, dict) else {}
        if method == "subscriptions/listen":
            await self._listen(id, given)
        elif method == "resources/subscribe":
            await self._add([str(given.get("uri", ""))])
            self._single.add(str(given.get("uri", "")))
        else:
            self._single.discard(str(given.get("uri", "")))
        return complete_result(method, {}, version)

    def close(self) -> None:
        """Stop watching."""
        if self._watch is not None:
            self._watch.cancel()

    async def _listen(self, id: Any, params: dict[str, Any]) -> None:
        wanted = params.get("notifications")
        uris = wanted.get("resourceSubscriptions") if isinstance(wanted, dict) else None
        uris = [str(uri) for uri in uris] if isinstance(uris, list) else []
        await self._add(uris)
        self._listening[id] = frozenset(uris)
        meta = {SUBSCRIPTION_KEY: id}
        honoured = {"resourceSubscriptions": uris} if uris else {}
        self._notify("notifications/subscriptions/acknowledged", {"_meta": meta, "notifications": honoured})
        try:
            await self._ending.wait()
        finally:
            self._listening.pop(id, None)

    async def _add(self, uris: Iterable[str]) -> None:
        for uri in uris:
            if len(self._digests) >= SUBSCRIPTIONS_MAX:
                raise RpcError(INVALID_PARAMS, f"at most {SUBSCRIPTIONS_MAX} resources can be subscribed to")
            try:
                self._digests[uri] = await self._digest(uri)
            except PerdureError as error:
                raise RpcError(INVALID_PARAMS, error.message) from error
        if self._watch is None:
            self._watch = asyncio.create_task(self._look())

    async def _digest(self, uri: str) -> bytes:
        with decode_as_dicts():
            content = await self._read(self._agent, uri)
        return blake2b(repr(content).encode("utf-8", "replace"), digest_size=16).digest()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for uri in [*self._digests]:
                await self._compare(uri)

    async def _compare(self, uri: str) -> None:
        try:
            now = await self._digest(uri)
        except PerdureError:
            return  # it is gone, or the store is busy: the next look compares again
        if now == self._digests[uri]:
            return
        self._digests[uri] = now
        if uri in self._single:
            self._notify("notifications/resources/updated", {"uri": uri})
        for request, uris in self._listening.items():
            if uri in uris:
                self._notify("notifications/resources/updated", {"uri": uri, "_meta": {SUBSCRIPTION_KEY: request}})
