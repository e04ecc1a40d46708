"""`agent.runs.undo(id, n)`: undoes the last steps of a run that is not open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from perdure import records as r
from perdure.errors import PointNotFound, RunBusy, RunFinished, StoreBusy
from perdure.journal.append import Append
from perdure.journal.lineage import events_of
from perdure.journal.takeover import read_run_lease
from perdure.kernel.protocol import Protocol, Read, Submit
from perdure.platform.failpoints import Site
from perdure.run.answers import check_person
from perdure.run.history import effective, start_points
from perdure.run.listing import require_run
from perdure.run.order_delivery import find_pending_order
from perdure.run.undo import Undo, check_steps, plan, undo_report
from perdure.store.base import Script, Statement, UnitOfWork
from perdure.store.rows import RunRow

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine


_OVER = (r.RunStatus.FINISHED, r.RunStatus.CANCELLING, r.RunStatus.CANCELLED)


class _UndoPlan(msgspec.Struct, frozen=True):
    seq: int
    """The last entry that the plan is based on."""
    undone: r.Undone
    told: Undo


def undo(engine: Engine, run_id: str, steps: int, effects: str, by: str | None) -> Protocol[Undo]:
    """Undo the last steps of a run. It repeats them when opened again."""
    check_steps(steps, effects)
    made: _UndoPlan = yield Read(_plan, (engine, run_id, steps, effects, check_person(by)))
    yield Submit(_AppendUndo(engine, run_id, made))
    return made.told


def _plan(engine: Engine, run_id: str, steps: int, effects: str, by: str) -> _UndoPlan:
    run = require_run(engine.store, engine.name, run_id)
    if run.status in _OVER:
        hint = "agent.runs.fork creates a run that continues from any point"
        raise RunFinished(f"run {run_id!r} is {run.status} and cannot be undone", hint=hint)
    if run.status == r.RunStatus.PAUSED:
        raise RunBusy(f"run {run_id!r} is paused", hint="call agent.runs.resume and start its program first")
    events = events_of(engine.store, run.stream, fork=run.is_fork)
    holding = effective(events)
    begun = start_points(holding)
    if len(begun) < steps:
        raise PointNotFound(f"run {run_id!r} has {len(begun)} steps, so {steps} cannot be undone")
    undone = plan(holding, min(begun[-steps:]), steps, effects, inside=False, by=by)
    return _UndoPlan(events[-1].seq, undone, undo_report(holding, undone))


class _AppendUndo(UnitOfWork[None]):
    """Appends the undo entry, unless the run is open or has continued since the plan was made."""

    site = Site.UNDO

    def __init__(self, engine: Engine, run_id: str, made: _UndoPlan) -> None:
        self._engine = engine
        self._id = run_id
        self._plan = made

    def script(self) -> Script[None]:
        engine, planned = self._engine, self._plan
        [[row]] = yield [Statement("get_run", (engine.name, self._id))]
        seen = yield from read_run_lease(engine.store, engine.place.lease_keeper_if_any, RunRow(*row))
        if seen.open_here:
            raise RunBusy(f"run {self._id!r} is open in this process", hint="call run.undo() there")
        if seen.held:
            raise seen.lease.busy_error(self._id)
        taken = yield from seen.take()
        if find_pending_order(taken.run.status, taken.orders) is not None:
            hint = "start its program, so that it stops"
            raise RunBusy(f"run {self._id!r} has a pending order to stop", hint=hint)
        if taken.head.seq != planned.seq:
            raise StoreBusy(
                f"run {self._id!r} has continued in the meantime; nothing was undone",
                hint="check the run and try again",
            )
        clock, signer = engine.store.clock, engine.signer
        yield from Append(self.site, taken.head, [planned.undone], clock, signer=signer, seal=True).script()
