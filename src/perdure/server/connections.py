"""HTTP connections that must send their headers in time, and whose answers are sent in one piece.

Uvicorn itself waits for headers forever, and sends the head and the body of an answer with two system calls.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


class JoiningTransport:
    """Sends what is written in one turn of the event loop together."""

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send data at the end of this turn."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        """Send what was written, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts:
            self._transport.write(b"".join(parts))


class TimedProtocol(H11Protocol):
    """Cuts a connection that takes too long to send the headers of a request."""

    header_seconds_max = 10.0

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request."""
        super().connection_made(JoiningTransport(transport, self.loop))  # type: ignore[arg-type]  # has all of it
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer."""
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Start the timer with the first byte of a request, and stop it with the end of its headers."""
        if self._timer is None and not self._is_answering():
            self._arm()
        super().data_received(data)
        if self._is_answering():
            self._disarm()

    def _is_answering(self) -> bool:
        cycle: Any = self.cycle  # None before the first request
        return cycle is not None and not cycle.response_complete

    def _arm(self) -> None:
        self._disarm()
        self._timer = self.loop.call_later(self.header_seconds_max, self._cut)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _cut(self) -> None:
        self._timer = None
        self.transport.abort()


def make_protocol(header_seconds_max: float) -> type[TimedProtocol]:
    """Return a protocol with a limit of its own: uvicorn creates the instances."""
    return type("ServerProtocol", (TimedProtocol,), {"header_seconds_max": header_seconds_max})
