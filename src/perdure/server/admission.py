"""What every request passes first: its id, its key, its quota; and every error on the way back."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
import traceback
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure.errors import (
    NotAllowed,
    PerdureError,
    RequestInvalid,
    RequestTooSlow,
    ResourceNotFound,
    ServerProblem,
    VersionConflict,
)
from perdure.server.access import OPEN_PRINCIPAL, Principal, authenticate
from perdure.server.notify.links import ANSWER_PATH
from perdure.server.page.page import admit_to_page
from perdure.server.page.pages import is_page, problem_page
from perdure.server.problems import problem_response
from perdure.server.request_log import LOGGER, RequestLine, write_line
from perdure.server.services import Services
from perdure.server.settings import is_loopback
from perdure.server.views import format_ms

_KEY_IN_PATH = re.compile(r"pdk_[^/]*")

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/metrics", "/v1/openapi.json"})
"""Paths that need no key. They tell nothing about any tenant."""


class Admission:
    """An ASGI middleware. It authenticates before any byte of a body is read."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Admit a request, or answer with a problem."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})["request_id"] = secrets.token_hex(8)
        began, answer = time.monotonic(), _Answer(send, scope["state"]["request_id"])
        self._services.metrics.under_way += 1
        try:
            with self._services.tenants.using():
                await self._perform(scope, receive, answer)
        finally:
            self._services.metrics.under_way -= 1
            self._note(scope, answer.status, time.monotonic() - began)

    async def _perform(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        try:
            principal = await self._admit(scope)
            await self._app(scope, self._counted(receive, principal), answer.send)
        except VersionConflict as error:
            conditional = any(name in (b"if-match", b"if-none-match") for name, _ in scope["headers"])
            await answer.send_problem(error, scope, receive, 412 if conditional else None)
        except PerdureError as error:
            await answer.send_problem(error, scope, receive)
        except Exception:
            # Nothing of the exception goes to the client: it may quote values of other requests.
            LOGGER.error("request %s failed\n%s", scope["state"]["request_id"], traceback.format_exc())
            failed = ServerProblem("the server failed; its log has the details under the request id")
            await answer.send_problem(failed, scope, receive, 500)

    async def _admit(self, scope: Scope) -> Principal:
        connection = HTTPConnection(scope)
        headers = connection.headers
        if "transfer-encoding" in headers and "content-length" in headers:
            raise RequestInvalid("the request has both Content-Length and Transfer-Encoding")
        if scope["path"] in OPEN_PATHS or scope["path"].startswith(ANSWER_PATH):
            scope["state"]["principal"] = OPEN_PRINCIPAL
            return OPEN_PRINCIPAL
        settings = self._services.settings
        if settings.page_only or not settings.auth:
            _refuse_strangers(connection)
        if is_page(scope["path"]):
            principal = await admit_to_page(scope, self._services)
        elif settings.page_only:
            raise ResourceNotFound("`perdure ui` serves only the page", hint="`perdure serve` has the API")
        elif settings.auth:
            principal = await authenticate(connection, self._services.keys)
        else:
            principal = OPEN_PRINCIPAL
        scope["state"]["principal"] = principal
        self._services.quotas.count_request(principal)
        if headers.get("content-encoding", "identity") != "identity":
            raise RequestInvalid("compressed request bodies are not accepted", hint="send the body uncompressed")
        return principal

    def _counted(self, receive: Receive, principal: Principal) -> Receive:
        """Count the bytes of a body, and give up on one that stops coming."""
        coming = True

        async def receive_counted() -> Message:
            nonlocal coming
            if not coming:
                return await receive()  # waits until the client leaves
            try:
                async with asyncio.timeout(self._services.settings.body_seconds_max):
                    message = await receive()
            except TimeoutError as error:
                raise RequestTooSlow("the body of the request stopped coming; nothing was changed") from error
            coming = message["type"] == "http.request" and message.get("more_body", False)
            if size := len(message.get("body", b"")):
                self._services.quotas.count_bytes(principal, size)
            return message

        return receive_counted

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route, principal = scope.get("perdure_route"), scope["state"].get("principal")
        self._services.metrics.count("unknown" if route is None else route.operation, status, seconds)
        if scope["path"] in OPEN_PATHS:
            return
        line = RequestLine(
            at=format_ms(int(time.time() * 1000)),
            request_id=scope["state"]["request_id"],
            method=scope["method"],
            path=hide_secrets(scope["path"]),
            status=status,
            ms=round(seconds * 1000, 2),
            key="" if principal is None else principal.key_id,
        )
        write_line(line)


def hide_secrets(path: str) -> str:
    """Return a path for the log: without the one-time token of a link, and without a key that somebody put there."""
    if path.startswith(ANSWER_PATH):
        return "(answer page)"
    return _KEY_IN_PATH.sub("pdk_...", path)


class _Answer:
    """Sends an answer with the request id, and remembers whether it has begun."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], (b"x-request-id", self._request_id.encode())]
        await self._send(message)

    async def send_problem(
        self, error: PerdureError, scope: Scope, receive: Receive, status: int | None = None
    ) -> None:
        """Answer with a problem; an answer that has begun is cut instead, so that it cannot look complete."""
        if self.status:
            raise ConnectionAbortedError("the answer had begun") from error
        told = problem_page(error) if is_page(scope["path"]) else problem_response(error, self._request_id, status)
        await told(scope, receive, self.send)


def _refuse_strangers(connection: HTTPConnection) -> None:
    """Without keys, a web page must not reach this server through the browser of somebody on this machine."""
    host = urlsplit(f"//{connection.headers.get('host', '')}").hostname or ""
    origin = connection.headers.get("origin")
    if not is_loopback(host) or (origin is not None and not is_loopback(urlsplit(origin).hostname or "")):
        raise NotAllowed("a server without keys answers only programs on this machine")
