"""Signing in with a key, entering with the link of `perdure ui`, and signing out."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec
from starlette.responses import RedirectResponse, Response

from perdure.errors import RequestInvalid, Unauthenticated
from perdure.server.access import KEY_CHARACTERS_MAX, Principal, Role
from perdure.server.page.page import Page, PageCall, Shown
from perdure.server.page.render import HEADERS
from perdure.server.page.sessions import SESSION_SECONDS_MAX

ATTEMPTS_PER_SECOND = 0.2
"""Of wrong keys from one address; the first ten are free."""


class SignInQuery(msgspec.Struct, frozen=True):
    """Where to go afterwards."""

    next: str = "/"


class EntryQuery(msgspec.Struct, frozen=True):
    """The one-time token."""

    token: str = ""


async def show_form(call: PageCall) -> Shown | Response:
    """Show the form, or go on if no key is needed."""
    if call.session is not None:
        return RedirectResponse(_own_path(call.query.next), 303, HEADERS)
    settings = call.services.settings
    if not settings.auth and not settings.page_only:
        return _begin(call, await call.services.sessions.open_local(), call.query.next)
    return {"title": "Sign in"}


async def sign_in(call: PageCall) -> Response:
    """Open a session with a key."""
    if call.services.settings.page_only:
        raise RequestInvalid("this page opens by its link only", hint="run `perdure ui` again")
    visitor = Principal(f"sign-in {call.request.client.host if call.request.client else ''}", "", None, Role.READER)
    call.services.quotas.count_attempt(visitor, ATTEMPTS_PER_SECOND)
    key = call.body.get("key", "").strip()
    if not 0 < len(key) <= KEY_CHARACTERS_MAX:
        raise RequestInvalid("enter a key", hint="`perdure keys create me` prints one")
    try:
        token = await call.services.sessions.sign_in(key)
    except Unauthenticated as error:
        raise RequestInvalid(error.message, hint="it may be revoked or expired; keys begin with pdk_") from error
    call.services.quotas.forgive_attempt(visitor)
    return _begin(call, token, call.query.next)


async def enter(call: PageCall) -> Shown | Response:
    """Exchange the one-time token of `perdure ui` for a session."""
    token = await call.services.sessions.enter(call.query.token)
    if token is not None:
        return _begin(call, token, "/")
    if call.session is not None:
        return RedirectResponse("/", 303, HEADERS)
    return {"title": "This link was used"}


async def show_sign_out(call: PageCall) -> Shown | Response:
    """There is nothing to see: people come here with a form."""
    return RedirectResponse("/", 303, HEADERS)


async def sign_out(call: PageCall) -> Response:
    """End the session."""
    sessions = call.services.sessions
    await sessions.end(call.request)
    answer = RedirectResponse("/login", 303, HEADERS)
    answer.delete_cookie(sessions.cookie, secure=sessions.secure, httponly=True, samesite="strict")
    return answer


def _begin(call: PageCall, token: str, then: str) -> Response:
    sessions = call.services.sessions
    answer = RedirectResponse(_own_path(then), 303, HEADERS)
    answer.set_cookie(
        sessions.cookie,
        token,
        max_age=SESSION_SECONDS_MAX,
        httponly=True,
        samesite="strict",
        secure=sessions.secure,
    )
    return answer


def _own_path(path: str) -> str:
    """Return a path of this server; never an address elsewhere, to which a link to sign in could lead people."""
    found = urlsplit(path)
    own = path.startswith("/") and not path.startswith("//") and "\\" not in path and not (found.scheme or found.netloc)
    return path if own and path.isprintable() else "/"


SIGN_IN = Page(
    path="/login",
    show=show_form,
    act=sign_in,
    template="login.html",
    query=SignInQuery,
    public=True,
    act_role=Role.READER,
)
ENTER = Page(path="/enter", show=enter, template="login.html", query=EntryQuery, public=True)
SIGN_OUT = Page(path="/logout", show=show_sign_out, act=sign_out, act_role=Role.READER)
