"""A rehearsal: stores are opened for reading only, runs without a lease, and the program goes through them.

The program may go through a run several times: see `stand_ins`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import codec
from .. import records as r
from ..errors import StoreUnavailable
from ..journal.append import Head
from ..process import this_process
from ..run.core import RunCore
from ..run.ledger import Ledger, Recorded
from ..run.lifecycle import Claimed, input_changed, load
from ..run.lines import calling_line
from ..run.requests import Protocol, Read
from ..run.scope import Frame, current
from ..runs import list_runs, summary_of
from ..store import file_of
from ..store.base import Row, Statement
from ..trees.split import INLINE
from .replayed import RehearsedRun
from .reports import SHOWN_MAX, New, Replay, Rules
from .stand_ins import OPAQUE, Stops

if TYPE_CHECKING:
    from ..engine import Engine, Place
    from ..store.base import Store


_RESUMABLE = set(r.Status) - {r.Status.FINISHED, r.Status.CANCELLED, r.Status.QUEUED}


class Rehearsal:
    """What a program does with recorded runs."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._stores: list[Store] = []
        self.ran: dict[tuple[str, r.Call], tuple[r.StepDone, tuple[Statement, ...]]] = {}
        """New steps that have run for real, by their runs and calls."""
        self.start(OPAQUE)

    def start(self, mode: Any) -> None:
        """The next pass begins: results that are not recorded are stood in for as `mode` says."""
        self.mode = mode
        self.runs: list[RehearsedRun] = []
        """The recorded runs that the program has opened."""
        self.opened: set[int] = set()
        """Their streams."""
        self.notes: list[str] = []
        """What befell the program outside of runs."""
        self.new: list[New] = []
        """What it would begin, in all of them."""
        self.handed: list[New] = []
        """What of it has got a stand-in."""
        self.progress = 0
        """Grows whenever the code comes to a call, so that others can see that it gets on."""
        self.opening = 0
        """How many runs are being opened just now."""
        self.twins: dict[int, Recorded] = {}
        self.broken = False
        """It has ended before it opened a run."""

    def told(self) -> list[Replay]:
        """The reports of this pass."""
        return [run.told() for run in self.runs]

    def break_off(self, note: str) -> None:
        """The program cannot go on outside of runs."""
        self.notes.append(note)
        self.broken = self.broken or not self.runs

    def enter(self, url: str, enter: Callable[[], Place]) -> Place:
        """Open a store, and let nobody write to it."""
        path = file_of(url)
        if path is not None and not os.path.exists(path):
            raise StoreUnavailable(f"there is no store at {path}", hint="none is made here: say which one with --store")
        place = enter()
        place.store.guard = self._guard
        self._stores.append(place.store)
        return place

    def close(self) -> None:
        """Stores that stay open can be written to again."""
        for store in self._stores:
            store.guard = None

    def open(
        self, engine: Engine, run_id: str, given: Any, outer: Frame | None, on_change: str = "error"
    ) -> Protocol[RunCore]:
        """A recorded run, for the program to go through; or a new one inside of a recorded one."""
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
            outer.run.must_go_on()
        rows = yield Read(engine.store.read, ("get_run", (engine.name, run_id)))
        if not rows and outer is None:
            yield Read(self._start_new, (engine, run_id))
        if not rows and outer is not None:
            outer.run.begin("run", f"run {run_id!r}, a child")
            run = self._new_run(engine, run_id, given)
        else:
            run = yield Read(self._recorded_run, (engine, rows[0]))
            yield from self._refuse(run, given, rows[0])
        run.on_change = on_change
        run.root.parent = outer
        if outer is not None:
            outer.run.child = run
        engine.opened(run)
        return run

    def _start_new(self, engine: Engine, run_id: str) -> None:
        """Nothing is recorded of such a run. When no recorded one was opened, it may be one of those under a new id."""
        unfinished = [run.id for run in list_runs(engine.store, engine.name) if run.status in _RESUMABLE]
        note = f"it would start run {run_id!r}, which is not recorded"
        if unfinished and not self.runs:
            note += f", and has opened none of those that are not finished: {', '.join(unfinished[:SHOWN_MAX])}"
            self.broken = True
        self.notes.append(note)
        raise Stops(note)

    def refuse_effect(self, name: str) -> None:
        """An effect outside of any run would happen now."""
        line = calling_line()
        self.break_off(
            f"it calls effect {name} outside of a run, which is not done here{f' (at {line})' if line else ''}"
        )
        raise Stops("")

    def _recorded_run(self, engine: Engine, row: Row) -> RehearsedRun:
        summary = summary_of(engine.store, row)
        found = load(engine, Claimed(summary.stream, 0, True, summary.origin > 0))
        run = RehearsedRun(self, engine, summary.id, found, summary)
        self.runs.append(run)
        self.opened.add(summary.stream)
        return run

    def _new_run(self, engine: Engine, run_id: str, given: Any) -> RehearsedRun:
        """Nothing is recorded of it, so all that it does is new."""
        packed = INLINE + codec.encode(given, "input")
        started = r.RunStarted(engine.name, run_id, packed, codec.digest(given, "input"), 0, 0, this_process())
        found = Ledger([r.Event(1, engine.store.clock.wall_ms(), started)]), Head(engine.store.identity, 0, 0)
        return RehearsedRun(self, engine, run_id, found, None)

    def _refuse(self, run: RehearsedRun, given: Any, row: Row) -> Protocol[None]:
        """What a resume would refuse."""
        if row[3] == r.Status.CANCELLED:
            run.find("stops", "it was cancelled, and is not gone on with")
            raise run.stop(f"run {run.id!r} was cancelled")
        if given is not None and codec.digest(given, "input") != row[4]:
            error = yield Read(input_changed, (run.engine, run.id, given))
            run.refuse(error)
            raise run.stop(error.message)

    def _guard(self) -> None:
        """Somebody is about to commit something that is not a run's."""
        frame, line = current(), calling_line()
        where = f" (at {line})" if line else ""
        if frame is not None and isinstance(frame.run, RehearsedRun):
            text, hint = f"it writes to the agent in the open, which is not done here{where}", "write it in a step"
            raise frame.run.stop(text, hint)
        self.break_off(f"it writes outside of a run, which is not done here{where}")
        raise Stops("")
