"""One race by hand, because chance finds it once in ten thousand histories: a change between look and takeover.

Everybody who takes a run over must notice: who opens it, who orders it to stop, who undoes its steps, who settles the
step of a workflow that it worked on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perdure import records as r
from perdure.journal.append import StreamHead
from perdure.journal.workflow_writes import _end_run
from perdure.kernel.engine import Engine
from perdure.run.branches.undo_closed import _AppendUndo, _UndoPlan
from perdure.run.lifecycle import ClaimRun
from perdure.run.order_delivery import _GiveOrder
from perdure.run.order_handling import PendingOrder
from perdure.run.undo import Undo
from perdure.store.base import Overtaken, Script
from tests.simulation import seams
from tests.simulation.history import History
from tests.simulation.hosts import SimulatedPlace, SimulatedTenancy

WHICH = ("simulated", "run1")
RUN = (1, *WHICH, "running", b"", 0, 0, 0, 0, 0, "", 0, 0)
LATE = (1, 7, "elsewhere", "pid:[1]", 1, 1, "elsewhere", 0, -5)
"""A lease of fence 1, of holder 7, who is five milliseconds too late."""
RENEWED = [(29_000,)]
CANCELLED = r.RunCancelledEntry("no longer needed", "a test")


def order(engine: Engine) -> Script[Any]:
    pending = PendingOrder(r.Order.CANCEL, "no longer needed", "a test")
    return _GiveOrder(engine, WHICH, pending, StreamHead(engine.store.identity, 2, 1), None).script()


def undo(engine: Engine) -> Script[Any]:
    return _AppendUndo(engine, "run1", _UndoPlan(3, r.Undone(2, 1, inside=False), Undo(1, 2))).script()


TAKERS: dict[str, Callable[[Engine], Script[Any]]] = {
    "open": lambda engine: ClaimRun(engine, "run1", None, 0).script(),
    "order": order,
    "undo": undo,
    "workflow": lambda engine: _end_run(WHICH, CANCELLED, engine.lease_keeper, engine.store),
}


def take_over(taker: str, left: list[tuple[int]], status: str = "running") -> set[str]:
    """Names of the statements of a taker that has seen the late lease, has taken it, and then sees this."""
    history = History(0)
    process = history.world.current = history.processes[0]
    with seams.install_seams(history):
        lease_keeper = SimulatedTenancy(process.store)
        process.engine._place = SimulatedPlace(process.store, lease_keeper)  # type: ignore[assignment]
        process.engine.__dict__["signer"] = None
        script = TAKERS[taker](process.engine)
        answers: dict[str, Any] = {
            "get_run": [RUN], "read_lease": [LATE], "head_of": [(3, bytes(32))], "holder_time_left": left
        }  # fmt: skip
        asked = [one.name for one in next(script)]
        while "append_entry" not in asked:
            if "take_lease" in asked:
                answers["get_run"] = [(*RUN[:3], status, *RUN[4:])]
            asked = [one.name for one in script.send([answers.get(name, []) for name in asked])]
        return set(asked)


@pytest.mark.parametrize("taker", TAKERS)
def test_a_holder_that_has_renewed_is_not_taken_over(taker: str) -> None:
    with pytest.raises(Overtaken):
        take_over(taker, RENEWED)


@pytest.mark.parametrize("taker", TAKERS)
def test_a_run_whose_status_has_changed_is_not_taken_over(taker: str) -> None:
    with pytest.raises(Overtaken):
        take_over(taker, [], "finished")


@pytest.mark.parametrize("left", [[(-6,)], []], ids=["still late", "gone"])
@pytest.mark.parametrize("taker", TAKERS)
def test_a_holder_that_has_not_renewed_is_taken_over(taker: str, left: list[tuple[int]]) -> None:
    assert "append_entry" in take_over(taker, left)
