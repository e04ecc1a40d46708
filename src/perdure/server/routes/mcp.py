"""`/mcp`: the Model Context Protocol over HTTP, with the same keys and tenants. Every request stands alone."""

from __future__ import annotations

import secrets
import shlex
from typing import Any
from urllib.parse import urlsplit

import msgspec
from starlette.responses import Response

from perdure.errors import NotAllowed, RequestInvalid
from perdure.mcp.catalog import PERDURE, TOOLS
from perdure.mcp.handshake import (
    DEFAULT_AGENT,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    RpcError,
    read_envelope,
)
from perdure.mcp.once import OnceHolder
from perdure.mcp.progress import Notify, find_token, report_progress
from perdure.mcp.requests import McpRequests
from perdure.mcp.subscriptions import Subscriptions
from perdure.mcp.tool import McpCaller
from perdure.server.access import Role
from perdure.server.audit import audit
from perdure.server.calls import ApiCall
from perdure.server.message_stream import MessageStream, StreamWork
from perdure.server.routing import Route, decode_body, read_body
from perdure.server.settings import is_loopback

STATUS = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
"""The HTTP status of errors, in revisions without a handshake. Others say 200."""
EVENTS = "text/event-stream"
LISTEN = "subscriptions/listen"


class McpQuery(msgspec.Struct, frozen=True):
    """Which agent."""

    agent: str = ""
    """Default: the agent of the key, else `assistant`."""


async def handle_message(call: ApiCall) -> Response:
    """Answer one message of a client."""
    _check_origin(call)
    try:
        message = await _read_message(call)
    except RequestInvalid as error:
        return _encode(None, RpcError(PARSE_ERROR, error.message), modern=True)
    if not isinstance(message, dict) or not isinstance(message.get("method"), str):
        wrong = RpcError(INVALID_REQUEST, "the body is one JSON object with a `method`")
        return Response(status_code=202) if _is_reply(message) else _encode(None, wrong, modern=True)
    if "id" not in message:
        return Response(status_code=202)
    modern = False
    try:
        modern = bool(read_envelope(message.get("params")))
        _check_headers(call, message)
        if message["method"] == LISTEN and modern:
            return MessageStream(call, message["id"], await _listen(call, message))
        token = find_token(message.get("params"))
        if token is not None and EVENTS in call.request.headers.get("accept", ""):
            return MessageStream(
                call, message["id"], lambda notify: report_progress(_answer(call, message), token, notify)
            )
        return _encode(message["id"], await _answer(call, message), modern)
    except RpcError as error:
        return _encode(message["id"], error, modern or error.code == UNSUPPORTED_VERSION)


async def _read_message(call: ApiCall) -> Any:
    settings = call.services.settings
    return decode_body(await read_body(call.request, settings.body_bytes_max), Any, settings.depth_max)


async def _answer(call: ApiCall, message: dict[str, Any]) -> dict[str, Any]:
    """Answer a request. Calls of tools that may write are audited."""
    requests, params = await _make_requests(call), message.get("params")
    name = params.get("name") if message["method"] == "tools/call" and isinstance(params, dict) else None
    tool = TOOLS.get(name) if isinstance(name, str) else None
    if tool is None or tool.read_only or not call.principal.role.includes(Role.WRITER):
        return await requests.answer(message["method"], params)
    request_id, path = call.request.state.request_id, call.request.url.path
    async with audit(call.services.tenants, call.principal, request_id, f"mcp_{tool.name}", "POST", path):
        return await requests.answer(message["method"], params)


async def _listen(call: ApiCall, message: dict[str, Any]) -> StreamWork:
    """Return the work of `subscriptions/listen`: it ends when the client leaves, or the server stops."""
    agent = (await _make_caller(call)).agent

    async def listen(notify: Notify) -> dict[str, Any]:
        subscriptions = Subscriptions(agent, PERDURE.read, notify, call.services.stopping)
        try:
            return await subscriptions.answer(message["id"], LISTEN, message.get("params"))
        finally:
            subscriptions.close()

    return listen


async def _make_requests(call: ApiCall) -> McpRequests:
    return McpRequests(await _make_caller(call), may_write=call.principal.role.includes(Role.WRITER))


async def _make_caller(call: ApiCall) -> McpCaller:
    name = call.query.agent or call.principal.agent or DEFAULT_AGENT
    agent = await call.services.tenants.agent(call.principal, name)
    holder = OnceHolder(f"mcp-{secrets.token_hex(12)}", label=f"mcp:key {call.principal.key_id}")
    return McpCaller(agent, holder, f" --agent {shlex.quote(name)}")


def _check_origin(call: ApiCall) -> None:
    """Refuse pages of other sites. A server without keys also refuses other names for itself.

    Somebody can make a name of theirs lead to this machine: their page would then be of the same site.
    """
    origin, named = call.request.headers.get("origin"), call.request.url.hostname or ""
    host = urlsplit(origin).hostname or "" if origin is not None else named
    keyless = not call.services.settings.auth
    if not (is_loopback(named) and is_loopback(host) if keyless else host == named):
        raise NotAllowed("requests from pages of another site, or to another name of this server, are refused")


def _check_headers(call: ApiCall, message: dict[str, Any]) -> None:
    """Refuse a request whose headers name another method: a proxy may have decided by them."""
    named = call.request.headers.get("mcp-method")
    if named is not None and named != message["method"]:
        raise RpcError(HEADER_MISMATCH, "the header Mcp-Method and the body name different methods")


def _is_reply(message: Any) -> bool:
    return isinstance(message, dict) and ("result" in message or "error" in message)


def _encode(id: Any, answer: dict[str, Any] | RpcError, modern: bool) -> Response:
    if isinstance(answer, RpcError):
        status = STATUS.get(answer.code, 200) if modern else 200
        body = {"jsonrpc": "2.0", "id": id, "error": answer.describe()}
    else:
        status, body = 200, {"jsonrpc": "2.0", "id": id, "result": answer}
    return Response(msgspec.json.encode(body, enc_hook=repr), status, media_type="application/json")


ROUTES = (
    Route(
        method="POST",
        path="/mcp",
        operation="call_mcp",
        summary="Answer a message of the Model Context Protocol.",
        handler=handle_message,
        query=McpQuery,
    ),
)
