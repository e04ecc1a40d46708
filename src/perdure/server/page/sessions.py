"""Who looks at the page: sessions that begin with a key or a one-time token and live in a cookie.

Sessions of a server are in the store of its keys, as hashes, so that every server process knows them and a restart
ends none. Those of `perdure ui` live as long as the process.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from perdure.api.aio import AsyncAgent
from perdure.run.answers import find_current_user
from perdure.server.access import OPEN_PRINCIPAL, Principal, Role
from perdure.values.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from perdure.server.keys import KeyRing
    from perdure.server.settings import ServerSettings

SPACE = "sessions"
SESSION_SECONDS_MAX = 12 * 60 * 60
SESSIONS_MAX = 1000
TOKEN_CHARACTERS = 64
VISITOR = Principal("", "default", None, Role.READER)
"""Somebody without a session, to whom only pages without data are shown."""


class PageSession(msgspec.Struct, frozen=True):
    """A session as it is kept: everything but the token in the cookie."""

    until_ms: int
    by: str
    """Who acts, for the journal."""
    key_id: str = ""
    """The key that opened it; empty for somebody on this machine."""
    key_hash: str = ""
    """The hash of the key's secret: rotating the key ends its sessions."""


class SessionPlace(Protocol):
    """Where sessions are kept, by the hash of their token."""

    async def get(self, name: str) -> PageSession | None:
        """Return a session."""

    async def put(self, name: str, session: PageSession) -> None:
        """Keep a session."""

    async def drop(self, name: str) -> None:
        """End a session."""


class ProcessSessions:
    """Sessions that end with this process: of `perdure ui` and `--no-auth`. The oldest make room."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, PageSession] = OrderedDict()

    async def get(self, name: str) -> PageSession | None:
        return self._sessions.get(name)

    async def put(self, name: str, session: PageSession) -> None:
        self._sessions[name] = session
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)

    async def drop(self, name: str) -> None:
        self._sessions.pop(name, None)


class ServerSessions:
    """Sessions in the store of keys. Expired ones are deleted when somebody signs in."""

    def __init__(self, agent: AsyncAgent) -> None:
        self._agent = agent

    async def get(self, name: str) -> PageSession | None:
        value = await self._agent.state.get(SPACE, name)
        return None if value is None else msgspec.convert(value, PageSession)

    async def put(self, name: str, session: PageSession) -> None:
        now = SYSTEM_CLOCK.wall_ms()
        for old, value in await self._agent.state.items(SPACE):
            if value["until_ms"] <= now:
                await self.drop(old)
        await self._agent.state.set(SPACE, name, msgspec.to_builtins(session))

    async def drop(self, name: str) -> None:
        await self._agent.state.delete(SPACE, name)


class Sessions:
    """Opens, finds and ends sessions."""

    def __init__(self, settings: ServerSettings, keys: KeyRing) -> None:
        self._settings = settings
        self._keys = keys
        stored = settings.auth and not settings.page_only
        self._place: SessionPlace = ServerSessions(keys.agent) if stored else ProcessSessions()
        self._entry = settings.page_token

    @property
    def cookie(self) -> str:
        """The name of the cookie. Cookies do not tell ports apart, so the name does."""
        return f"perdure_session_{self._settings.port}"

    @property
    def secure(self) -> bool:
        """Whether browsers must send the cookie over TLS only."""
        return self._settings.tls or self._settings.behind_proxy

    async def sign_in(self, key: str) -> str:
        """Open a session for a key and return its token, or raise `Unauthenticated`."""
        principal = await self._keys.verify(key)
        record = await self._keys.find(principal.key_id)
        return await self._open(f"{record.name} (key {record.id})", record.id, record.hash)

    async def enter(self, token: str) -> str | None:
        """Exchange the one-time token of `perdure ui` for a session. It works once."""
        if not self._entry or not hmac.compare_digest(self._entry.encode(), token.encode("utf-8", "replace")):
            return None
        self._entry = ""
        return await self._open(find_current_user())

    async def open_local(self) -> str:
        """Open a session on a server without keys, for its forms."""
        return await self._open(find_current_user())

    async def find(self, connection: HTTPConnection) -> tuple[PageSession, Principal] | None:
        """Return the session of a request and who it acts for; None if it has none that is valid."""
        token = connection.cookies.get(self.cookie, "")
        session = await self._place.get(_name_of(token)) if len(token) == TOKEN_CHARACTERS else None
        if session is None or session.until_ms <= SYSTEM_CLOCK.wall_ms():
            return None
        if not session.key_id:
            return session, OPEN_PRINCIPAL
        principal = await self._keys.recognize(session.key_id, session.key_hash)
        return None if principal is None else (session, principal)

    async def end(self, connection: HTTPConnection) -> None:
        """End the session of a request."""
        await self._place.drop(_name_of(connection.cookies.get(self.cookie, "")))

    def form_token(self, cookie: str) -> str:
        """Return the token that forms of this browser carry."""
        return hmac.new(cookie.encode(), b"perdure form", hashlib.sha256).hexdigest()

    async def _open(self, by: str, key_id: str = "", key_hash: str = "") -> str:
        token = secrets.token_hex(TOKEN_CHARACTERS // 2)
        until = SYSTEM_CLOCK.wall_ms() + SESSION_SECONDS_MAX * 1000
        await self._place.put(_name_of(token), PageSession(until, by, key_id, key_hash))
        return token


def _name_of(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def describe_session(found: tuple[PageSession, Principal] | None) -> dict[str, Any]:
    """Return what pages show of a session."""
    if found is None:
        return {"by": "", "role": "", "agent": ""}
    session, principal = found
    return {"by": session.by, "role": principal.role.value, "agent": principal.agent or ""}
