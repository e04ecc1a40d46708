"""Lengths of time: what is none, or no time could be made of, is refused where it comes in."""

from __future__ import annotations

import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent
from perdure.values.durations import seconds_of


def test_they_are_read() -> None:
    given = [2, 0.5, timedelta(minutes=1), "90s", "5 m", "365000d"]
    assert [seconds_of(value, "ttl") for value in given] == [2.0, 0.5, 60.0, 90.0, 300.0, 31_536_000_000.0]
    assert {type(seconds_of(value, "ttl")) for value in given} == {float}


@pytest.mark.parametrize(
    "wrong", [0, -1, math.inf, math.nan, 1e300, 10**400, "0s", "9999999999999d", "9" * 400 + "d", timedelta.max]
)
def test_what_is_none_or_has_no_end_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="ttl=.* at most 1,000 years"):
        seconds_of(wrong, "ttl")


def test_what_is_too_long_is_refused_everywhere(tmp_path: Path) -> None:
    agent = Agent("a", store=f"sqlite:///{tmp_path / 'a.db'}")
    with pytest.raises(ValueError, match="ttl=1e"):
        agent.state.set("n", "k", 1, ttl=1e300)
    for age in ({"compact_before": 1e18}, {"events_before": "9999999999999d"}):
        with pytest.raises(ValueError, match="1,000 years"):
            agent.gc(**age)
    agent.state.set("n", "k", 1, ttl="365000d")
    agent.gc(compact_before="365000d")
    assert agent.state.get("n", "k") == 1
