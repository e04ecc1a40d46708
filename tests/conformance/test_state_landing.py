"""`agent.state` inside of steps, effects and items: a change lands with what is around it, once, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import NotDone, records
from perdure.errors import VersionConflict
from perdure.journal import objects
from perdure.platform.failpoints import CommitMoment, Site

from .kit import World, agent_at, check_views, kill_at, run_in_child
from .test_state import LARGE


def test_it_lands_with_the_step_or_not_at_all(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.state.set("a", "count", 1)

    def others_see_nothing() -> None:
        assert agent_at(store_url).state.items("a") == [("count", 1)]

    @agent.step
    def work(fails: bool) -> int:
        agent.state.incr("a", "count")
        agent.state.set("a", "large", LARGE)
        agent.state.update("a", "made", lambda seen: LARGE)
        assert agent.state.get("a", "count") == 2
        assert agent.state.get("a", "large") == agent.state.get("a", "made") == LARGE
        assert dict(agent.state.items("a")) == {"count": 2, "large": LARGE, "made": LARGE}
        assert run_in_child(others_see_nothing) == 0
        if fails:
            raise ValueError
        return agent.state.version("a", "count")

    with pytest.raises(ValueError), agent.run("one"):  # noqa: PT011
        work(True)
    assert agent.state.items("a") == [("count", 1)]
    with agent.run("two"):
        assert work(False) == 2
    assert agent.state.get("a", "count") == 2
    with agent.run("two"):
        work(False)
    assert agent.state.get("a", "count") == 2, "a finished step writes nothing again"
    check_views(store_url)


def test_a_kill_around_a_step_never_counts_twice(store_url: str) -> None:
    def program() -> None:
        agent = agent_at(store_url)

        @agent.step
        def work(number: int) -> int:
            agent.state.incr("a", "count")
            agent.state.update("a", "seen", lambda seen: [*(seen or []), number])
            return number

        with agent.run("r"):
            for number in range(3):
                work(number)

    for moment in CommitMoment:
        kill_at(program, Site.STEP_DONE, moment)
    program()
    agent = agent_at(store_url)
    assert agent.state.get("a", "count") == 3
    assert agent.state.get("a", "seen") == [0, 1, 2]
    check_views(store_url)


def test_state_lands_with_the_item(store_url: str) -> None:
    def program() -> None:
        agent = agent_at(store_url)
        with agent.run("review") as run:
            for file in run.each(range(4)):
                agent.state.incr("review", "files")
                assert agent.state.get("review", "files") == file + 1

    kill_at(program, Site.ITEM_DONE, CommitMoment.WRITTEN, nth=2)
    assert agent_at(store_url).state.get("review", "files") == 1
    kill_at(program, Site.ITEM_DONE, CommitMoment.AFTER, nth=2)
    assert agent_at(store_url).state.get("review", "files") == 3
    program()
    assert agent_at(store_url).state.get("review", "files") == 4


def test_state_lands_with_the_outcome_of_an_effect(store_url: str, world: World) -> None:
    agent = agent_at(store_url)

    @agent.effect
    def post(text: str, fails: bool) -> str:
        agent.state.incr("a", "posts")
        if fails:
            raise NotDone
        world.do(text)
        return text

    with agent.run("r"):
        with pytest.raises(NotDone):
            post("one", True)
        assert agent.state.get("a", "posts") is None
        post("two", False)
    assert agent.state.get("a", "posts") == 1


def test_a_step_that_loses_a_race_is_told_and_its_result_is_kept(store_url: str) -> None:
    agent, bodies = agent_at(store_url), []

    @agent.step
    def think() -> list[int]:
        bodies.append(1)
        agent.state.set("a", "k", "mine", if_version=0)
        agent.state.set("a", "other", 1)
        if len(bodies) == 1:
            assert run_in_child(lambda: agent_at(store_url).state.set("a", "k", "theirs")) == 0
        return LARGE

    with pytest.raises(VersionConflict) as lost, agent.run("r"):
        think()
    assert (lost.value.yours, lost.value.theirs) == ("mine", "theirs")
    assert agent.state.get("a", "other") is None
    [failed] = [
        event.record for event in agent.runs.get("r").events if isinstance(event.record, records.StepFailedEntry)
    ]
    assert objects.unpack(agent._engine.store, failed.result) == LARGE
    agent.state.delete("a", "k")
    with agent.run("r"):
        assert think() == LARGE
    assert agent.state.get("a", "k") == "mine"
    check_views(store_url)


def test_what_a_step_has_done_itself_is_no_race(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.state.set("a", "k", "old")

    @agent.step
    def work() -> list[Any]:
        first = agent.state.set("a", "k", "one")
        second = agent.state.set("a", "k", "two", if_version=first)
        with agent.state.transaction() as t:
            t.set("a", "k", t.get("a", "k") + " three")
            t.set("a", "new", t.get("a", "new", 0) + 1)
        gone = agent.state.delete("a", "new", if_version=1)
        again = agent.state.set("a", "new", "again", if_version=0)
        agent.state.set("a", "large", LARGE)
        agent.state.update("a", "large", lambda seen: [*seen, "more"])
        agent.state.update("a", "large", lambda seen: [*seen, "and more"])
        return [first, second, agent.state.version("a", "k"), gone, again]

    with agent.run("r"):
        assert work() == [2, 2, 2, True, 1]
    large = [*LARGE, "more", "and more"]
    assert agent.state.items("a") == [("k", "two three"), ("large", large), ("new", "again")]
    assert [version.version for version in agent.state.history("a", "k")] == [1, 2]
    with agent.run("s"), pytest.raises(VersionConflict):
        run_step_that_lies(agent)
    check_views(store_url)


def run_step_that_lies(agent: Any) -> None:
    @agent.step
    def wrong() -> None:
        agent.state.set("a", "k", "one")
        agent.state.set("a", "k", "two", if_version=9)

    wrong()


def test_an_effect_that_loses_a_race_has_happened_all_the_same(store_url: str, world: World) -> None:
    agent = agent_at(store_url)

    @agent.effect
    def post() -> str:
        world.do("posted")
        agent.state.set("a", "k", "mine", if_version=0)
        agent.state.set("a", "other", 1)
        assert run_in_child(lambda: agent_at(store_url).state.set("a", "k", "theirs")) == 0
        return "receipt"

    with pytest.raises(VersionConflict), agent.run("r"):
        post()
    with agent.run("r", wait=0):
        assert post() == "receipt"
    assert world.read_all() == ["posted"]
    assert (agent.state.get("a", "k"), agent.state.get("a", "other")) == ("theirs", None)
    check_views(store_url)


def test_in_the_open_it_applies_every_time(store_url: str) -> None:
    agent = agent_at(store_url)
    for _ in range(3):
        with agent.run("r"):
            agent.state.incr("a", "starts")
    assert agent.state.get("a", "starts") == 3


def test_killed_around_a_write_in_the_open_it_is_there_or_not(store_url: str) -> None:
    def program() -> None:
        agent_at(store_url).state.incr("a", "count")

    expected = 0
    for moment in CommitMoment:
        kill_at(program, Site.STATE, moment)
        expected += moment is CommitMoment.AFTER
        assert (agent_at(store_url).state.get("a", "count") or 0) == expected
    check_views(store_url)
