"""Old events go into archives when somebody asks for it, and nothing that can be asked is answered by half of them."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure import Agent, AsyncAgent
from perdure.errors import EventsCompacted
from perdure.journal import archive, rebuild
from perdure.platform.failpoints import CommitMoment, Site

from .kit import agent_at, check_views, kill_at
from .test_checkpoints import noise

AT_ONCE = 1e-6


def count_event(seen: dict[str, int], event: Any) -> dict[str, int]:
    return {**seen, event.kind: seen.get(event.kind, 0) + event.payload["n"]}


def count(agent: Agent, **more: Any) -> Any:
    return agent.events.replay(count_event, {}, **{"snapshot": "count", "version": 1, "every": 1, **more})


def compact_agent(agent: Agent, folder: Path, age: Any = AT_ONCE) -> Any:
    time.sleep(0.005)
    return agent.gc(events_before=age, archive=folder)


def note(agent: Agent, numbers: Any, kind: str = "N") -> None:
    for number in numbers:
        agent.events.append(kind, {"n": number, "text": noise(number, 200)})


def numbers(agent: Agent, **more: Any) -> list[int]:
    return [event.payload["n"] for event in agent.events.read(**more)]


def test_a_replay_comes_to_the_same_when_its_events_are_gone(store_url: str, tmp_path: Path) -> None:
    agent = agent_at(store_url)
    note(agent, range(20))
    agent.events.append_many([("M", {"n": number}) for number in range(5)])
    with agent.run("old") as run:
        for number in range(20, 30):
            run.event("N", {"n": number, "text": noise(number, 200)})
    before = count(agent)
    assert before == {"N": sum(range(30)), "M": 10}
    kept = agent.gc(compact_before=AT_ONCE, archive=tmp_path)
    assert numbers(agent, kind="N") == list(range(30)), "events stay, unless somebody asks for more"
    time.sleep(0.005)
    told = agent.gc(dry_run=True, events_before=AT_ONCE)
    report = compact_agent(agent, tmp_path)
    assert (told.events.count, report.notes) == (report.events.count, ())
    assert report.events.count + kept.events.count >= 28
    assert numbers(agent) == [*range(5), 29], "the newest of each kind, with what is in the same entry"
    assert compact_agent(agent, tmp_path).events.count == 0, "done again, it does nothing"
    for _ in range(2):
        assert count(agent) == before
        check_views(store_url)
        rebuild.rebuild(agent._engine.store)
    note(agent, [100, 101])
    assert count(agent) == {"N": before["N"] + 201, "M": 10}
    assert compact_agent(agent, tmp_path).events.count >= 2
    rebuild.rebuild(agent._engine.store)
    assert count(agent) == {"N": before["N"] + 201, "M": 10}
    assert all(archive.check(path).entries for path in tmp_path.glob("*.zst"))
    check_views(store_url)


def test_what_a_replay_has_not_passed_stays(store_url: str, tmp_path: Path) -> None:
    agent = agent_at(store_url)
    note(agent, range(20))
    assert count(agent, every=100) == {"N": sum(range(20))}
    note(agent, range(20, 40))
    report = compact_agent(agent, tmp_path)
    assert numbers(agent) == list(range(19, 40))
    assert "a replay has no snapshot" in report.notes[0]
    assert count(agent, every=100) == {"N": sum(range(40))}
    with pytest.raises(EventsCompacted, match="after its last snapshot"):
        count(agent, snapshot="another")
    with pytest.raises(EventsCompacted, match="a replay needs all events"):
        agent.events.replay(count_event, {})
    with pytest.raises(EventsCompacted):
        agent.events.replay(count_event, {}, kind="N", until=next(agent.events.read(last=1)))
    assert agent.events.replay(count_event, {}, kind="M") == {}, "of other kinds nothing is missing"
    agent.events.forget("another name")
    assert count(agent, every=100) == {"N": sum(range(40))}
    agent.events.forget("count")
    assert (compact_agent(agent, tmp_path).notes, numbers(agent)) == ((), [39])
    with pytest.raises(EventsCompacted):
        count(agent)
    check_views(store_url)


def test_following_from_a_compacted_position_is_refused(store_url: str, tmp_path: Path) -> None:
    agent = agent_at(store_url)
    began = datetime.now(UTC)
    note(agent, range(10))
    note(agent, range(2), "QUIET")
    time.sleep(0.005)  # of events of the same millisecond nobody can tell which was compacted
    note(agent, [2], "QUIET")
    events, quiet = list(agent.events.read(kind="N")), list(agent.events.read(kind="QUIET"))
    time.sleep(0.005)
    with agent.run("open") as run:
        run.event("N", {"n": 10})
        note(agent, [11, 12])
        compact_agent(agent, tmp_path)
        assert numbers(agent, kind="N") == [10, 11, 12], "a run that is at work keeps its events"
        assert agent.events.replay(count_event, {}, run="open") == {"N": 33}
    for since in (events[3], events[3].position, began):
        with pytest.raises(EventsCompacted, match="were compacted"):
            list(agent.events.read(since=since))
        with pytest.raises(EventsCompacted, match="were compacted"):
            list(agent.events.follow(since=since, timeout=0))
    with pytest.raises(EventsCompacted, match=r"\.jsonl\.zst"):
        list(agent.events.read(since=events[3]))
    assert numbers(agent, since=quiet[-1], kind="QUIET") == [], "who was at the end has missed nothing"
    assert numbers(agent, since=quiet[-1]) == [10, 11, 12]
    assert [item.payload["n"] for item in agent.events.follow(since="", timeout=0)] == [2, 10, 11, 12]
    assert numbers(agent, since=datetime.now(UTC)) == []
    check_views(store_url)


def test_what_another_agent_wrote_along_stays(store_url: str, tmp_path: Path) -> None:
    agent, other = agent_at(store_url), agent_at(store_url, "other")

    def both(number: int) -> None:
        note(agent, [number])
        note(other, [number])

    def also(number: int) -> None:
        agent.state.set("a", f"k{number}", number)
        note(agent, [number], "S")

    with agent.run("both") as run:
        for number in range(5):
            run.step(lambda n=number: both(n), name=f"step {number}")
            run.step(lambda n=number: also(n), name=f"set {number}")
    note(agent, [9])
    compact_agent(agent, tmp_path)
    assert numbers(other) == [0, 1, 2, 3, 4]
    assert numbers(agent, kind="S") == [0, 1, 2, 3, 4], "an entry that is needed for something else keeps its events"
    check_views(store_url)


def test_killed_anywhere_the_replay_is_right(store_url: str, tmp_path: Path) -> None:
    total = 0
    places = [(site, moment) for site in (Site.STATE, Site.ARCHIVE, Site.COMPACT) for moment in CommitMoment]
    for site, moment in places:
        agent = agent_at(store_url)
        note(agent, range(5))
        total += 10
        assert count(agent) == {"N": total}
        agent.close()
        kill_at(lambda: compact_agent(agent_at(store_url), tmp_path), site, moment)
        agent = agent_at(store_url)
        assert count(agent) == {"N": total}
        if moment is CommitMoment.AFTER:
            rebuild.rebuild(agent._engine.store)
            assert count(agent) == {"N": total}
        agent.close()
    check_views(store_url)


def make_noter(agent: Agent, number: int) -> Any:
    return lambda: note(agent, [number])


moves = st.lists(
    st.sampled_from(["one", "many", "run", "step", "open", "replay", "compact", "compact", "rebuild", "leave"]),
    min_size=4,
    max_size=16,
)


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(moves=moves, every=st.integers(1, 6))
def test_whatever_is_done_a_replay_is_right_or_refused(
    store_url: str, tmp_path: Path, moves: list[str], every: int
) -> None:
    name = f"model {time.perf_counter_ns()}"
    agent, model, known, gone = agent_at(store_url, name), list[int](), False, False
    for number, move in enumerate([*moves, "compact", "rebuild", "replay"]):
        if move == "one":
            note(agent, [number])
            model.append(number)
        elif move == "many":
            agent.events.append_many([("N", {"n": number})] * 3)
            model += [number] * 3
        elif move in ("run", "step"):
            with agent.run(f"{move} {number}") as run:
                run.event("N", {"n": number})
                run.step(make_noter(agent, number), name="note")
            model += [number] * 2
        elif move == "replay" and (known or not gone):
            assert count(agent, every=every) == ({"N": sum(model)} if model else {})
            known = known or bool(model)
        elif move == "compact":
            compact_agent(agent, tmp_path / name)
            gone = gone or len(numbers(agent)) < len(model)
            left = numbers(agent)
            assert bool(left) == bool(model), "the newest stays"
            assert not (set(left) - set(model))
        elif move == "rebuild":
            rebuild.rebuild(agent._engine.store)
        elif move == "leave":
            agent.close()
            agent = agent_at(store_url, name)
    if gone:
        with pytest.raises(EventsCompacted):
            agent.events.replay(count_event, {})
    agent.close()
    check_views(store_url)


async def test_async_agents_have_the_same(store_url: str, tmp_path: Path) -> None:
    agent = AsyncAgent("tester", store=store_url)
    for number in range(10):
        await agent.events.append("N", {"n": number, "text": noise(number, 200)})
    assert await agent.events.replay(count_event, {}, snapshot="count", version=1, every=1) == {"N": 45}
    time.sleep(0.005)
    assert (await agent.gc(events_before=AT_ONCE, archive=tmp_path)).events.count == 9
    assert await agent.events.replay(count_event, {}, snapshot="count", version=1, every=1) == {"N": 45}
    with pytest.raises(EventsCompacted):
        await agent.events.replay(count_event, {})
    check_views(store_url)
