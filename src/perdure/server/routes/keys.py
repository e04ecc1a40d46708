"""`/v1/keys` and `/v1/audit`, for admins: keys of the admin's tenant, and who wrote what."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.errors import KeyNotFound, NotAllowed
from perdure.server.access import Principal, Role
from perdure.server.calls import ApiCall
from perdure.server.keys import KeyRecord, NewKey
from perdure.server.routing import Route
from perdure.server.views import PageQuery, check_limit, format_moment, format_ms


class KeyEntry(msgspec.Struct, frozen=True):
    """A key without its secret."""

    id: str
    name: str
    tenant: str
    agent: str | None
    role: str
    rate: str | None
    created_at: str
    expires_at: str | None
    revoked_at: str | None


class CreatedKey(msgspec.Struct, frozen=True):
    """A key with its secret, which is shown only now."""

    id: str
    key: str
    about: KeyEntry


class KeyList(msgspec.Struct, frozen=True):
    """The keys of the tenant, the oldest first."""

    keys: list[KeyEntry]


class CreateKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the new key may do. It belongs to the tenant of the key that creates it."""

    name: str
    agent: str | None = None
    role: Role = Role.WRITER
    expires: str | None = None
    rate: str | None = None


class AuditEntry(msgspec.Struct, frozen=True):
    """A write that a key has made."""

    at: str | None
    key: str
    operation: str
    method: str
    path: str
    request_id: str


class AuditPage(msgspec.Struct, frozen=True):
    """Writes, oldest first."""

    writes: list[AuditEntry]
    next: str | None = None


def _entry(record: KeyRecord) -> KeyEntry:
    return KeyEntry(
        id=record.id,
        name=record.name,
        tenant=record.tenant,
        agent=record.agent,
        role=record.role.value,
        rate=record.rate,
        created_at=format_ms(record.created_ms),
        expires_at=None if record.expires_ms is None else format_ms(record.expires_ms),
        revoked_at=None if record.revoked_ms is None else format_ms(record.revoked_ms),
    )


def _created(made: NewKey) -> CreatedKey:
    return CreatedKey(made.record.id, made.key, _entry(made.record))


def _manages(principal: Principal, record: KeyRecord) -> bool:
    return record.tenant == principal.tenant and principal.agent in (None, record.agent)


async def _find(call: ApiCall) -> KeyRecord:
    record = await call.services.keys.find(call.path["key"])
    if not _manages(call.principal, record):
        raise KeyNotFound(f"there is no key {record.id!r}")  # as for a key that does not exist
    return record


async def list_keys(call: ApiCall) -> KeyList:
    """List the keys that this one manages."""
    found = await call.services.keys.list()
    return KeyList([_entry(record) for record in found if _manages(call.principal, record)])


async def create_key(call: ApiCall) -> CreatedKey:
    """Create a key of the same tenant."""
    wanted, principal = call.body, call.principal
    if principal.agent is not None and wanted.agent != principal.agent:
        raise NotAllowed("this key is bound to an agent and can only create keys for it")
    made = await call.services.keys.create(
        wanted.name,
        tenant=principal.tenant,
        agent=wanted.agent,
        role=wanted.role,
        expires=wanted.expires,
        rate=wanted.rate,
    )
    return _created(made)


async def rotate_key(call: ApiCall) -> CreatedKey:
    """Give a key a new secret."""
    return _created(await call.services.keys.rotate((await _find(call)).id))


async def revoke_key(call: ApiCall) -> KeyEntry:
    """Revoke a key for good."""
    return _entry(await call.services.keys.revoke((await _find(call)).id))


async def list_audit(call: ApiCall) -> AuditPage:
    """List the writes of all keys of the tenant."""
    if call.principal.agent is not None:
        raise NotAllowed("the audit log covers all agents, and this key is bound to one")
    agent, limit = await call.services.tenants.server_agent(call.principal.tenant), check_limit(call.query.limit)
    found = agent.events.read("http.write", since=call.query.cursor, limit=limit + 1)
    events = [event async for event in found]
    entries = [_audit_entry(event.payload, format_moment(event.at)) for event in events[:limit]]
    return AuditPage(entries, events[limit - 1].position if len(events) > limit else None)


def _audit_entry(payload: dict[str, Any], at: str | None) -> AuditEntry:
    names = ("key", "operation", "method", "path", "request_id")
    return AuditEntry(at, *(payload[name] for name in names))


ROUTES = (
    Route(
        method="GET",
        path="/v1/keys",
        operation="list_keys",
        summary="List the keys of the tenant, without their secrets.",
        handler=list_keys,
        role=Role.ADMIN,
        response=KeyList,
    ),
    Route(
        method="POST",
        path="/v1/keys",
        operation="create_key",
        summary="Create a key of the same tenant. Its secret is shown only now.",
        handler=create_key,
        role=Role.ADMIN,
        request=CreateKey,
        response=CreatedKey,
        status=201,
        secret=True,
    ),
    Route(
        method="POST",
        path="/v1/keys/{key}:rotate",
        operation="rotate_key",
        summary="Give a key a new secret. The old one opens nothing from now on.",
        handler=rotate_key,
        role=Role.ADMIN,
        response=CreatedKey,
        secret=True,
    ),
    Route(
        method="DELETE",
        path="/v1/keys/{key}",
        operation="revoke_key",
        summary="Revoke a key for good.",
        handler=revoke_key,
        role=Role.ADMIN,
        response=KeyEntry,
    ),
    Route(
        method="GET",
        path="/v1/audit",
        operation="list_audit",
        summary="List the writes that keys of the tenant have made, oldest first.",
        handler=list_audit,
        role=Role.ADMIN,
        query=PageQuery,
        response=AuditPage,
    ),
)
