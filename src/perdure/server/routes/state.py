"""`/v1/agents/{agent}/state`: durable keys with versions, in namespaces."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.errors import NotAllowed, RequestInvalid, ResourceNotFound
from perdure.journal.retention_rules import OURS
from perdure.server.access import Role
from perdure.server.calls import Answer, ApiCall
from perdure.server.routing import Route
from perdure.server.values import from_json, to_json
from perdure.server.views import PageQuery, check_limit

SPACE_PATH = "/v1/agents/{agent}/state/{namespace}"
PATH = f"{SPACE_PATH}/{{key}}"


class StateValue(msgspec.Struct, frozen=True):
    """A key with its value."""

    namespace: str
    key: str
    value: Any
    version: int


class StateEntries(msgspec.Struct, frozen=True):
    """The keys of a namespace, sorted, without their versions."""

    namespace: str
    items: dict[str, Any]
    next: str | None = None


class SetState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new value for a key."""

    value: Any
    ttl: float | str | None = None


class AddToState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number to add to a key, atomically."""

    by: float | int = 1
    ttl: float | str | None = None


class DeletedKey(msgspec.Struct, frozen=True):
    """Whether the key existed."""

    deleted: bool


def _place(call: ApiCall) -> tuple[str, str]:
    space, key = call.path["namespace"], call.path["key"]
    if space.startswith(OURS):
        raise NotAllowed(f"namespaces whose names begin with {OURS!r} are Perdure's own")
    return space, key


def _wanted_version(call: ApiCall) -> int | None:
    """Return the version that If-Match or If-None-Match demands."""
    headers = call.request.headers
    if headers.get("if-none-match") == "*":
        return 0
    tag = headers.get("if-match")
    if tag is None:
        return None
    number = tag.strip().removeprefix('"').removesuffix('"')
    if not (number.isascii() and number.isdigit() and len(number) < 19):
        raise RequestInvalid(f"If-Match: {tag[:80]!r} is not an ETag of a key", hint='send the version: If-Match: "3"')
    return int(number)


def _tagged(value: StateValue) -> Answer:
    return Answer(value, headers={"etag": f'"{value.version}"'})


async def get_state(call: ApiCall) -> Answer:
    """Return a key. Its version is the ETag."""
    agent, (space, key) = await call.agent(), _place(call)
    missing = object()
    while True:
        version = await agent.state.version(space, key)
        value = await agent.state.get(space, key, missing)
        if version == 0 or value is missing:
            raise ResourceNotFound(f"namespace {space!r} has no key {key!r}", hint="PUT creates it")
        if version == await agent.state.version(space, key):  # value and version belong together
            break
    if call.request.headers.get("if-none-match") == f'"{version}"':
        return Answer(status=304, headers={"etag": f'"{version}"'})
    return _tagged(StateValue(space, key, to_json(value), version))


async def put_state(call: ApiCall) -> Answer:
    """Set a key. If-Match demands a version, `If-None-Match: *` a key that does not exist."""
    agent, (space, key), wanted = await call.agent(), _place(call), _wanted_version(call)
    value = from_json(call.body.value)
    version = await agent.state.set(space, key, value, call.body.ttl, if_version=wanted)
    return _tagged(StateValue(space, key, to_json(value), version))


async def delete_state(call: ApiCall) -> DeletedKey:
    """Delete a key. Its history stays."""
    agent, (space, key) = await call.agent(), _place(call)
    return DeletedKey(await agent.state.delete(space, key, if_version=_wanted_version(call)))


async def increase_state(call: ApiCall) -> StateValue:
    """Add to a number."""
    agent, (space, key) = await call.agent(), _place(call)
    value = await agent.state.incr(space, key, call.body.by, call.body.ttl)
    return StateValue(space, key, to_json(value), await agent.state.version(space, key))


async def list_state(call: ApiCall) -> StateEntries:
    """List the keys of a namespace with their values."""
    agent, space, limit = await call.agent(), call.path["namespace"], check_limit(call.query.limit)
    if space.startswith(OURS):
        raise NotAllowed(f"namespaces whose names begin with {OURS!r} are Perdure's own")
    found = await agent.state.items(space, after=call.query.cursor, limit=limit + 1)
    more = found[limit - 1][0] if len(found) > limit else None
    return StateEntries(space, {key: to_json(value) for key, value in found[:limit]}, more)


ROUTES = (
    Route(
        method="GET",
        path=SPACE_PATH,
        operation="list_state",
        summary="List the keys of a namespace with their values.",
        handler=list_state,
        query=PageQuery,
        response=StateEntries,
    ),
    Route(
        method="GET",
        path=PATH,
        operation="get_state",
        summary="Return the value of a key. The ETag is its version.",
        handler=get_state,
        response=StateValue,
    ),
    Route(
        method="PUT",
        path=PATH,
        operation="put_state",
        summary="Set a key. If-Match demands a version; 412 if the key has another.",
        handler=put_state,
        role=Role.WRITER,
        request=SetState,
        response=StateValue,
    ),
    Route(
        method="DELETE",
        path=PATH,
        operation="delete_state",
        summary="Delete a key. Its history stays.",
        handler=delete_state,
        role=Role.WRITER,
        response=DeletedKey,
    ),
    Route(
        method="POST",
        path=f"{PATH}:incr",
        operation="increase_state",
        summary="Add to a number atomically, starting from 0.",
        handler=increase_state,
        role=Role.WRITER,
        recalls=True,
        request=AddToState,
        response=StateValue,
    ),
)
