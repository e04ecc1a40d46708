"""The parts of a running server that handlers share."""

from __future__ import annotations

import asyncio

import msgspec

from perdure.server.access import OPEN_PRINCIPAL
from perdure.server.addresses import limit_connections
from perdure.server.event_notifier import EventNotifiers
from perdure.server.idempotency import Idempotency
from perdure.server.keys import KeyRing
from perdure.server.metrics import Metrics
from perdure.server.notify.notifier import Notifier
from perdure.server.notify.targets import parse_target
from perdure.server.otlp.exporter import TraceExporter
from perdure.server.otlp.sender import SpanSender, parse_collector
from perdure.server.page.sessions import Sessions
from perdure.server.quotas import Quotas
from perdure.server.run_sessions import RunSessions
from perdure.server.settings import ServerSettings
from perdure.server.tenants import Tenants


class Services(msgspec.Struct, frozen=True):
    """The settings, keys and tenants of one server process."""

    settings: ServerSettings
    keys: KeyRing
    tenants: Tenants
    quotas: Quotas
    metrics: Metrics
    idempotency: Idempotency
    stopping: asyncio.Event
    """Set when the server begins to stop: streams end."""
    notifier: Notifier
    sessions: Sessions
    """Of people who look at the page."""
    event_notifiers: EventNotifiers
    traces: TraceExporter
    run_sessions: RunSessions = msgspec.field(default_factory=RunSessions)

    @classmethod
    def open(cls, settings: ServerSettings) -> Services:
        """Make the services of a server. Stores are opened on first use."""
        store = limit_connections(settings.store)
        keys, tenants = KeyRing(store), Tenants(store, settings.open_tenants)
        targets = [parse_target(url, settings.notify_secret) for url in settings.notify]
        stopping = asyncio.Event()
        sender = SpanSender(parse_collector(settings.otlp, settings.otlp_headers)) if settings.otlp else None
        return cls(
            settings,
            keys,
            tenants,
            Quotas(settings),
            Metrics(),
            Idempotency(tenants),
            stopping,
            Notifier(tenants, keys, targets, settings.notify_secret),
            Sessions(settings, keys),
            EventNotifiers(stopping),
            TraceExporter(tenants, sender),
        )

    async def prepare(self) -> None:
        """Open the stores of the default tenant and of keys, so that a server that cannot serve does not start."""
        with self.tenants.using():
            await self.tenants.store(OPEN_PRINCIPAL)
        self.traces.start()
        if self.settings.page_only:
            return
        await self.keys.prepare()
        self.notifier.start(self.settings.public_url.rstrip("/") or self.settings.origin)

    async def close(self) -> None:
        """End what runs in the background, and close every store."""
        await self.notifier.stop()
        await self.traces.stop()
        await self.tenants.close()
        await self.keys.close()
