"""One race by hand, because chance finds it once in ten thousand histories: renewed between look and takeover."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.run.lifecycle import ClaimRun
from perdure.store.base import Overtaken
from tests.simulation import seams
from tests.simulation.history import History
from tests.simulation.hosts import SimulatedPlace, SimulatedTenancy

RUN = (1, "simulated", "run1", "running", b"", 0, 0, 0, 0, 0, "", 0, 0)
LATE = (1, 7, "elsewhere", "pid:[1]", 1, 1, "elsewhere", 0, -5)
"""A lease of fence 1, of holder 7, who is five milliseconds too late."""


def taking_over(left: list[tuple[int]]) -> Any:
    """A claim that has seen the late lease, has taken it, and now sees how much time its holder has left."""
    history = History(0)
    process = history.world.current = history.processes[0]
    with seams.installed(history):
        tenancy = SimulatedTenancy(process.store)
        process.engine._place = SimulatedPlace(process.store, tenancy)  # type: ignore[assignment]
        claim = ClaimRun(process.engine, "run1", None, 0).script()
        assert [one.name for one in next(claim)] == ["get_run"]
        assert [one.name for one in claim.send([[RUN]])] == ["read_lease"]
        taken = [one.name for one in claim.send([[LATE]])]
        answers: dict[str, Any] = {"get_run": [RUN], "head_of": [(3, bytes(32))], "holder_time_left": left}
        return claim.send([answers.get(name, []) for name in taken])


def test_a_holder_who_has_renewed_meanwhile_is_not_taken_for_dead() -> None:
    with pytest.raises(Overtaken):
        taking_over([(29_000,)])


@pytest.mark.parametrize("left", [[(-6,)], []], ids=["still late", "gone"])
def test_a_holder_who_has_not_is(left: list[tuple[int]]) -> None:
    assert "append_entry" in [one.name for one in taking_over(left)]
