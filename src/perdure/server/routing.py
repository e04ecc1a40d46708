"""One description of every route, from which requests are dispatched and the OpenAPI document is made."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from perdure.errors import MethodRefused, RequestInvalid, RequestTooLarge, RequestTooSlow, RequestUnfinished
from perdure.server.access import Principal, Role
from perdure.server.audit import Changes, audit
from perdure.server.calls import Answer, ApiCall, NoQuery
from perdure.server.compression import compress
from perdure.server.services import Services
from perdure.server.values import check_depth
from perdure.values.codec.decoder import decode_as_dicts

_PARAMETER = re.compile(r"\{(\w+)\}")

Handler = Callable[[ApiCall], Awaitable[Any]]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of the API.

    `path` is as in OpenAPI: `/v1/agents/{agent}/runs/{run}:cancel`. A handler returns an instance of `response`, an
    `Answer`, or a Starlette response.
    """

    method: str
    path: str
    operation: str
    """The operation id, unique in the API."""
    summary: str
    handler: Handler
    role: Role | None = Role.READER
    """The role that a key needs; None for routes that need no key."""
    request: Any = None
    """The type of the JSON body: a frozen struct."""
    response: Any = None
    """The type of the JSON answer; None if there is no JSON body."""
    query: type[msgspec.Struct] = NoQuery
    """The parameters of the query string."""
    status: int = 200
    media_type: str = "application/json"
    """Of the answer."""
    request_media_type: str = "application/json"
    """Of the body. Any other than JSON is streamed by the handler and has no size limit here."""
    streams: bool = False
    """Whether body or answer may go on for long: no deadline, and it counts as an open stream."""
    secret: bool = False
    """Whether the answer has a secret, which must not be stored."""

    audited: bool = True
    """Whether a write is noted in the audit log. Calls of an open run are not: the run's own journal has them."""
    recalls: bool = False
    """Whether the handler makes one commit with the audit entry in it, so that its answer can be made again."""

    @property
    def parameters(self) -> list[str]:
        """The names in the path."""
        return _PARAMETER.findall(self.path)

    @property
    def writes(self) -> bool:
        """Whether it changes anything."""
        return self.method != "GET" and self.role in (Role.WRITER, Role.ADMIN)


class ApiRoute(BaseRoute):
    """Dispatches to a route. It matches the raw path, so names may contain any character, percent-encoded."""

    def __init__(self, route: Route, services: Services) -> None:
        self.route = route
        self._services = services
        pattern = "".join(
            f"(?P<{part}>[^/]+)" if index % 2 else re.escape(part)
            for index, part in enumerate(_PARAMETER.split(route.path))
        )
        self._pattern = re.compile(pattern)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether the request is for this path, and for this method."""
        if scope["type"] != "http":
            return Match.NONE, {}
        found = self._pattern.fullmatch(scope["raw_path"].decode("latin-1"))
        if found is None:
            return Match.NONE, {}
        child = {"path_params": found.groupdict(), "endpoint": self.route.handler, "perdure_route": self.route}
        return (Match.FULL if scope["method"] == self.route.method else Match.PARTIAL), child

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check and decode the request, call the handler, encode its answer."""
        request, route = Request(scope, receive), self.route
        if scope["method"] != route.method:  # no route of this path has the method, and this is the first of them
            raise MethodRefused(f"this path has no method {scope['method'][:20]!r}")
        principal: Principal = request.state.principal
        if route.role is not None:
            principal.require(route.role)
        if not route.streams:
            await (await self._in_time(request, principal))(scope, receive, send)
            return
        with self._services.quotas.open_stream(principal):
            await (await self._answer(request, principal))(scope, receive, send)

    async def _in_time(self, request: Request, principal: Principal) -> Response:
        try:
            async with asyncio.timeout(self._services.settings.request_seconds_max) as deadline:
                return await self._answer(request, principal)
        except TimeoutError as error:
            if not deadline.expired():
                raise  # of the store, with a code of its own
            raise RequestTooSlow("the request took too long and was ended") from error

    async def _answer(self, request: Request, principal: Principal) -> Response:
        route, services = self.route, self._services
        path = {name: decode_segment(text) for name, text in request.path_params.items()}
        query = decode_query(request, route.query)
        raw, body = await self._body(request)

        async def perform(earlier: Changes | None = None) -> Response:
            if earlier is not None and not route.recalls:
                raise RequestUnfinished
            call = ApiCall(request=request, services=services, principal=principal, path=path, query=query, body=body)
            with decode_as_dicts():
                if not (route.writes and route.audited):
                    return encode_answer(route, request, await route.handler(call))
                async with audit(
                    services.tenants,
                    principal,
                    request.state.request_id,
                    route.operation,
                    route.method,
                    request.url.path,
                    earlier,
                ):
                    return encode_answer(route, request, await route.handler(call))

        if route.method != "POST" or not route.writes:
            return await perform()  # a key that may only read must not store its answers either
        return await services.idempotency.once(request, principal, raw, perform, secret=route.secret)

    async def _body(self, request: Request) -> tuple[bytes, Any]:
        route, settings = self.route, self._services.settings
        if route.request is None or route.request_media_type != "application/json":
            return b"", None
        media = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if media != "application/json":
            raise RequestInvalid(
                f"the body has content type {media[:80]!r}", hint="send Content-Type: application/json"
            )
        raw = await read_body(request, settings.body_bytes_max)
        return raw, decode_body(raw, route.request, settings.depth_max)


