"""`/v1/store/...`: the protocol between `Agent(store="https://...")` and the server. Its bodies are MessagePack."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from starlette.responses import Response

from perdure.errors import NotAllowed
from perdure.server.access import OPEN_PRINCIPAL, Principal, Role
from perdure.server.addresses import check_tenant
from perdure.server.audit import note
from perdure.server.calls import ApiCall
from perdure.server.remote.service import RemoteService, service_of
from perdure.server.routing import Handler, Route, read_body
from perdure.store.remote.wire import COMMIT, FACTS, MEDIA_TYPE, READ, SCRUB, WATCH

STORE_BYTES_MAX = 96 * 1024 * 1024
"""The largest body of this route: the largest value (`VALUE_BYTES_MAX`) fits, with the rest of its unit."""

Action = Callable[[RemoteService, Principal, bytes], Awaitable[bytes]]


def _choose_tenant(call: ApiCall) -> Principal:
    """Return the principal. On a server without keys, a header may name the tenant, as tests of stores do."""
    wanted = call.request.headers.get("perdure-tenant")
    if wanted is None or wanted == call.principal.tenant:
        return call.principal
    if call.principal.key_id != OPEN_PRINCIPAL.key_id:
        raise NotAllowed("this key belongs to another tenant")
    return msgspec.structs.replace(call.principal, tenant=check_tenant(wanted))


def _handle(action: Action) -> Handler:
    async def handle(call: ApiCall) -> Response:
        principal = _choose_tenant(call)
        service = service_of(await call.services.tenants.store(principal))
        answer = await action(service, principal, await read_body(call.request, STORE_BYTES_MAX))
        return Response(answer, media_type=MEDIA_TYPE)

    return handle


def _route(path: str, operation: str, summary: str, handler: Handler, *, streams: bool = False) -> Route:
    return Route(
        method="POST",
        path=path,
        operation=operation,
        summary=summary,
        handler=handler,
        role=Role.READER,  # each statement has a rule of its own
        media_type=MEDIA_TYPE,
        request_media_type=MEDIA_TYPE,
        streams=streams,
    )


async def _open(call: ApiCall) -> Response:
    """Tell the facts. A key that may write is noted in the audit log, once for each process that opens the store."""
    principal = call.principal
    answer: Response = await _handle(RemoteService.facts)(call)
    store = await call.services.tenants.store(principal)
    if principal.key_id != OPEN_PRINCIPAL.key_id and principal.role.includes(Role.WRITER) and not store.read_only:
        await note(call.services.tenants, principal, call.request.state.request_id, "storeFacts", "POST", FACTS)
    return answer


ROUTES = (
    _route(FACTS, "storeFacts", "What a remote store must know.", _open),
    _route(
        COMMIT, "storeCommit", "Replay the batches of units, and commit complete ones.", _handle(RemoteService.commit)
    ),
    _route(READ, "storeRead", "Run named queries.", _handle(RemoteService.read)),
    _route(WATCH, "storeWatch", "Wait until a stream may have changed.", _handle(RemoteService.watch), streams=True),
    _route(SCRUB, "storeScrub", "Remove erased data from the files.", _handle(RemoteService.scrub)),
)
