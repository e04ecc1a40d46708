"""Values that differ from call to call, recorded by a run so that replay sees them again."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from perdure.run.writes import call_once, record_value
from perdure.values.clock import moment

if TYPE_CHECKING:
    from perdure.run.core import RunCore


class AsyncRunValues:
    """The part of a run that gives recorded times and random values."""

    __slots__ = ()

    async def now(self) -> datetime:
        """Return the time, in UTC. A resumed run gets the recorded time, and a finished one records no new one.

        >>> booked_at = await run.now()
        """
        milliseconds: int = await self._do(
            record_value(self._core, "now", partial(call_once, self._core, self._core.clock.wall_ms))
        )
        return moment(milliseconds)

    async def random(self) -> float:
        """Return a random number from 0 up to 1. A resumed run gets the recorded number."""
        number: float = await self._do(
            record_value(self._core, "random", partial(call_once, self._core, _fraction, self._core))
        )
        return number

    async def uuid(self) -> UUID:
        """Return a random UUID. A resumed run gets the recorded one."""
        made: UUID = await self._do(record_value(self._core, "uuid", partial(call_once, self._core, _uuid, self._core)))
        return made

    if TYPE_CHECKING:

        @property
        def _core(self) -> RunCore: ...

        async def _do(self, protocol: Any) -> Any: ...


def _fraction(run: RunCore) -> float:
    """53 random bits, as many as a float between 0 and 1 can hold."""
    return (int.from_bytes(run.clock.salt()[:8], "big") >> 11) / (1 << 53)


def _uuid(run: RunCore) -> UUID:
    return UUID(bytes=run.clock.salt(), version=4)
