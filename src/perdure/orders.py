"""`agent.runs.cancel`, `pause` and `resume`: a run, and all that is part of it, is told to stop or to go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from . import records as r
from .answers import whoever
from .errors import RunFinished, RunNotPaused, RunStopped
from .run.obeying import Told
from .run.ordering import give_order
from .run.requests import Protocol, Read
from .run.writes import named

if TYPE_CHECKING:
    from .engine import Engine

_DONE = {r.Order.CANCEL: "cancelled", r.Order.PAUSE: "paused", r.Order.RESUME: "resumed"}


class RunOrder(msgspec.Struct, frozen=True):
    """What a run was told, and whether that has happened."""

    run: str
    order: str
    """`cancel`, `pause` or `resume`."""
    obeyed: bool
    """True: it has taken effect. False: a process has the run open, and obeys at the end of what it is at."""
    reason: str
    by: str
    parts: tuple[str, ...] = ()
    """The runs that are part of it, and were told the same."""

    def __str__(self) -> str:
        if self.obeyed:
            return f"run {self.run!r} is {_DONE[r.Order(self.order)]}"
        return f"run {self.run!r} is told to {self.order}; it does so at the end of the step that it is at"


def order_run(engine: Engine, run_id: str, order: r.Order, reason: str, by: str | None) -> Protocol[RunOrder]:
    """Tell a run of this agent something, and then all runs that are part of it."""
    told = Told(order, named(reason, "a reason"), named(by, "a name") if by is not None else whoever())
    yield Read(engine.ensure_agent)
    # From the outside in: an outer run must not begin another part when one of them has ended.
    given = yield from give_order(engine, engine.name, run_id, told)
    within = f"with {run_id!r}" + (f": {reason}" if reason else "")
    parts = []
    for agent, part, _ in (yield Read(engine.store.read, ("parts_of", (given.stream,)))):
        try:
            yield from give_order(engine, agent, part, msgspec.structs.replace(told, reason=within))
        except (RunFinished, RunNotPaused, RunStopped):
            continue  # it is over, or is not paused
        parts.append(part)
    return RunOrder(run_id, order.value, given.obeyed, told.reason, told.by, tuple(parts))
