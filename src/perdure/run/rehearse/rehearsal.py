"""A rehearsal: opens stores read-only and runs without a lease, and lets the program replay them.

The program may replay a run several times: see `placeholders`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from perdure import records as r
from perdure.errors import StoreUnavailable
from perdure.journal.append import StreamHead
from perdure.journal.trees.split import INLINE
from perdure.kernel.program_line import find_calling_line
from perdure.kernel.protocol import Protocol, Read
from perdure.kernel.scope import DRAFTS, Frame, WriteBuffer, current_frame
from perdure.platform.process import identify_this_process
from perdure.run.core import RunCore, core_of
from perdure.run.ledger import Ledger, RecordedCall
from perdure.run.lifecycle import ClaimedRun, input_changed, load
from perdure.run.listing import list_runs, summary_of
from perdure.run.order_handling import register
from perdure.run.rehearse.placeholders import OPAQUE, ReplayStop
from perdure.run.rehearse.replay import RehearsedRun
from perdure.run.rehearse.verdict import SHOWN_MAX, NewOperation, ReplayResult, ReplayRules
from perdure.store import file_of
from perdure.store.base import Statement
from perdure.store.rows import RunRow, read_run
from perdure.values import codec

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine, StoreSession
    from perdure.store.base import Store


_RESUMABLE = set(r.RunStatus) - {r.RunStatus.FINISHED, r.RunStatus.CANCELLED, r.RunStatus.QUEUED}


class Rehearsal:
    """One rehearsal of a program with its recorded runs."""

    def __init__(self, rules: ReplayRules) -> None:
        self.rules = rules
        self._stores: list[Store] = []
        self.ran: dict[tuple[str, r.CallIdentity], tuple[r.StepDone, tuple[Statement, ...]]] = {}
        """New steps that were executed, by run and call."""
        self.start(OPAQUE)

    def start(self, mode: Any) -> None:
        """Start the next pass. `mode` decides what replaces unrecorded results."""
        DRAFTS.update((store, WriteBuffer()) for store in self._stores)
        self.mode = mode
        self.runs: list[RehearsedRun] = []
        """The recorded runs that the program has opened."""
        self.opened: set[int] = set()
        """The streams of those runs."""
        self.notes: list[str] = []
        """Problems of the program outside of runs."""
        self.new: list[NewOperation] = []
        """Unrecorded operations that would start, in all runs."""
        self.handed: list[NewOperation] = []
        """Those that got a placeholder."""
        self.progress = 0
        """Grows whenever the code reaches a call, so that others can see its progress."""
        self.opening = 0
        """How many runs are being opened now."""
        self.twins: dict[int, RecordedCall] = {}
        self.broken = False
        """Whether the program ended before it opened a run."""

    def collect_reports(self) -> list[ReplayResult]:
        """Return the reports of this pass."""
        return [run.report() for run in self.runs]

    def end_program(self, note: str) -> None:
        """Record that the program cannot continue outside of runs."""
        self.notes.append(note)
        self.broken = self.broken or not self.runs

    def enter(self, url: str, enter: Callable[[], StoreSession]) -> StoreSession:
        """Open a store read-only."""
        path = file_of(url)
        if path is not None and not os.path.exists(path):
            raise StoreUnavailable(f"there is no store at {path}", hint="choose one with --store: none is created")
        place = enter()
        place.store.guard = self._guard
        DRAFTS[place.store] = WriteBuffer()
        self._stores.append(place.store)
        return place

    def close(self) -> None:
        """Allow writes again to stores that stay open."""
        for store in self._stores:
            store.guard = None
            DRAFTS.pop(store, None)

    def open(
        self, engine: Engine, run_id: str, given: Any, outer: Frame | None, on_change: str = "error"
    ) -> Protocol[RunCore]:
        """Open a recorded run for replay, or a new one inside a recorded one."""
        self.opening += 1
        try:
            return (yield from self._open(engine, run_id, given, outer, on_change))
        finally:
            self.opening -= 1
            self.progress += 1

    def _open(
        self, engine: Engine, run_id: str, given: Any, outer: Frame | None, on_change: str
    ) -> Protocol[RehearsedRun]:
        if outer is not None and isinstance(outer.run, RehearsedRun):
            outer.run.check_replaying()
        row: RunRow | None = yield Read(read_run, (engine.store, engine.name, run_id))
        run: RehearsedRun
        if row is not None:
            run = yield Read(self._make_recorded_run, (engine, row))
            yield from self._refuse(run, given, row)
        elif outer is not None:
            core_of(outer).begin("run", f"run {run_id!r}, a child")
            run = self._make_new_run(engine, run_id, given)
        else:
            run = yield Read(self._start_new, (engine, run_id))
        run.on_change = on_change
        run.root.parent = outer
        if outer is not None:
            core_of(outer).child = run
        register(run)
        return run

    def _start_new(self, engine: Engine, run_id: str) -> NoReturn:
        """Stop at an unrecorded run. If no recorded one was opened, it may be one of them under a new id."""
        unfinished = [run.id for run in list_runs(engine.store, engine.name) if run.status in _RESUMABLE]
        note = f"it would start run {run_id!r}, which is not recorded"
        if unfinished and not self.runs:
            note += f", and has opened none of the unfinished ones: {', '.join(unfinished[:SHOWN_MAX])}"
            self.broken = True
        self.notes.append(note)
        raise ReplayStop(note)

    def refuse_effect(self, name: str) -> None:
        """Stop at an effect outside of all runs: it would be executed now."""
        line = find_calling_line()
        self.end_program(
            f"it calls effect {name} outside of a run, which a rehearsal does not do{f' (at {line})' if line else ''}"
        )
        raise ReplayStop("")

    def _make_recorded_run(self, engine: Engine, row: RunRow) -> RehearsedRun:
        summary = summary_of(engine.store, row)
        found = load(engine, ClaimedRun(summary.stream, 0, True, summary.origin > 0))
        run = RehearsedRun(self, engine, summary.id, found, summary)
        self.runs.append(run)
        self.opened.add(summary.stream)
        return run

    def _make_new_run(self, engine: Engine, run_id: str, given: Any) -> RehearsedRun:
        """Return a run without recorded entries: everything it does is new."""
        packed = INLINE + codec.encode(given, "input")
        started = r.RunStarted(engine.name, run_id, packed, codec.digest(given, "input"), 0, 0, identify_this_process())
        found = (
            Ledger([r.JournalEntry(1, engine.store.clock.wall_ms(), started)]),
            StreamHead(engine.store.identity, 0, 0),
        )
        return RehearsedRun(self, engine, run_id, found, None)

    def _refuse(self, run: RehearsedRun, given: Any, row: RunRow) -> Protocol[None]:
        """Stop where a resume would be refused."""
        if row.status == r.RunStatus.CANCELLED:
            run.find("stops", "it was cancelled and does not continue")
            raise run.stop(f"run {run.id!r} was cancelled")
        if given is not None and codec.digest(given, "input") != row.input_digest:
            error = yield Read(input_changed, (run.engine, run.id, given))
            run.refuse(error)
            raise run.stop(error.message)

    def _guard(self) -> None:
        """Stop at a commit that does not belong to a run."""
        frame, line = current_frame(), find_calling_line()
        where = f" (at {line})" if line else ""
        if frame is not None and isinstance(frame.run, RehearsedRun):
            text = f"it writes to the agent outside of a step, which a rehearsal does not do{where}"
            hint = "write in a step"
            raise frame.run.stop(text, hint)
        self.end_program(f"it writes outside of a run, which a rehearsal does not do{where}")
        raise ReplayStop("")
