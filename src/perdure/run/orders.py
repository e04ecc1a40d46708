"""`agent.runs.cancel`, `pause` and `resume`: order a run and the runs inside it to stop or continue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from perdure import records as r
from perdure.errors import RunFinished, RunNotPaused, RunStopped
from perdure.kernel.names import check_storable_name
from perdure.kernel.protocol import Protocol, Read
from perdure.run.answers import check_person
from perdure.run.order_delivery import give_order
from perdure.run.order_handling import PendingOrder

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

_DONE = {r.Order.CANCEL: "cancelled", r.Order.PAUSE: "paused", r.Order.RESUME: "resumed"}


class RunOrder(msgspec.Struct, frozen=True):
    """The result of an order to a run."""

    run: str
    order: str
    """`cancel`, `pause` or `resume`."""
    obeyed: bool
    """True: it has taken effect. False: a process has the run open and obeys at the end of its current step."""
    reason: str
    by: str
    parts: tuple[str, ...] = ()
    """The runs inside it that received the same order."""

    def __str__(self) -> str:
        if self.obeyed:
            return f"run {self.run!r} is {_DONE[r.Order(self.order)]}"
        return f"run {self.run!r} was ordered to {self.order}; it obeys at the end of its current step"


def order_run(engine: Engine, run_id: str, order: r.Order, reason: str, by: str | None) -> Protocol[RunOrder]:
    """Give an order to a run of this agent, then to all runs inside it."""
    pending = PendingOrder(
        order,
        check_storable_name(reason, "a reason"),
        check_person(by),
    )
    yield Read(engine.ensure_agent)
    # From the outside in: an outer run must not start another inner run when one has ended.
    given = yield from give_order(engine, engine.name, run_id, pending)
    within = f"with {run_id!r}" + (f": {reason}" if reason else "")
    parts = []
    for agent, part, _ in (yield Read(engine.store.read, ("descendant_runs", (given.stream,)))):
        try:
            yield from give_order(engine, agent, part, msgspec.structs.replace(pending, reason=within))
        except (RunFinished, RunNotPaused, RunStopped):
            continue  # it has ended, or is not paused
        parts.append(part)
    return RunOrder(run_id, order.value, given.obeyed, pending.reason, pending.by, tuple(parts))
