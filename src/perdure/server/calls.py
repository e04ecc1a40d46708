"""What a handler gets and returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.server.access import Principal

if TYPE_CHECKING:
    from starlette.requests import Request

    from perdure.api.aio import AsyncAgent
    from perdure.server.services import Services


class NoQuery(msgspec.Struct, frozen=True):
    """No parameters in the query string."""


class Answer(msgspec.Struct, frozen=True):
    """The answer of a handler that needs more than a body: a status or headers."""

    body: Any = None
    status: int | None = None
    headers: Mapping[str, str] = {}


class ApiCall(msgspec.Struct, frozen=True):
    """One request to a route, checked and decoded."""

    request: Request
    services: Services
    principal: Principal
    path: Mapping[str, str]
    """The decoded parameters of the path."""
    query: Any
    """An instance of the route's `query` type."""
    body: Any
    """An instance of the route's `request` type; None if the route has none."""

    async def agent(self) -> AsyncAgent:
        """Return the agent that the path names, which the key must be allowed to use."""
        return await self.services.tenants.agent(self.principal, self.path["agent"])
