"""Answers the requests of a client, whatever the transport."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from perdure.errors import MemoryNotFound, PerdureError, ResourceNotFound, RunNotFound
from perdure.mcp.catalog import PERDURE, McpCatalog
from perdure.mcp.handshake import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    RpcError,
    answer_discover,
    answer_initialize,
    complete_result,
    read_envelope,
)
from perdure.mcp.tool import McpCaller
from perdure.values.codec.decoder import decode_as_dicts
from perdure.values.hints import did_you_mean


class McpRequests:
    """Answers requests for one caller."""

    def __init__(
        self, caller: McpCaller, catalog: McpCatalog = PERDURE, *, may_write: bool = True, connected: bool = False
    ) -> None:
        self._caller = caller
        self._catalog = catalog
        self._may_write = may_write
        self._connected = connected
        self._methods: Mapping[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]] = {
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": self._ping,
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
        }

    async def answer(self, method: str, params: Any) -> dict[str, Any]:
        """Return the result of a request, or raise `RpcError`."""
        version = read_envelope(params)
        handler = self._methods.get(method)
        if handler is None:
            raise RpcError(METHOD_NOT_FOUND, f"there is no method {method[:80]!r}")
        if params is not None and not isinstance(params, dict):
            raise RpcError(INVALID_PARAMS, "params must be an object")
        with decode_as_dicts():
            return complete_result(method, await handler(params or {}), version)

    async def _initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        return answer_initialize(params, self._connected)

    async def _discover(self, params: dict[str, Any]) -> dict[str, Any]:
        return answer_discover()

    async def _ping(self, params: dict[str, Any]) -> dict[str, Any]:
        return {}

    async def _list_tools(self, params: dict[str, Any]) -> dict[str, Any]:
        shown = [tool.describe() for tool in self._catalog.tools.values() if tool.read_only or self._may_write]
        return {"tools": shown}

    async def _call_tool(self, params: dict[str, Any]) -> dict[str, Any]:
        name = str(params.get("name", ""))
        tool = self._catalog.tools.get(name)
        if tool is None:
            hint = did_you_mean(name, self._catalog.tools)
            raise RpcError(INVALID_PARAMS, f"there is no tool {name[:80]!r}. {hint}".rstrip())
        if not (tool.read_only or self._may_write):
            return _refuse(f"{name} needs a key with role writer; this key may only read. Nothing was changed.")
        try:
            given = msgspec.convert(params.get("arguments") or {}, tool.arguments)
        except msgspec.ValidationError as error:
            known = ", ".join(tool.arguments.__struct_fields__)
            return _refuse(f"The arguments of {name} are wrong: {error}. Nothing was changed. It takes: {known}.")
        try:
            answer = await tool.handler(self._caller, given)
        except PerdureError as error:
            hint = f" What to do: {error.hint}." if error.hint else ""
            return _refuse(f"{name} failed [{error.code}]: {error.message}.{hint}")
        return {"content": answer.content, "structuredContent": answer.structured, "isError": False}

    async def _list_resources(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"resources": list(self._catalog.resources)}

    async def _list_templates(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"resourceTemplates": list(self._catalog.templates)}

    async def _read_resource(self, params: dict[str, Any]) -> dict[str, Any]:
        uri = str(params.get("uri", ""))
        try:
            return {"contents": [await self._catalog.read(self._caller.agent, uri)]}
        except (ResourceNotFound, RunNotFound, MemoryNotFound) as error:
            raise RpcError(RESOURCE_NOT_FOUND, error.message, {"uri": uri}) from error

    async def _list_prompts(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"prompts": list(self._catalog.prompts)}

    async def _get_prompt(self, params: dict[str, Any]) -> dict[str, Any]:
        name, arguments = str(params.get("name", "")), params.get("arguments") or {}
        if not isinstance(arguments, dict):
            raise RpcError(INVALID_PARAMS, "`arguments` must be an object")
        try:
            return await self._catalog.prompt(self._caller.agent, name, arguments)
        except (ResourceNotFound, RunNotFound) as error:
            raise RpcError(INVALID_PARAMS, error.message) from error

    async def _complete(self, params: dict[str, Any]) -> dict[str, Any]:
        ref, argument = params.get("ref"), params.get("argument")
        if not isinstance(ref, dict) or not isinstance(argument, dict):
            raise RpcError(INVALID_PARAMS, "completion needs `ref` and `argument`")
        return {"completion": await self._catalog.complete(self._caller.agent, ref, argument)}


def _refuse(text: str) -> dict[str, Any]:
    """Return an error that the model reads and can act on.

    It has no structured content: that would have to fit the schema of the result, and would hide the text in clients
    that show only one of the two.
    """
    return {"content": [{"type": "text", "text": text}], "isError": True}
