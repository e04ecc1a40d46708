"""`/healthz` and `/readyz`: whether the process lives, and whether it can serve."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from perdure import __version__
from perdure.errors import StorageFull, StoreReadOnly
from perdure.records import RunStatus
from perdure.run.listing import run_counts
from perdure.server.access import OPEN_PRINCIPAL
from perdure.server.calls import ApiCall
from perdure.server.routing import Route
from perdure.store import file_of

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
DISK_BYTES_MIN = 64 * 1024 * 1024
"""With less space a server is not ready: its next commits may fail."""


class Health(msgspec.Struct, frozen=True):
    """The answer of a living server."""

    status: str
    version: str


async def get_health(call: ApiCall) -> Health:
    """Answer without looking at any store."""
    return Health("ok", __version__)


async def get_readiness(call: ApiCall) -> Health:
    """Answer once the stores of keys and of the default tenant can be read."""
    await call.services.keys.list()
    store = await call.services.tenants.store(OPEN_PRINCIPAL)
    await asyncio.to_thread(store.read, "all_agents")
    refusal = store.fenced or store.rolled_back
    if refusal is not None:
        raise type(refusal)(refusal.message, hint=refusal.hint)
    if store.read_only:
        raise StoreReadOnly(store.read_only)
    path = file_of(store.url)
    if path is not None and shutil.disk_usage(os.path.dirname(path)).free < DISK_BYTES_MIN:
        raise StorageFull(f"fewer than {DISK_BYTES_MIN:,} bytes are free for the store")
    return Health("ready", __version__)


async def get_metrics(call: ApiCall) -> Response:
    """Return counters of this process and gauges of the stores that it has open."""
    services, stores = call.services, call.services.tenants.open_stores()
    runs: Counter[str] = Counter(dict.fromkeys(RunStatus.listed(), 0))
    leases = 0
    for store in stores:
        for (_, status), count in (await asyncio.to_thread(run_counts, store)).items():
            runs[status.value] += count
        holders = await asyncio.to_thread(store.read, "holders_at_work", (store.clock.boot_ms(),))
        leases += sum(held for *_, held in holders)
    gauges: dict[str, Mapping[str, float] | float] = {
        "perdure_commits_total": services.tenants.count_commits(),
        "perdure_runs": runs,
        "perdure_queue_depth": runs[RunStatus.QUEUED],
        "perdure_leases": leases,
        "perdure_open_streams": services.quotas.streams.total(),
        "perdure_requests_under_way": services.metrics.under_way,
        "perdure_open_tenants": len(stores),
        **services.traces.counters,
    }
    return Response(services.metrics.render(gauges), media_type=PROMETHEUS)


ROUTES = (
    Route(
        method="GET",
        path="/metrics",
        operation="get_metrics",
        summary="Return counters and gauges in the text format of Prometheus.",
        handler=get_metrics,
        role=None,
        media_type=PROMETHEUS,
    ),
    Route(
        method="GET",
        path="/healthz",
        operation="get_health",
        summary="Tell whether the process lives.",
        handler=get_health,
        role=None,
        response=Health,
    ),
    Route(
        method="GET",
        path="/readyz",
        operation="get_readiness",
        summary="Tell whether the server can serve: its stores can be read.",
        handler=get_readiness,
        role=None,
        response=Health,
    ),
)
