"""What has a time to live ends in time, whatever is done to it."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from perdure import Agent, AsyncAgent
from perdure.data import state
from perdure.journal.agent_writes import SetKey
from perdure.kernel.protocol import drive_sync
from perdure.values.clock import SYSTEM_CLOCK

from .kit import WallClock, agent_at, check_views

SOON = 600.0
"""Seconds, which pass when the test says so."""


def expires(agent: Agent, key: str) -> int:
    """When a key of namespace "a" ends, in milliseconds; 0 is never."""
    [(*_, when)] = agent._engine.store.read("get_state_value", (agent._engine.stream, "a", key))
    return int(when)


def test_incr_and_update_leave_a_key_its_time(store_url: str, clock: WallClock) -> None:
    agent = agent_at(store_url)
    agent.state.set("a", "n", 1, ttl="1h")
    agent.state.set("a", "d", {}, ttl="1h")
    ends = expires(agent, "n"), expires(agent, "d")
    assert agent.state.incr("a", "n") == 2
    agent.state.update("a", "d", lambda value: value | {"b": 2})
    with agent.state.transaction() as t:
        t.incr("a", "n")
        t.update("a", "d", lambda value: value | {"c": 3})
    with agent.run("r") as run:
        run.step(lambda: agent.state.incr("a", "n"), name="s")
    assert (expires(agent, "n"), expires(agent, "d")) == ends
    agent.state.set("a", "n", 1, ttl=SOON)
    agent.state.incr("a", "n")
    clock.advance(SOON)
    assert agent.state.get("a", "n") is None
    assert agent.state.incr("a", "n") == 1, "what has run out is begun anew"
    assert expires(agent, "n") == 0
    agent.state.set("a", "d", 0)
    assert expires(agent, "d") == 0, "set says all of it"
    check_views(store_url)


def test_incr_and_update_take_another_time(store_url: str, clock: WallClock) -> None:
    agent = agent_at(store_url)
    assert agent.state.incr("a", "n", ttl="1m") == 1
    first = expires(agent, "n")
    clock.advance(1)
    assert agent.state.incr("a", "n", 2, ttl="1m") == 3
    assert expires(agent, "n") > first > 0, "ttl= counts from each call, as it does for set"
    agent.state.update("a", "n", lambda value: value, ttl="2h")
    with agent.state.transaction() as t:
        t.incr("a", "x", ttl="1h")
        t.update("a", "y", lambda value: 1, ttl="1h")
    now = SYSTEM_CLOCK.wall_ms()
    assert expires(agent, "n") > now + 7_000_000
    assert min(expires(agent, "x"), expires(agent, "y")) > now + 3_000_000
    check_views(store_url)


async def test_the_asynchronous_side_takes_it_too(store_url: str, clock: WallClock) -> None:
    agent = AsyncAgent("async", store=store_url)
    assert await agent.state.incr("a", "n", ttl=SOON) == 1
    async with agent.state.transaction() as t:
        await t.incr("a", "n")
        await t.update("a", "m", lambda value: 1, ttl=SOON)
    clock.advance(SOON)
    assert await agent.state.items("a") == []
    await agent.close()


def test_within_a_step_time_goes_on(store_url: str, clock: WallClock) -> None:
    agent = agent_at(store_url)
    seen: list[Any] = []

    def body() -> None:
        agent.state.set("a", "n", 1, ttl=SOON)
        agent.state.set("a", "m", 1, ttl=SOON)
        seen.append(agent.state.incr("a", "n"))
        agent.state.incr("a", "m")
        clock.advance(SOON)
        seen.extend([agent.state.get("a", "n"), agent.state.items("a"), agent.state.incr("a", "n", 10)])

    with agent.run("r") as run:
        run.step(body, name="s")
    assert seen == [2, None, [], 10]
    assert agent.state.items("a") == [("n", 10)], "m had run out before it landed, and incr had left it its time"
    check_views(store_url)


def test_a_revert_brings_nothing_back_that_has_run_out(store_url: str, clock: WallClock) -> None:
    agent = agent_at(store_url)
    agent.state.set("a", "short", "secret", ttl=SOON)
    agent.state.set("a", "token", "secret", ttl=SOON)
    clock.advance(1)
    there, between = agent.state.revision("a"), clock.now()
    clock.advance(1)
    agent.state.set("a", "short", "replaced")
    agent.state.set("a", "x", 1)
    clock.advance(SOON)
    assert agent.state.revert(there, ns="a") == 2
    assert agent.state.items("a") == [], "what has run out is gone, and what came later too"
    agent.state.set("a", "short", "again")
    assert agent.state.revert(between, ns="a") == 1
    assert agent.state.items("a") == []

    agent.state.set("a", "short", "again")
    with agent.run("r") as run:
        run.step(lambda: agent.state.revert(there, ns="a"), name="s")
    assert agent.state.items("a") == []
    check_views(store_url)


def test_a_revert_gives_a_value_the_time_that_it_had(store_url: str, clock: WallClock) -> None:
    agent = agent_at(store_url)
    agent.state.set("a", "changed", "v1", ttl="1h")
    agent.state.set("a", "kept", "same", ttl="1h")
    agent.state.set("a", "longer", "same", ttl="1h")
    agent.state.set("a", "ever", "same")
    there = agent.state.revision("a")
    ends = {key: expires(agent, key) for key in ("changed", "kept", "longer", "ever")}
    agent.state.set("a", "changed", "v2")
    agent.state.set("a", "longer", "same")
    agent.state.set("a", "ever", "same", ttl="1h")
    assert agent.state.revert(there, ns="a") == 3, "also those whose value is the same, and their time is not"
    assert {key: expires(agent, key) for key in ends} == ends
    assert dict(agent.state.items("a")) == {"changed": "v1", "ever": "same", "kept": "same", "longer": "same"}
    assert agent.state.revert(there, ns="a") == 0
    agent.state.set("a", "short", 1, ttl=SOON)
    there = agent.state.revision("a")
    agent.state.set("a", "short", 2)
    agent.state.revert(there, ns="a")
    clock.advance(SOON)
    assert agent.state.get("a", "short") is None
    check_views(store_url)


def test_the_past_by_number_shows_nothing_that_has_run_out(store_url: str, clock: WallClock) -> None:
    agent = agent_at(store_url)
    agent.state.set("a", "token", "secret", ttl=SOON)
    agent.state.set("a", "long", "kept", ttl="1h")
    clock.advance(1)
    there, between = agent.state.revision("a"), clock.now()
    clock.advance(1)
    agent.state.set("a", "x", 1)
    assert agent.state.at(there).get("a", "token") == "secret"
    clock.advance(SOON)
    assert agent.state.at(there).get("a", "token") is None
    assert agent.state.at(there).items("a") == [("long", "kept")]
    assert agent.state.at(there + 1).items("a") == [("long", "kept"), ("x", 1)]
    assert dict(agent.state.at(between).items("a")) == {"long": "kept", "token": "secret"}, "at that time it was there"
    assert agent.state.at(between).get("a", "token") == "secret"
    assert agent.state.at(datetime(2999, 1, 1, tzinfo=UTC)).items("a") == agent.state.items("a")
    assert [version.value for version in agent.state.history("a", "token")] == ["secret"]


@pytest.mark.parametrize("ended", [False, True])
def test_what_was_kept_longer_is_the_same_value(store_url: str, clock: WallClock, ended: bool) -> None:
    """A key that lives on because it is read: its first time is over, but not its last."""
    agent = agent_at(store_url)
    agent.state.set("a", "k", "read", ttl=SOON)
    at = (agent._engine.stream, "a", "k")
    [(packed, *_)] = agent._engine.store.read("get_state_value", at)
    now = SYSTEM_CLOCK.wall_ms()
    _land(agent, SetKey(at, packed, expires=now + int(SOON * 1000), lasts=int(SOON * 1000)))
    there = agent.state.revision("a")
    _land(agent, SetKey(at, expires=now + (1_200_000 if ended else 3_600_000), touches=2))
    agent.state.set("a", "other", 1)
    clock.advance(2 * SOON if ended else SOON)
    expected = [] if ended else [("k", "read")]
    assert agent.state.at(there).items("a") == expected
    assert agent.state.at(there).get("a", "k") == (None if ended else "read")
    assert agent.state.revert(there, ns="a") == 1
    assert agent.state.items("a") == expected
    check_views(store_url)


def _land(agent: Agent, ask: SetKey) -> None:
    drive_sync(agent._engine.store, state.change(agent._engine, [ask]))


def test_a_watcher_hears_of_an_expired_key_once(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = agent_at(store_url)
    agent.state.set("a", "k", "short", ttl=0.3)
    heard: list[tuple[int, Any, bool]] = []
    for change in agent.state.watch("a", "k", timeout=30):
        heard.append((change.version, change.value, change.deleted))
        if change.version == 1:
            monkeypatch.setattr("perdure.data.state.SWEEP_WRITES", 1)
            agent.state.set("a", "other", 1)  # which sweeps it away: no news
            assert [item.deleted for item in agent.state.history("a", "k")] == [False, True]
            threading.Timer(0.3, agent.state.set, ("a", "k", "again")).start()
        else:
            break
    assert heard == [(1, None, True), (3, "again", False)]
