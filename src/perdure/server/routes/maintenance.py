"""`/v1/maintenance`: what the command line does on the machine of the store, for admins."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from functools import partial
from urllib.parse import quote

import msgspec
from starlette.responses import StreamingResponse

from perdure.errors import NotAllowed
from perdure.journal import rebuild as views
from perdure.journal import verify as journal
from perdure.journal.retention_rules import OURS
from perdure.journal.verify_report import VerifyFinding
from perdure.kernel.engine import Engine
from perdure.maintenance.retention import GcReport
from perdure.maintenance.retention import gc as free
from perdure.server.access import Role
from perdure.server.calls import ApiCall
from perdure.server.routing import Route
from perdure.store.base import Store
from perdure.transfer.export import ExportOptions, export
from perdure.transfer.file_format import header_of
from perdure.transfer.import_file import import_agent

BYTES = "application/octet-stream"
BLOCK_BYTES = 256 * 1024


class CollectGarbage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to free. Ages are durations: `30d`."""

    agent: str | None = None
    """All agents by default."""
    dry_run: bool = False
    compact_before: str | None = None
    events_before: str | None = None
    vacuum: bool = False


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No arguments."""


class VerifiedStore(msgspec.Struct, frozen=True):
    """What was verified, and what is wrong."""

    ok: bool
    streams: int
    entries: int
    seals: int
    objects: int
    erased: int
    findings: list[VerifyFinding]
    left_off: int
    """Findings beyond the limit of the report."""


class RebuiltViews(msgspec.Struct, frozen=True):
    """How many journal entries the views were made from."""

    entries: int


class ImportQuery(msgspec.Struct, frozen=True):
    """How to import."""

    name: str | None = None
    """The name of the agent here; by default the one in the file."""
    accept_unsigned: bool = False


class ImportedAgent(msgspec.Struct, frozen=True):
    """An agent that has arrived."""

    agent: str
    how: str
    """`moved` or `copied`."""


async def collect_garbage(call: ApiCall) -> GcReport:
    """Free what nothing needs any more, and compact old entries into archives on the server."""
    store, wanted = await _whole_store(call), call.body
    known = [str(name) for name, *_ in await asyncio.to_thread(store.read, "all_agents")]
    names = [name for name in known if not name.startswith(OURS)] if wanted.agent is None else [wanted.agent]
    tenants = call.services.tenants
    engines = [(await tenants.agent(call.principal, name))._engine for name in names]
    freeing = partial(
        free,
        dry_run=wanted.dry_run,
        compact_before=wanted.compact_before,
        events_before=wanted.events_before,
        vacuum=wanted.vacuum,
    )
    return await asyncio.to_thread(freeing, store, engines)


async def verify_store(call: ApiCall) -> VerifiedStore:
    """Verify chains, signatures, contents and views of the whole store."""
    report = await asyncio.to_thread(journal.verify, await _whole_store(call))
    return VerifiedStore(
        report.ok,
        report.streams,
        report.entries,
        report.seals,
        report.objects,
        report.erased,
        list(report.findings),
        report.left_off,
    )


async def rebuild_views(call: ApiCall) -> RebuiltViews:
    """Make all views from the journal anew."""
    return RebuiltViews(await asyncio.to_thread(views.rebuild, await _whole_store(call)))


async def export_agent(call: ApiCall) -> StreamingResponse:
    """Return a copy of an agent as a file. It is signed if the key of the agent is on this machine."""
    engine = (await call.agent())._engine
    folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="perdure-export-")
    try:
        path = os.path.join(folder, "agent.perdure")
        await asyncio.to_thread(export, engine, path, ExportOptions())
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    name = quote(f"{engine.name}.perdure", safe="")
    headers = {
        "content-length": str((await asyncio.to_thread(os.stat, path)).st_size),
        "content-disposition": f"attachment; filename*=UTF-8''{name}",
        "x-content-type-options": "nosniff",
    }
    return StreamingResponse(_send_file(folder, path), media_type=BYTES, headers=headers)


async def _send_file(folder: str, path: str) -> AsyncIterator[bytes]:
    try:
        with await asyncio.to_thread(open, path, "rb") as file:
            while block := await asyncio.to_thread(file.read, BLOCK_BYTES):
                yield block
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def import_file(call: ApiCall) -> ImportedAgent:
    """Import an agent from the file in the body. If refused, nothing remains."""
    await _whole_store(call)
    folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="perdure-import-")
    try:
        path = os.path.join(folder, "agent.perdure")
        with await asyncio.to_thread(open, path, "wb") as file:
            async for part in call.request.stream():
                await asyncio.to_thread(file.write, part)
        name = call.query.name or (await asyncio.to_thread(header_of, path)).agent
        engine: Engine = (await call.services.tenants.agent(call.principal, name))._engine
        bring = partial(import_agent, engine, path, accept_unsigned=call.query.accept_unsigned)
        return ImportedAgent(engine.name, (await asyncio.to_thread(bring)).how)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _whole_store(call: ApiCall) -> Store:
    """Return the store of the tenant; a key of one agent is refused."""
    if call.principal.agent is not None:
        raise NotAllowed("maintenance is about all agents, and this key is bound to one")
    return await call.services.tenants.store(call.principal)


ROUTES = (
    Route(
        method="POST",
        path="/v1/maintenance:gc",
        operation="collect_garbage",
        summary="Free what nothing needs any more, and compact old entries into archives on the server.",
        handler=collect_garbage,
        role=Role.ADMIN,
        request=CollectGarbage,
        response=GcReport,
        streams=True,
    ),
    Route(
        method="POST",
        path="/v1/maintenance:verify",
        operation="verify_store",
        summary="Verify chains, signatures, contents and views of the whole store.",
        handler=verify_store,
        role=Role.ADMIN,
        request=Nothing,
        response=VerifiedStore,
        streams=True,
    ),
    Route(
        method="POST",
        path="/v1/maintenance:rebuild",
        operation="rebuild_views",
        summary="Make all views from the journal anew.",
        handler=rebuild_views,
        role=Role.ADMIN,
        request=Nothing,
        response=RebuiltViews,
        streams=True,
    ),
    Route(
        method="GET",
        path="/v1/agents/{agent}:export",
        operation="export_agent",
        summary="Return a copy of an agent as a file, signed if the server has the key of the agent.",
        handler=export_agent,
        role=Role.ADMIN,
        media_type=BYTES,
        streams=True,
    ),
    Route(
        method="POST",
        path="/v1/agents:import",
        operation="import_agent",
        summary="Import an agent from the file in the body.",
        handler=import_file,
        role=Role.ADMIN,
        request=bytes,
        request_media_type=BYTES,
        query=ImportQuery,
        response=ImportedAgent,
        streams=True,
    ),
)
