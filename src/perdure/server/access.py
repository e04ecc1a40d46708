"""Who makes a request: keys, roles, and what each may touch."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import msgspec

from perdure.errors import NotAllowed, Unauthenticated

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from perdure.server.keys import KeyRing

KEY_CHARACTERS_MAX = 200


class Role(enum.StrEnum):
    """What a key may do: read, also write, also manage keys. Each includes the one before."""

    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"

    def includes(self, other: Role) -> bool:
        """Whether this role may do everything that the other may."""
        order = list(Role)
        return order.index(self) >= order.index(other)


class Principal(msgspec.Struct, frozen=True):
    """The key behind a request: one tenant, perhaps one agent of it, and a role."""

    key_id: str
    tenant: str
    agent: str | None
    role: Role
    requests_per_second: float | None = None
    """The key's own quota; None if it has the server's."""

    def require(self, role: Role) -> None:
        """Raise `NotAllowed` unless the key has this role."""
        if not self.role.includes(role):
            raise NotAllowed(
                f"this needs a key with role {role.value}; this key has role {self.role.value}",
                hint=f"`perdure keys create NAME --role {role.value}` makes one",
            )

    def require_agent(self, name: str) -> None:
        """Raise `NotAllowed` if the key is bound to another agent."""
        if self.agent is not None and self.agent != name:
            raise NotAllowed("this key is bound to another agent", hint="use a key of that agent, or an unbound one")

    def sees(self, agent: str) -> bool:
        """Whether lists over all agents show this one."""
        return self.agent in (None, agent)


OPEN_PRINCIPAL = Principal("no-auth", "default", None, Role.ADMIN)
"""Everybody, on a server with `--no-auth`."""


def find_token(connection: HTTPConnection) -> str:
    """Return the key in the headers. A key in the query string is not looked for: URLs end up in logs."""
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    if token and scheme.lower() == "bearer":
        return token.strip()
    return connection.headers.get("x-api-key", "").strip()


async def authenticate(connection: HTTPConnection, keys: KeyRing) -> Principal:
    """Return the principal of a request, or raise `Unauthenticated`. Reads headers only, never the body."""
    token = find_token(connection)
    if not token or len(token) > KEY_CHARACTERS_MAX:
        raise Unauthenticated("the request has no key" if not token else "the key is not valid")
    return await keys.verify(token)
