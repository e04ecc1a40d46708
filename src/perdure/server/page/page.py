"""What a page is, and how a request becomes one."""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from perdure.errors import MethodRefused, NotAllowed, PerdureError, RequestInvalid, RequestTooSlow, Unauthenticated
from perdure.server.access import Principal, Role
from perdure.server.audit import audit
from perdure.server.calls import ApiCall, NoQuery
from perdure.server.page.live import follow_page
from perdure.server.page.render import HEADERS, link, render_live_block, render_page
from perdure.server.page.sessions import VISITOR, PageSession, describe_session
from perdure.server.problems import status_of
from perdure.server.routing import decode_query, decode_segment, read_body
from perdure.server.services import Services
from perdure.store.base import Store
from perdure.values.codec.decoder import decode_as_dicts

_PARAMETER = re.compile(r"\{(\w+)\}")
_LIVE = ":live"
FORM_BYTES_MAX = 1024 * 1024
FORM_FIELDS_MAX = 200
VISIT_COOKIE = "perdure_visit"
"""Of somebody without a session: what the token of the form to sign in is bound to."""
THEME_COOKIE = "perdure_theme"

Shown = dict[str, Any]
"""What a template gets."""


class PageCall(ApiCall, frozen=True):
    """One request to a page. `body` has the fields of its form; `session` is None for a visitor."""

    session: PageSession | None

    @property
    def by(self) -> str:
        """Who acts, for the journal."""
        return "" if self.session is None else self.session.by

    async def store(self) -> Store:
        """Return the store that this person may see."""
        return await self.services.tenants.store(self.principal)

    async def read(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function that reads the store, in a thread."""
        return await asyncio.to_thread(function, await self.store(), *arguments)


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page: where it is, what it shows, and what its form does."""

    path: str
    """As in OpenAPI: `/runs/{agent}/{run}`. Names may contain any character, percent-encoded."""
    show: Callable[[PageCall], Awaitable[Shown | Response]]
    """Returns what the template gets, or another answer."""
    template: str = ""
    query: type[msgspec.Struct] | None = NoQuery
    """The parameters of the query string; None for any."""
    act: Callable[[PageCall], Awaitable[str | Response]] | None = None
    """Carries out the form and returns where to go next. A `PerdureError` is shown on the page."""
    role: Role = Role.READER
    """Needed to see it."""
    act_role: Role = Role.WRITER
    public: bool = False
    """Whether somebody without a session may see it."""
    live: bool = False
    """Whether the block `live` of the template is sent again whenever it changes."""
    section: str = ""
    """The entry of the menu that it belongs to."""


class PageRoute(BaseRoute):
    """Dispatches to a page. It matches the raw path, as routes of the API do."""

    def __init__(self, page: Page, services: Services, menu: tuple[tuple[str, str], ...]) -> None:
        self.page = page
        self._services = services
        self._menu = menu
        parts = _PARAMETER.split(page.path)
        names = (f"(?P<{part}>[^/]+?)" if index % 2 else re.escape(part) for index, part in enumerate(parts))
        self._pattern = re.compile("".join(names) + f"(?P<live>{_LIVE})?")

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether the request is for this page."""
        found = self._pattern.fullmatch(scope["raw_path"].decode("latin-1")) if scope["type"] == "http" else None
        if found is None or (found["live"] and not self.page.live):
            return Match.NONE, {}
        names = {name: text for name, text in found.groupdict().items() if name != "live"}
        return Match.FULL, {"path_params": names, "live": bool(found["live"]), "endpoint": self.page.show}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        if request.method not in ("GET", "HEAD", "POST") or (request.method == "POST" and self.page.act is None):
            raise MethodRefused(f"this page has no method {request.method[:20]!r}")
        principal, session = request.state.principal, request.state.session
        if session is None and not self.page.public:
            await _send_to_sign_in(request)(scope, receive, send)
            return
        principal.require(self.page.role)
        path = {name: decode_segment(text) for name, text in request.path_params.items()}
        call = PageCall(
            request=request,
            services=self._services,
            principal=principal,
            path=path,
            query=None if self.page.query is None else decode_query(request, self.page.query),
            body={},
            session=session,
        )
        if scope["live"]:
            with self._services.quotas.open_stream(principal):
                await follow_page(call, self._render_live)(scope, receive, send)
            return
        await (await self._in_time(call))(scope, receive, send)

    async def _in_time(self, call: PageCall) -> Response:
        try:
            async with asyncio.timeout(self._services.settings.request_seconds_max) as deadline:
                with decode_as_dicts():
                    return await (self._act(call) if call.request.method == "POST" else self._show(call))
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise RequestTooSlow("the request took too long and was ended") from error

    async def _show(self, call: PageCall, problem: PerdureError | None = None) -> Response:
        shown = await self.page.show(call)
        if isinstance(shown, Response):
            return shown
        visit = call.request.cookies.get(VISIT_COOKIE, "") or call.request.state.request_id
        frame = self._frame(call, visit) | {"problem": problem}
        answer = render_page(self.page.template, frame | shown, 200 if problem is None else status_of(problem))
        if call.session is None:
            answer.set_cookie(
                VISIT_COOKIE, visit, httponly=True, samesite="strict", secure=self._services.sessions.secure
            )
        return answer

    async def _render_live(self, call: PageCall) -> str:
        with decode_as_dicts():
            shown = await self.page.show(call)
            assert not isinstance(shown, Response), "a live page has a template"
            frame = self._frame(call, "") | {"problem": None}
            return await asyncio.to_thread(render_live_block, self.page.template, frame | shown)

    def _frame(self, call: PageCall, visit: str) -> dict[str, Any]:
        """Return what every template gets."""
        sessions, request = self._services.sessions, call.request
        bound_to = visit if call.session is None else request.cookies.get(sessions.cookie, "")
        theme = request.cookies.get(THEME_COOKIE, "")
        return {
            "menu": self._menu,
            "section": self.page.section,
            "form_token": sessions.form_token(bound_to),
            "who": describe_session(None if call.session is None else (call.session, call.principal)),
            "may_write": call.session is not None and call.principal.role.includes(Role.WRITER),
            "theme": theme if theme in ("light", "dark") else "",
            "live_url": _live_url(request) if self.page.live else "",
            "local": self._services.settings.page_only,
        }

    async def _act(self, call: PageCall) -> Response:
        assert self.page.act is not None
        _refuse_other_sites(call.request)
        call = msgspec.structs.replace(call, body=await _read_form(call.request))
        sessions = self._services.sessions
        bound_to = call.request.cookies.get(VISIT_COOKIE if call.session is None else sessions.cookie, "")
        given = call.body.get("form_token", "").encode("utf-8", "replace")
        if not bound_to or not hmac.compare_digest(sessions.form_token(bound_to).encode(), given):
            raise NotAllowed("the form is too old or from another session", hint="load the page again, and send again")
        if call.session is not None:
            call.principal.require(self.page.act_role)
        try:
            async with self._audit(call):
                gone = await self.page.act(call)
        except (RequestTooSlow, Unauthenticated):
            raise
        except PerdureError as error:
            return await self._show(call, error)
        return RedirectResponse(gone, 303, HEADERS) if isinstance(gone, str) else gone

    def _audit(self, call: PageCall) -> Any:
        """Note a write in the audit log of a server. On one's own machine the journal alone says who did it."""
        if call.session is None or self._services.settings.page_only:
            return nullcontext()
        operation = f"page {self.page.path}"
        request_id, path = call.request.state.request_id, call.request.url.path
        return audit(self._services.tenants, call.principal, request_id, operation, "POST", path)


async def admit_to_page(scope: Scope, services: Services) -> Principal:
    """Find the session of a request to a page. A visitor has none, and is sent to sign in where one is needed."""
    request = Request(scope)
    found = await services.sessions.find(request)
    scope["state"]["session"], principal = found or (None, VISITOR)
    return principal


def _send_to_sign_in(request: Request) -> Response:
    if "hx-request" in request.headers or request.method == "POST":
        raise Unauthenticated("your session has ended", hint="load the page again to sign in")
    if request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        # Browsers leave a strict cookie out when a link on another site was followed: ask again, from here.
        return render_page("again.html", {"again": _own_url(request)})
    return RedirectResponse(link("login", next=_own_url(request)), 303, HEADERS)


def _own_url(request: Request) -> str:
    path = request.scope["raw_path"].decode("latin-1")
    return f"{path}?{request.url.query}" if request.url.query else path


def _live_url(request: Request) -> str:
    path = request.scope["raw_path"].decode("latin-1") + _LIVE
    return f"{path}?{request.url.query}" if request.url.query else path


def _refuse_other_sites(request: Request) -> None:
    origin = request.headers.get("origin", "null")
    foreign = origin != "null" and urlsplit(origin).netloc != request.headers.get("host")
    if foreign or request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise NotAllowed("the form comes from a page of another site")


async def _read_form(request: Request) -> Mapping[str, str]:
    raw = await read_body(request, FORM_BYTES_MAX)
    try:
        fields = parse_qs(raw.decode(), True, max_num_fields=FORM_FIELDS_MAX)
    except ValueError as error:
        raise RequestInvalid("the form cannot be read") from error
    return {name: values[-1].replace("\r\n", "\n") for name, values in fields.items()}
