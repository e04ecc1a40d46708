"""The schedule of notices, in the tenant's store: it survives a killed server, and several servers share it.

A delivery is a key of state. To claim it is to move its time ahead, under the condition that nobody else has: a server
that dies while it sends loses its claim when that time comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from perdure.errors import ResourceNotFound, VersionConflict
from perdure.journal.retention_rules import OURS

if TYPE_CHECKING:
    from perdure.api.aio import AsyncAgent

SPACE = f"{OURS}notices"

SCHEDULE_SECONDS = (5, 300, 1800, 7200, 18_000, 36_000, 36_000)
"""The pauses between attempts. After the last one a notice is dead."""

CLAIM_SECONDS = 60
"""How long one attempt may take before another server may make the next."""


class Delivery(msgspec.Struct, frozen=True):
    """A notice of one question to one target."""

    question: str
    target: str
    label: str
    agent: str
    run: str
    status: str = "pending"
    """`pending`, `delivered` or `dead`."""
    attempts: int = 0
    next_ms: int = 0
    error: str = ""

    @property
    def key(self) -> str:
        """Its key in the namespace, and its id for people."""
        return f"{self.question}.{self.target}"


class Deliveries:
    """The deliveries of a tenant."""

    def __init__(self, agent: AsyncAgent) -> None:
        self._state = agent.state

    async def list(self) -> dict[str, Delivery]:
        """Return all deliveries by their keys."""
        return {key: msgspec.convert(value, Delivery) for key, value in await self._state.items(SPACE)}

    async def claim(self, planned: Delivery, now_ms: int) -> tuple[Delivery, int] | None:
        """Claim a delivery that is due. Returns it with its version; None if it is not due or another server has it."""
        version = await self._state.version(SPACE, planned.key)
        stored = await self._state.get(SPACE, planned.key)
        found = msgspec.convert(stored, Delivery) if stored is not None else planned
        if found.status != "pending" or found.next_ms > now_ms:
            return None
        claimed = msgspec.structs.replace(found, attempts=found.attempts + 1, next_ms=now_ms + CLAIM_SECONDS * 1000)
        new = await self._replace(claimed, version)
        return (claimed, new) if new else None

    async def settle(self, claimed: Delivery, version: int, error: str, now_ms: int) -> None:
        """Record how an attempt has ended. A claim that was lost meanwhile changes nothing."""
        if not error:
            after = msgspec.structs.replace(claimed, status="delivered", error="")
        elif claimed.attempts > len(SCHEDULE_SECONDS):
            after = msgspec.structs.replace(claimed, status="dead", error=error)
        else:
            pause_ms = SCHEDULE_SECONDS[claimed.attempts - 1] * 1000
            after = msgspec.structs.replace(claimed, next_ms=now_ms + pause_ms, error=error)
        await self._replace(after, version)

    async def retry(self, key: str) -> Delivery:
        """Make a dead or waiting delivery due now, with all its attempts."""
        stored = await self._state.get(SPACE, key)
        if stored is None:
            raise ResourceNotFound(f"there is no notice {key!r}", hint="see `perdure notify list`")
        again = msgspec.structs.replace(msgspec.convert(stored, Delivery), status="pending", attempts=0, next_ms=0)
        await self._state.set(SPACE, key, _to_dict(again))
        return again

    async def drop(self, key: str) -> None:
        """Forget the delivery of a question that is closed."""
        await self._state.delete(SPACE, key)

    async def _replace(self, delivery: Delivery, version: int) -> int:
        try:
            return await self._state.set(SPACE, delivery.key, _to_dict(delivery), if_version=version)
        except VersionConflict:
            return 0


def _to_dict(delivery: Delivery) -> dict[str, Any]:
    return msgspec.structs.asdict(delivery)
