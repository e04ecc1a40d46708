"""`agent.runs.undo(id, n)`: undoes the last steps of a run that is not open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from .. import records as r
from ..answers import whoever
from ..errors import PointNotFound, RunBusy, RunFinished, StoreBusy
from ..failpoints import Site
from ..journal.append import Append, Head
from ..journal.departures import departure, refuse_departed
from ..journal.lineage import events_of
from ..leases import read_lease
from ..run.history import beginnings, effective
from ..run.ordering import unobeyed
from ..run.requests import Protocol, Read, Submit
from ..run.undoing import Undo, must_be_steps, plan, told
from ..runs import must_exist
from ..store.base import Overtaken, Script, Statement, Unit

if TYPE_CHECKING:
    from ..engine import Engine


_OVER = (r.Status.FINISHED, r.Status.CANCELLING, r.Status.CANCELLED)


class _Plan(msgspec.Struct, frozen=True):
    stream: int
    status: r.Status
    seq: int
    """The last entry that the plan is based on."""
    undone: r.Undone
    told: Undo


def undo(engine: Engine, run_id: str, steps: int, effects: str, by: str | None) -> Protocol[Undo]:
    """Undo the last steps of a run. It repeats them when opened again."""
    must_be_steps(steps, effects)
    made: _Plan = yield Read(_plan, (engine, run_id, steps, effects, by or whoever()))
    yield Submit(_Undo(engine, run_id, made))
    return made.told


def _plan(engine: Engine, run_id: str, steps: int, effects: str, by: str) -> _Plan:
    row = must_exist(engine.store, engine.name, run_id)
    if row[3] in _OVER:
        hint = "agent.runs.fork creates a run that continues from any point"
        raise RunFinished(f"run {run_id!r} is {row[3]} and cannot be undone", hint=hint)
    if row[3] == r.Status.PAUSED:
        raise RunBusy(f"run {run_id!r} is paused", hint="call agent.runs.resume and start its program first")
    events = events_of(engine.store, row[0], fork=row[11] > 0)
    holding = effective(events)
    begun = beginnings(holding)
    if len(begun) < steps:
        raise PointNotFound(f"run {run_id!r} has {len(begun)} steps, so {steps} cannot be undone")
    undone = plan(holding, min(begun[-steps:]), steps, effects, inside=False, by=by)
    return _Plan(row[0], r.Status(row[3]), events[-1].seq, undone, told(holding, undone))


class _Undo(Unit[None]):
    """Appends the undo entry, unless the run is open or has continued since the plan was made."""

    site = Site.UNDO

    def __init__(self, engine: Engine, run_id: str, made: _Plan) -> None:
        self._engine = engine
        self._id = run_id
        self._plan = made

    def script(self) -> Script[None]:
        engine, it = self._engine, self._plan
        lease = yield from read_lease(it.stream, engine.store.clock.boot_ms(), engine.store.one_host)
        tenancy = engine.place.tenancy_if_any
        ours = tenancy is not None and lease.process == tenancy.process
        if tenancy is not None and it.stream in tenancy.open_streams:
            raise RunBusy(f"run {self._id!r} is open in this process", hint="call run.undo() there")
        if not ours and lease.alive():
            raise lease.busy(self._id)
        take = Statement("take_lease", (it.stream, lease.fence, None), Overtaken)
        look = [Statement("head_of", (it.stream,)), Statement("orders_under", (it.stream, lease.fence))]
        [_, [(seq, link)], orders, gone] = yield [take, *look, departure(engine.name)]
        refuse_departed(engine.name, gone)
        if unobeyed(it.status, orders) is not None:
            hint = "start its program, so that it stops"
            raise RunBusy(f"run {self._id!r} has a pending order to stop", hint=hint)
        if seq != it.seq:
            raise StoreBusy(
                f"run {self._id!r} has continued in the meantime; nothing was undone",
                hint="check the run and try again",
            )
        head = Head(engine.store.identity, it.stream, lease.fence + 1, seq, link)
        clock, signer = engine.store.clock, engine.signer
        yield from Append(self.site, head, [it.undone], clock, signer=signer, seal=True).script()
