"""Watches the runs of open tenants, and queues the spans of those that have stopped."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

from perdure.errors import PerdureError
from perdure.records import RunStatus
from perdure.run.listing import NEWEST, RunSummary, list_runs, require_run, summary_of
from perdure.run.window import last_entry, read_window
from perdure.server.otlp.sender import SpanSender
from perdure.server.otlp.spans import RunOrigin, spans_of
from perdure.server.tenants import Tenants
from perdure.store.base import Store
from perdure.store.rows import RunRow
from perdure.values.clock import SYSTEM_CLOCK
from perdure.values.log import warn

LOOK_SECONDS = 1.0
REST = 9
"""A look is followed by so many times its duration of rest, so that looking takes a tenth of a core at most."""
OVERLAP_MS = 10_000
"""Runs that changed so long before the last look are looked at again: clocks of machines differ."""
ENTRIES_MAX = 10_000
"""The newest entries of a run that become spans."""
PAGE = 200
KNOWN_MAX = 10_000
"""Runs whose sent spans are remembered, and runs that are watched until they stop."""

RunPlace = tuple[str, int]
"""A run of this process: the identity of its store, and its stream."""


class TraceExporter:
    """Looks at the stores that this process has open, and sends what ended since it began."""

    def __init__(
        self, tenants: Tenants, sender: SpanSender | None, now_ms: Callable[[], int] = SYSTEM_CLOCK.wall_ms
    ) -> None:
        self._tenants = tenants
        self._sender = sender
        self._since = now_ms()
        self._seen: dict[str, int] = {}
        """The newest change of a run that was looked at, by store."""
        self._sent: OrderedDict[RunPlace, set[str]] = OrderedDict()
        self._moving: OrderedDict[RunPlace, None] = OrderedDict()
        """Runs that have not stopped. A crash does not change the row of a run."""
        self._lock = threading.Lock()
        """A look that was cancelled still ends in its thread."""
        self._task: asyncio.Task[None] | None = None

    @property
    def counters(self) -> dict[str, float]:
        """What `/metrics` shows of it; nothing if there is no collector."""
        if self._sender is None:
            return {}
        return {"perdure_spans_sent_total": self._sender.sent, "perdure_spans_dropped_total": self._sender.dropped}

    def start(self) -> None:
        """Begin to look, if there is a collector."""
        if self._sender is not None and self._task is None:
            self._sender.start()
            self._task = asyncio.create_task(self._watch(self._sender))

    async def stop(self) -> None:
        """End, and give the last spans a moment."""
        if self._task is None or self._sender is None:
            return
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._task = None
        await self._look(self._sender)
        await asyncio.to_thread(self._sender.stop)

    async def _watch(self, sender: SpanSender) -> None:
        took = 0.0
        while True:
            await asyncio.sleep(max(LOOK_SECONDS, REST * took))
            began = time.monotonic()
            await self._look(sender)
            took = time.monotonic() - began

    async def _look(self, sender: SpanSender) -> None:
        with self._tenants.using():
            for store in self._tenants.open_stores():
                try:
                    await asyncio.to_thread(self._export, store, sender)
                except PerdureError as error:  # a store that is busy or away: the next look may find it
                    warn("traces: %s", error.message)

    def _export(self, store: Store, sender: SpanSender) -> None:
        with self._lock:
            self._export_changed(store, sender)

    def _export_changed(self, store: Store, sender: SpanSender) -> None:
        for run in self._changed(store):
            place = (store.identity, run.stream)
            if run.holder or run.status == RunStatus.RUNNING:
                self._moving[place] = None
                continue
            self._moving.pop(place, None)
            self._export_run(store, run, sender)
        while len(self._moving) > KNOWN_MAX:
            self._moving.popitem(last=False)

    def _changed(self, store: Store) -> list[RunSummary]:
        """Return the runs that have changed since the last look, and those that had not stopped."""
        since, place, found = self._seen.get(store.identity, self._since) - OVERLAP_MS, NEWEST, list[RunSummary]()
        while page := list_runs(store, limit=PAGE, after=place):
            found += [run for run in page if run.stream and run.changed_at >= since]
            place = page[-1].place
            if page[-1].changed_at < since:
                break
        self._seen[store.identity] = max([self._since, *(run.changed_at for run in found)])
        listed = {run.stream for run in found}
        for identity, stream in list(self._moving):
            if identity == store.identity and stream not in listed:
                found += [summary_of(store, RunRow(*row)) for row in store.read("run_in", (stream,))]
        return found

    def _export_run(self, store: Store, run: RunSummary, sender: SpanSender) -> None:
        place = (store.identity, run.stream)
        done = self._sent.get(place)
        mark = f"{run.status} {run.changed_at}"
        if done is not None and mark in done:
            return
        row = require_run(store, run.agent, run.id)
        first = max(1, last_entry(store, row) - ENTRIES_MAX + 1)
        window = read_window(store, row, first, ENTRIES_MAX)
        spans = spans_of(RunOrigin(store.identity, run.agent, run.id), window.entries, run.status.value)
        known = done or set()
        since = self._since * 1_000_000
        fresh = [one for one in spans if one["spanId"] not in known and int(one["endTimeUnixNano"]) >= since]
        sender.put(fresh)
        self._sent[place] = known | {mark} | {one["spanId"] for one in fresh}
        self._sent.move_to_end(place)
        while len(self._sent) > KNOWN_MAX:
            self._sent.popitem(last=False)
