"""`agent.events`: noted once, with the work around it; read, reduced and followed in one order by everybody."""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure import Agent, AsyncAgent, Event, NotDone, kinds
from perdure.errors import NotStorable, RunNotFound, ValueTooLarge
from perdure.journal import rebuild
from perdure.journal.object_gc import collect
from perdure.platform.failpoints import CommitMoment, Site
from perdure.values.limits import NUMBER_MAX

from .kit import agent_at, check_views, kill_at, run_in_child

LARGE = list(range(20_000))


def payloads(agent: Agent, *args: Any, **options: Any) -> list[Any]:
    return [event.payload for event in agent.events.read(*args, **options)]


def test_what_was_noted_is_there_for_everybody(store_url: str) -> None:
    agent = agent_at(store_url)
    assert payloads(agent) == []
    assert agent._engine.store.read("all_agents") == [], "reading makes no agent known"
    agent.events.append("SEEN", {"page": (1, 2), "large": LARGE})
    agent.events.append("SEEN")
    agent_at(store_url, "other").events.append("OTHER", 1)

    def elsewhere() -> None:
        first, second = agent_at(store_url).events.read()
        assert (first.kind, first.payload, first.run) == ("SEEN", {"page": (1, 2), "large": LARGE}, None)
        assert (second.payload, second.extra, second.version) == (None, {}, 0)
        assert abs(second.at.timestamp() - time.time()) < 60
        assert first.position < second.position
        agent_at(store_url).events.append("SEEN", "elsewhere")

    assert run_in_child(elsewhere) == 0
    assert payloads(agent)[1:] == [None, "elsewhere"]
    check_views(store_url)


def test_a_part_of_them_is_read(store_url: str) -> None:
    agent = agent_at(store_url)
    for number in range(4):
        agent.events.append("EVEN" if number % 2 == 0 else "ODD", number)
    with agent.run("r") as run:
        run.event("EVEN", 4)
    events = list(agent.events.read())
    assert payloads(agent, "EVEN") == payloads(agent, kind=["EVEN"]) == [0, 2, 4]
    assert payloads(agent, ["ODD", "EVEN"], limit=3) == [0, 1, 2]
    assert payloads(agent, run="r") == payloads(agent, run="r", kind="EVEN") == [4]
    assert payloads(agent, run="r", kind="ODD") == payloads(agent, "NONE") == payloads(agent, limit=0) == []
    assert payloads(agent, last=2) == [3, 4]
    assert payloads(agent, "EVEN", last=2) == payloads(agent, ["EVEN", "OTHER"], last=2) == [2, 4]
    assert payloads(agent, since=events[1]) == payloads(agent, since=events[1].position) == [2, 3, 4]
    assert payloads(agent, until=events[1]) == payloads(agent, since="", until=events[1].position) == [0, 1]
    assert payloads(agent, "EVEN", since=events[1], until=events[3]) == [2]
    assert payloads(agent, since=events[0], last=9, until=events[2]) == [1, 2]


