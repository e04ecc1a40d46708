"""Corners of `agent.state` that take a hand inside."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from perdure import Agent, records
from perdure.data import state, state_history
from perdure.journal.agent_writes import AppendAgentWrites, SetKey
from perdure.journal.append import Append
from perdure.platform.failpoints import Site
from perdure.values.durations import seconds_of


def test_a_revert_sees_what_came_in_between(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent("a", store=tmp_path / "perdure.db")
    agent.state.set("n", "x", 1)
    agent.state.set("n", "x", 2)
    prepare, times = state_history._plan_revert, []

    def disturbed(*args: Any) -> Any:
        prepared = prepare(*args)
        times.append(1)
        if len(times) == 1:
            agent.state.set("n", "new", "came in between")
        return prepared

    monkeypatch.setattr(state_history, "_plan_revert", disturbed)
    assert agent.state.revert(1, ns="n") == 2
    assert agent.state.items("n") == [("x", 1)]
    assert len(times) == 2
    agent.close()


def test_a_step_of_another_store_does_not_hold_the_state_back(tmp_path: Any) -> None:
    one, other = Agent("one", store=tmp_path / "one.db"), Agent("other", store=tmp_path / "other.db")

    @one.step
    def work() -> None:
        other.state.set("n", "k", 1)
        raise ValueError

    with pytest.raises(ValueError), one.run("r"):  # noqa: PT011
        work()
    assert other.state.get("n", "k") == 1, "it cannot land with a commit of another store"
    one.close()
    other.close()


def test_what_two_agents_of_one_store_write_lands_with_one_step(tmp_path: Any) -> None:
    one, other = Agent("one", store=tmp_path / "one.db"), Agent("other", store=tmp_path / "one.db")

    @one.step
    def work(fails: bool) -> None:
        other.state.incr("n", "k")
        if fails:
            raise ValueError

    with one.run("r"):
        with pytest.raises(ValueError):  # noqa: PT011
            work(True)
        assert other.state.get("n", "k") is None
        work(False)
    assert other.state.get("n", "k") == 1
    one.close()
    other.close()


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (90, 90),
        (0.5, 0.5),
        ("90s", 90),
        ("250ms", 0.25),
        ("5m", 300),
        ("1.5h", 5400),
        ("7 d", 604_800),
        ("2w", 1_209_600),
    ],
)
def test_lengths_of_time(given: Any, seconds: float) -> None:
    assert seconds_of(given, "ttl") == seconds
    assert seconds_of(timedelta(seconds=seconds), "ttl") == seconds


def test_only_plain_appends_are_joined(tmp_path: Any) -> None:
    """What a `AppendAgentWrites` appends is not known before its transaction: joined, it would append nothing."""
    agent = Agent("a", store=tmp_path / "perdure.db")
    agent.state.set("n", "k", 0)
    store, head = agent._engine.store, agent._engine.own_stream()
    record = records.Landed(())
    plain = [Append(Site.WRITE, head, [record], store.clock) for _ in range(2)]
    late = AppendAgentWrites(
        Site.WRITE, head, [record], store, [SetKey(state.place(agent._engine, "n", "k"), b"\x00\x01")]
    )
    assert plain[0].join([plain[1]]) is not None
    assert plain[0].join([late]) is None
    assert late.join([plain[0]]) is None
    agent.close()