async def read_body(request: Request, most: int) -> bytes:
    """Read a body, and stop as soon as it is too large."""
    parts, size = [], 0
    if int(request.headers.get("content-length", "0")) > most:
        raise RequestTooLarge(f"the body has more than {most:,} bytes; nothing was changed")
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise RequestTooLarge(f"the body has more than {most:,} bytes; nothing was changed")
        parts.append(part)
    return b"".join(parts)


def decode_segment(text: str) -> str:
    """Return the text of one percent-encoded part of a path."""
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError as error:
        raise RequestInvalid("the path is not UTF-8") from error


def decode_query(request: Request, kind: type[msgspec.Struct]) -> Any:
    """Return the parameters of the query string. Unknown and repeated ones are refused."""
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in kind.__struct_fields__:
            known = ", ".join(kind.__struct_fields__) or "none"
            raise RequestInvalid(f"there is no query parameter {name[:80]!r} here", hint=f"the parameters are {known}")
        if name in given:
            raise RequestInvalid(f"query parameter {name!r} is given twice")
        given[name] = value
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise RequestInvalid(f"the query string: {error}") from error


def decode_body(body: bytes, kind: Any, depth: int) -> Any:
    """Return a JSON body as an instance of the route's type."""
    try:
        data = msgspec.json.decode(body or b"{}")
        check_depth(data, depth)
        return msgspec.convert(data, kind)
    except RecursionError as error:
        raise RequestInvalid(f"the body is nested more than {depth} levels deep") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # ValidationError is a DecodeError
        raise RequestInvalid(f"the body: {error}", hint=_name_fields(kind, str(error))) from error


def _name_fields(kind: Any, problem: str) -> str:
    """Return a hint with the fields of a body, for somebody who has sent another one; else ""."""
    fields = getattr(kind, "__struct_fields__", ())
    if "unknown field" not in problem or " - at " in problem or not fields:
        return ""
    return f"the fields are {', '.join(fields)}"


def encode_answer(route: Route, request: Request, answer: Any) -> Response:
    """Return the response for what a handler returned."""
    if isinstance(answer, Response):
        return answer
    if not isinstance(answer, Answer):
        answer = Answer(answer)
    status = answer.status or route.status
    if answer.body is None:
        return Response(status_code=status, headers=dict(answer.headers))
    body, encoding = compress(msgspec.json.encode(answer.body), request.headers.get("accept-encoding", ""))
    headers = {**answer.headers, "cache-control": "no-store", "vary": "accept-encoding"}
    if encoding:
        headers["content-encoding"] = encoding
    return Response(body, status, headers, "application/json")