def test_a_part_is_read_by_time(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.events.append("A", 1)
    time.sleep(0.005)
    between = datetime.now(UTC)
    time.sleep(0.005)
    agent.events.append("A", 2)
    assert payloads(agent, since=between) == [2]
    assert payloads(agent, until=between) == [1]
    assert payloads(agent, since=datetime.now(UTC), until=between) == []
    assert payloads(agent, since=datetime(1999, 1, 1, tzinfo=UTC), until=datetime.now(UTC)) == [1, 2]


def test_what_cannot_be_asked_for_is_refused_at_the_call(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.events.append("A", 1)
    with agent.run("trip-42"):
        pass
    with pytest.raises(RunNotFound, match="'trip-42'"):
        payloads(agent, run="trip-4")
    with pytest.raises(ValueError, match=r"\.position"):
        agent.events.read(since="yesterday")
    with pytest.raises(TypeError, match="since="):
        agent.events.read(since=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="limit"):
        agent.events.read(limit=-1)
    with pytest.raises(ValueError, match="last"):
        agent.events.read(limit=1, last=1)
    with pytest.raises(NotStorable, match=r"event A\.b"):
        agent.events.append("A", {"b": object()})
    with pytest.raises(NotStorable):
        agent.events.append("A\0")
    with pytest.raises(ValueTooLarge):
        agent.events.append("A" * 10_000)
    with pytest.raises(TypeError, match=r"events\.kind"):
        agent.events.append(17)
    with pytest.raises(ValueError, match="must not be empty"):
        agent.events.append("")
    assert payloads(agent) == [1]


def test_many_are_all_or_none_and_are_read_in_pages(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.events.append_many([])
    agent.events.append_many([("N", number) for number in range(1234)] + [kinds.Observation("done")])
    with pytest.raises(NotStorable):
        agent.events.append_many([("N", 1), ("N", object())])
    assert payloads(agent)[:-1] == payloads(agent, "N") == list(range(1234))
    reader = agent.events.read("N")
    assert [next(reader).payload for _ in range(60)] == list(range(60))
    assert payloads(agent, "N", since=next(reader), limit=600) == list(range(61, 661))
    assert payloads(agent, "observation", last=700) == [kinds.Observation("done")]
    check_views(store_url)


# -- with the work around it ------------------------------------------------------------------------------------------


def program(store_url: str, world: list[int] | None = None) -> None:
    """Events in the open, in a step, an effect and items; in the order of the program."""
    agent, other = agent_at(store_url), agent_at(store_url, "other")

    @agent.step
    def think() -> None:
        run.event("STEP", 1)
        agent.events.append("STEP", 2)
        other.events.append("STEP", "other's")
        run.event("STEP", 3)

    @agent.effect(check=lambda: NotDone)
    def act() -> None:
        agent.events.append("EFFECT", LARGE)

    @agent.step
    def fails() -> None:
        agent.events.append("NEVER")
        raise ValueError

    with agent.run("r") as run:
        run.event("OPEN", 0)
        think()
        act()
        for item in run.each(["a", "b"]):
            agent.events.append("ITEM", item)
            run.event("ITEM", item.upper())
        try:
            fails()
        except ValueError:
            run.event("OPEN", 1)


EXPECTED: list[tuple[str, Any]] = [("OPEN", 0), *(("STEP", number) for number in (1, 2, 3)), ("EFFECT", LARGE)]
EXPECTED += [("ITEM", "a"), ("ITEM", "A"), ("ITEM", "b"), ("ITEM", "B"), ("OPEN", 1)]


def test_it_lands_with_the_work_once_wherever_it_is_killed(store_url: str) -> None:
    agent = agent_at(store_url)
    sites = (Site.WRITE, Site.STEP_DONE, Site.EFFECT_OUTCOME, Site.ITEM_DONE)
    for site, moment in [(site, moment) for site in sites for moment in (CommitMoment.WRITTEN, CommitMoment.AFTER)]:
        kill_at(lambda: program(store_url), site, moment)
        found = [(event.kind, event.payload) for event in agent.events.read()]
        assert found == EXPECTED[: len(found)], f"killed at {site}, {moment}"
    program(store_url)
    program(store_url)
    assert [(event.kind, event.payload) for event in agent.events.read(run="r")] == EXPECTED
    assert [event.payload for event in agent_at(store_url, "other").events.read()] == ["other's"]
    check_views(store_url)


def test_killed_around_an_append_it_is_there_or_not(store_url: str) -> None:
    agent, expected = agent_at(store_url), 0
    agent.events.append("A")
    for moment in CommitMoment:
        kill_at(lambda: agent_at(store_url).events.append_many([("B", LARGE)] * 2), Site.EVENT, moment)
        expected += 2 * (moment is CommitMoment.AFTER)
        assert payloads(agent, "B") == [LARGE] * expected
    check_views(store_url)


def test_in_the_open_of_a_run_it_is_live(store_url: str) -> None:
    agent = agent_at(store_url)
    for _ in range(2):
        with agent.run("r"):
            agent.events.append("STARTED", os.getpid())
    assert payloads(agent, run="r") == [os.getpid()] * 2
    assert payloads(agent_at(store_url, "other")) == []


def test_numbers_and_times_at_the_ends_are_understood_or_refused(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.events.append_many([("N", number) for number in range(3)])
    for wrong in ({"last": 10**30}, {"limit": 10**30}, {"last": -1}):
        with pytest.raises(ValueError, match="must be an int from 0"):
            agent.events.read(**wrong)
    for wide in ({"last": NUMBER_MAX}, {"limit": NUMBER_MAX}, {"since": datetime.min}, {"until": datetime.max}):
        assert payloads(agent, **wide) == [0, 1, 2]
    assert payloads(agent, until=datetime(1, 1, 1)) == payloads(agent, since=datetime.max) == []


# -- reducing --------------------------------------------------------------------------------------------------------


def add_event(state: dict[str, int], event: Event) -> dict[str, int]:
    state[event.kind] = state.get(event.kind, 0) + event.payload
    return state


def make_recorder(calls: list[Any]) -> Any:
    def remembering(state: list[Any], event: Event) -> list[Any]:
        calls.append(event.payload)
        return [*state, event.payload]

    return remembering


def test_they_are_compacted_in_order(store_url: str) -> None:
    agent, initial = agent_at(store_url), {"A": 5}
    assert agent.events.replay(add_event, initial, snapshot="none yet", version=1) == initial
    agent.events.append_many([("A" if number % 2 else "B", number) for number in range(10)])
    events = list(agent.events.read())
    assert agent.events.replay(add_event, initial) == {"A": 30, "B": 20}
    assert initial == {"A": 5}, "what was given is not touched"
    assert agent.events.replay(add_event, {}, until=events[3]) == {"B": 2, "A": 4}
    assert agent.events.replay(add_event, {}, kind="B") == {"B": 20}
    for wrong in (0, True):
        with pytest.raises(ValueError, match="every"):
            agent.events.replay(add_event, {}, every=wrong)


def test_what_was_compacted_is_not_compacted_again(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.events.append_many([("N", number) for number in range(25)])
    calls: list[Any] = []

    def reduced(**more: Any) -> Any:
        return agent.events.replay(make_recorder(calls), [], snapshot="all", version=1, every=10, **more)

    assert reduced() == list(range(25))
    calls.clear()
    agent.events.append("N", 25)
    store: Any = agent._engine.store
    collect(store)
    assert reduced() == list(range(26))
    assert calls == list(range(20, 26)), "it begins where the last kept result ends"
    calls.clear()
    events = list(agent.events.read())
    assert reduced(until=events[14]) == list(range(15))
    assert calls == list(range(10, 15))
    assert reduced(until=events[4]) == list(range(5)), "before all that was kept"
    assert reduced(kind="M") == []
    calls.clear()
    rebuild.rebuild(store)
    assert reduced() == list(range(26))
    assert calls == list(range(26)), "numbers have changed: nothing that is bound to them is used"


def test_another_version_of_a_reducer_starts_again(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.events.append_many([("N", number) for number in range(5)])

    def reduced(by: int, version: int | str, initial: int = 0) -> int:
        add = lambda total, event: total + by  # noqa: E731
        return int(agent.events.replay(add, initial, snapshot="count", version=version, every=2))

    assert [reduced(1, 1), reduced(1, 1), reduced(2, 2), reduced(3, "2")] == [5, 5, 10, 15]
    assert reduced(9, 1) == 4 + 9, "the same version starts from the snapshot after four events"
    assert reduced(1, 1, initial=100) == 105
    with pytest.raises(NotStorable, match="snapshot="):
        agent.events.replay(lambda state, event: object(), 0, snapshot="count", version=1, every=1)
    with pytest.raises(TypeError, match="version="):
        agent.events.replay(add_event, {}, snapshot="count", version=True)
    for moment in CommitMoment:

        def replaying(name: str = f"killed {moment}") -> dict[str, int]:
            found: dict[str, int] = agent_at(store_url).events.replay(add_event, {}, snapshot=name, version=1, every=1)
            return found

        kill_at(replaying, Site.REPLAY, moment)
        assert replaying() == {"N": 10}
    check_views(store_url)


def test_without_a_version_nothing_is_saved(store_url: str) -> None:
    agent, calls = agent_at(store_url), list[Any]()
    agent.events.append_many([("N", number) for number in range(5)])
    for _ in range(2):
        assert agent.events.replay(make_recorder(calls), [], snapshot="all", every=2) == list(range(5))
    assert calls == [*range(5), *range(5)]


# -- following --------------------------------------------------------------------------------------------------------


def test_events_are_followed_across_processes_from_the_last_position(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.events.append("OLD")
    new = agent.events.follow(timeout=0.1)
    whole = agent.events.follow(kind="N", since="", timeout=60)

    def writer() -> None:
        other = agent_at(store_url)
        for number in range(10):
            other.events.append("N", number)
            other.events.append("M")

    assert [event.payload for event in agent.events.follow("N", since="", timeout=0)] == []
    thread = threading.Thread(target=lambda: run_in_child(writer))
    thread.start()
    first = [next(whole) for _ in range(4)]
    assert [event.payload for event in first] == [0, 1, 2, 3]
    thread.join(60)
    again = agent.events.follow(kind="N", since=first[-1].position, timeout=0)
    assert [event.payload for event in again] == list(range(4, 10))
    assert [event.kind for event in new] == ["N", "M"] * 10, "nothing from before"
    stopped = agent.events.follow(stop=lambda: True)
    assert list(stopped) == []
    assert list(agent.events.follow(run="later", timeout=0)) == [], "it may be started later"


def test_nothing_is_missed_or_given_twice_while_many_write(store_url: str) -> None:
    agent_at(store_url).events.append("START")
    each, writers = 25, 4

    def writer() -> None:
        agent = agent_at(store_url)
        for number in range(each):
            agent.events.append("N", (os.getpid(), number))

    threads = [threading.Thread(target=lambda: run_in_child(writer)) for _ in range(writers)]
    for thread in threads:
        thread.start()
    agent, found = agent_at(store_url), list[Event]()
    for event in agent.events.follow("N", since="", timeout=30):
        found.append(event)
        if len(found) == each * writers:
            break
    for thread in threads:
        thread.join(60)
    assert [event.position for event in found] == sorted({event.position for event in found})
    assert [event.position for event in found] == [event.position for event in agent.events.read("N")]
    for writer_id in {event.payload[0] for event in found}:
        assert [event.payload[1] for event in found if event.payload[0] == writer_id] == list(range(each))
    check_views(store_url)


def test_a_position_outlives_a_rebuild(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.events.append_many([("MANY", number) for number in range(3000)])  # their numbers are ahead of the clock
    agent.events.append_many([("N", number) for number in range(6)])
    with agent.run("r") as run:
        run.event("N", 6)
    events, follower = list(agent.events.read("N")), agent.events.follow(timeout=0)
    rebuild.rebuild(agent._engine.store)
    agent.events.append("N", 7)
    for number, event in enumerate(events):
        assert payloads(agent, "N", since=event) == list(range(number + 1, 8))
        assert payloads(agent, "N", until=event) == list(range(number + 1))
    assert [event.payload for event in follower] == [7]


# -- both sides, and everything at once -------------------------------------------------------------------------------


async def test_the_asynchronous_side_is_the_same(store_url: str) -> None:
    agent = AsyncAgent("async", store=store_url)
    await agent.events.append(kinds.Plan("go", ["a"]))
    async with agent.run("r") as run:
        await run.event("NOTED", 1)
        await agent.events.append_many([("NOTED", 2), ("NOTED", 3)])
    assert [event.payload async for event in agent.events.read("NOTED", run="r")] == [1, 2, 3]
    assert [event.kind async for event in agent.events.follow(since="", timeout=0)] == ["plan", *["NOTED"] * 3]
    assert (
        await agent.events.replay(lambda n, event: n + event.payload, 0, kind="NOTED", snapshot="n", version=1, every=2)
        == 6
    )
    async for event in agent.events.follow(kind=kinds.Plan, since="", timeout=30):
        assert event.payload == kinds.Plan("go", ["a"])
        break
    await agent.close()


moves = st.lists(
    st.tuples(st.sampled_from(["open", "many", "run", "step", "failed step", "item"]), st.sampled_from("ABC")),
    max_size=12,
)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(moves=moves, cut=st.integers(0, 12))
def test_events_are_what_a_list_would_be(store_url: str, moves: list[tuple[str, str]], cut: int) -> None:
    name = f"model {time.perf_counter_ns()}"
    agent, model = agent_at(store_url, name), list[tuple[str, int, bool]]()

    @agent.step
    def work(kind: str, number: int, *, fails: bool = False) -> None:
        agent.events.append(kind, number)
        if fails:
            raise ValueError

    with agent.run(name) as run:
        for number, (move, kind) in enumerate(moves):
            if move == "open":
                agent.events.append(kind, number)
            elif move == "many":
                agent.events.append_many([(kind, number)] * 3)
            elif move == "run":
                run.event(kind, number)
            elif move == "item":
                for _ in run.each([1]):
                    agent.events.append(kind, number)
            else:
                try:
                    work(kind, number, fails=move != "step")
                except ValueError:
                    continue
            model += [(kind, number, True)] * (3 if move == "many" else 1)
    found = list(agent.events.read())
    assert [(event.kind, event.payload, event.run == name) for event in found] == model
    for kind in "ABC":
        expected = [number for of, number, _ in model if of == kind]
        assert payloads(agent, kind) == payloads(agent, kind, run=name) == expected
        assert payloads(agent, kind, last=2) == expected[-2:]
    if found:
        at = found[min(cut, len(found) - 1)]
        head, tail = payloads(agent, until=at), payloads(agent, since=at)
        assert head + tail == [number for _, number, _ in model]
        assert head[-1] == at.payload
