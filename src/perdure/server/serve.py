"""Runs the server: binds, serves until a signal, and ends requests before it stops."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import uvicorn

from perdure.errors import ListenRefused
from perdure.server.app import create_app
from perdure.server.connections import make_protocol
from perdure.server.request_log import log_to_stderr
from perdure.server.services import Services
from perdure.server.settings import ServerSettings, check_binding

KEEP_ALIVE_SECONDS = 75
"""How long an idle connection stays open for the client's next request."""


def bind(settings: ServerSettings) -> tuple[socket.socket, ServerSettings]:
    """Bind the address. Port 0 takes a free one, which the returned settings name."""
    check_binding(settings)
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # With its protocol: asyncio sets TCP_NODELAY only then, and without it every answer waits 40 ms for an ACK.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise ListenRefused(
            f"{settings.host}:{settings.port} cannot be bound: {error.strerror}",
            hint="another server may listen there; choose another --port, or 0 for any free one",
        ) from error
    return listener, msgspec.structs.replace(settings, port=listener.getsockname()[1])


class _SignalledServer(uvicorn.Server):
    """Announces that it accepts connections, and ends with exit code 0 after SIGINT and SIGTERM."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None], stopping: asyncio.Event) -> None:
        super().__init__(config)
        self._announce = announce
        self._stopping = stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, then announce it."""
        await super().startup(sockets)
        self._announce()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop after a signal. Uvicorn itself would raise the signal again, as if the process had been killed."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop, number)
        yield

    def _stop(self, number: int) -> None:
        self._stopping.set()
        self.handle_exit(number, None)


def serve(settings: ServerSettings, announce: Callable[[ServerSettings], None]) -> None:
    """Serve until SIGINT or SIGTERM. A second signal does not wait for requests that are under way."""
    listener, settings = bind(settings)
    with listener:
        asyncio.run(_serve(settings, listener, announce))


async def _serve(settings: ServerSettings, listener: socket.socket, announce: Callable[[ServerSettings], None]) -> None:
    log_to_stderr(logging.WARNING if settings.page_only else logging.INFO)
    services = Services.open(settings)
    try:
        await services.prepare()
        config = uvicorn.Config(
            create_app(services),
            lifespan="off",
            http=make_protocol(settings.header_seconds_max),
            ws="none",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=settings.behind_proxy,
            ssl_certfile=settings.tls_certificate or None,
            ssl_keyfile=settings.tls_key or None,
            h11_max_incomplete_event_size=settings.header_bytes_max,
            limit_concurrency=settings.connections_max,
            timeout_graceful_shutdown=int(settings.stop_seconds_max),
        )
        await _SignalledServer(config, lambda: announce(settings), services.stopping).serve([listener])
    finally:
        await services.close()
