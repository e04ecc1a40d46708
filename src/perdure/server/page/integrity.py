"""Integrity: whether the journal is as it was written, and whether there is room for more of it.

A check of the whole store takes long, so it runs in the background, and the page shows how far it is. One runs at a
time for each store. The result is kept until the server ends.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from perdure.errors import NotAllowed, PerdureError
from perdure.journal.verify import verify
from perdure.journal.verify_report import VerifyReport
from perdure.server.access import Role
from perdure.server.page.page import Page, PageCall, Shown
from perdure.server.routes.health import DISK_BYTES_MIN
from perdure.store import file_of
from perdure.store.base import Store
from perdure.values.clock import SYSTEM_CLOCK

FINDINGS = 200


class VerifyState(msgspec.Struct):
    """A check that runs, or the last one."""

    began: int
    by: str
    done: int = 0
    total: int = 0
    ended: int = 0
    report: VerifyReport | None = None
    problem: str = ""
    """Why it ended without a report."""


class _ServerStops(Exception):
    """The server ends while a check runs."""


_checks: WeakKeyDictionary[Store, VerifyState] = WeakKeyDictionary()
_tasks: set[asyncio.Task[None]] = set()


def last_verify(store: Store) -> VerifyState | None:
    """Return the check of a store that runs, or else the last one since the server started."""
    return _checks.get(store)


async def show_integrity(call: PageCall) -> Shown:
    """Show the last check, the disk, and what keeps the store from being written."""
    _require_whole_store(call)
    store = await call.store()
    check = last_verify(store)
    return {"title": "Integrity", "check": check, "store": await asyncio.to_thread(_describe, store)} | {
        "findings": check.report.findings[:FINDINGS] if check is not None and check.report is not None else (),
        "may_verify": call.principal.role.includes(Role.ADMIN),
    }


async def start_verify(call: PageCall) -> str:
    """Begin a check, unless one runs."""
    _require_whole_store(call)
    store = await call.store()
    before = last_verify(store)
    if before is None or before.ended:
        check = _checks[store] = VerifyState(SYSTEM_CLOCK.wall_ms(), call.by)
        task = asyncio.create_task(_verify(call, check))
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)
    return "/integrity"


async def _verify(call: PageCall, check: VerifyState) -> None:
    """Check the store. It stays open meanwhile."""
    stopping = call.services.stopping

    def tell(done: int, total: int, _: int) -> None:
        check.done, check.total = done, total
        if stopping.is_set():
            raise _ServerStops

    with call.services.tenants.using():
        try:
            check.report = await asyncio.to_thread(verify, await call.store(), tell)
        except PerdureError as error:
            check.problem = error.message
        except _ServerStops:
            check.problem = "the server was stopped"
        finally:
            check.ended = SYSTEM_CLOCK.wall_ms()


def _require_whole_store(call: PageCall) -> None:
    if call.principal.agent is not None:
        raise NotAllowed("integrity is about the whole store, and this key is bound to one agent")


def _describe(store: Store) -> dict[str, Any]:
    """Return the size of the store, the room on its disk, and why it cannot be written, if so."""
    refusal = store.fenced or store.rolled_back
    path = file_of(store.url)
    found: dict[str, Any] = {
        "refusal": refusal.message if refusal is not None else store.read_only,
        "bytes": 0,
        "free": 0,
        "full": False,
    }
    if path is not None:
        free = shutil.disk_usage(os.path.dirname(path)).free
        sizes = (os.path.getsize(name) for name in (path, f"{path}-wal") if os.path.exists(name))
        found |= {"bytes": sum(sizes), "free": free, "full": free < DISK_BYTES_MIN}
    return found


PAGE = Page(
    path="/integrity",
    show=show_integrity,
    act=start_verify,
    act_role=Role.ADMIN,
    template="integrity.html",
    live=True,
    section="Integrity",
)
