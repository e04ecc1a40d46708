"""`Idempotency-Key`: a POST that is sent again is carried out once, even if the server was killed in between.

The claim of a key is on disk before the request is carried out, its answer afterwards. After a crash between the two,
the audit log tells whether the write landed: it is in the same commit. The answer is then made again from the changes
in that commit.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from perdure.errors import PerdureError, RequestInvalid, RequestRepeated, RequestUnfinished, VersionConflict
from perdure.platform.process import Holder, identify_this_process, proven_dead
from perdure.server.access import Principal
from perdure.server.audit import Changes, find_landed, last_position
from perdure.server.tenants import Tenants

SPACE = "requests"
KEPT = "24h"
HEADERS_KEPT = ("content-type", "content-encoding", "etag", "vary")
_KEY = re.compile(r"[!-~]{1,255}")


Perform = Callable[[Changes | None], Awaitable[Response]]
"""Performs a request. Given the changes that an earlier process committed, it only makes their answer again."""


class RequestClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A request under an Idempotency-Key, and its answer once there is one."""

    fingerprint: str
    request_id: str
    position: str
    holder: Holder
    status: int = 0
    headers: dict[str, str] = {}
    body: bytes = b""


class Idempotency:
    """Remembers answers for a day. Locks keep equal requests of this process apart."""

    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants
        self._locks: dict[str, asyncio.Lock] = {}

    async def once(
        self,
        request: Request,
        principal: Principal,
        body: bytes,
        perform: Perform,
        *,
        secret: bool = False,
    ) -> Response:
        """Perform a request, or return the answer of an equal one."""
        key = request.headers.get("idempotency-key")
        if key is None:
            return await perform(None)
        if not _KEY.fullmatch(key):
            raise RequestInvalid("Idempotency-Key: use 1 to 255 printable ASCII characters without spaces")
        name = name_request(principal, key)
        lock = self._locks.setdefault(f"{principal.tenant}/{name}", asyncio.Lock())
        try:
            async with lock:
                return await self._once(request, principal, name, body, perform, secret)
        finally:
            if not lock.locked():
                self._locks.pop(f"{principal.tenant}/{name}", None)

    async def _once(
        self,
        request: Request,
        principal: Principal,
        name: str,
        body: bytes,
        perform: Perform,
        secret: bool,
    ) -> Response:
        state = (await self._tenants.server_agent(principal.tenant)).state
        fingerprint = _digest(request.method, request.url.path, request.url.query, body.hex())
        version = await state.version(SPACE, name)
        stored = await state.get(SPACE, name) if version else None
        earlier = None if stored is None else _read(stored)
        if earlier is not None and (answer := self._answer_of(earlier, fingerprint)) is not None:
            return answer
        landed = None if earlier is None else await self._find_landed(principal, earlier)
        if earlier is not None and landed is not None:
            claim = msgspec.structs.replace(earlier, holder=identify_this_process())
        else:
            claim = await self._claim(request, principal, fingerprint)
        try:
            await state.set(SPACE, name, msgspec.to_builtins(claim), KEPT, if_version=version)
        except VersionConflict as error:
            raise _unfinished() from error
        try:
            response = await perform(landed)
        except PerdureError as error:
            if landed is not None:
                raise _lost() from error
            await state.delete(SPACE, name)  # nothing was changed, so a corrected request may use the key
            raise
        headers = {} if secret else {n: v for n, v in response.headers.items() if n in HEADERS_KEPT}
        body = b"" if secret else bytes(response.body)
        kept = msgspec.structs.replace(claim, status=response.status_code, headers=headers, body=body)
        await state.set(SPACE, name, msgspec.to_builtins(kept, builtin_types=(bytes,)), KEPT)
        if landed is not None:
            response.headers["idempotency-replayed"] = "true"
        return response

    async def _claim(self, request: Request, principal: Principal, fingerprint: str) -> RequestClaim:
        return RequestClaim(
            fingerprint=fingerprint,
            request_id=request.state.request_id,
            position=await last_position(self._tenants, principal.tenant),
            holder=identify_this_process(),
        )

    def _answer_of(self, claim: RequestClaim, fingerprint: str) -> Response | None:
        """Return the kept answer; None if the process that claimed the request is dead, and kept none."""
        if claim.fingerprint != fingerprint:
            raise RequestRepeated
        if claim.status and not claim.body:
            raise RequestUnfinished(
                "the request was carried out, and its answer, which had a secret, was shown only once",
                hint="rotate the key: POST /v1/keys/{key}:rotate",
            )
        if claim.status:
            return Response(claim.body, claim.status, {**claim.headers, "idempotency-replayed": "true"})
        if claim.holder != identify_this_process() and not proven_dead(claim.holder, one_host=False):
            raise _unfinished()
        return None

    async def _find_landed(self, principal: Principal, claim: RequestClaim) -> Changes | None:
        """Return what the request has changed; None if it has changed nothing."""
        return await find_landed(self._tenants, principal.tenant, claim.request_id, claim.position)


def name_request(principal: Principal, key: str) -> str:
    """Return a name for a request under an Idempotency-Key. Keys of other people are other requests."""
    return _digest(principal.key_id, key)


def _unfinished() -> RequestUnfinished:
    return RequestUnfinished(hint="wait for its answer, then send the request again to get the same")


def _lost() -> RequestUnfinished:
    return RequestUnfinished(
        "the request was carried out, and its answer was lost when the server ended",
        hint="read the resource to see the result; do not send the request again",
    )


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _read(stored: Any) -> RequestClaim:
    return msgspec.convert(stored, RequestClaim)
