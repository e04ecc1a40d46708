"""Forks: the beginning of a run, shared and not copied, and a way of its own from there."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure import Agent, AsyncAgent, Done, InDoubt, NotDone, RunWaiting
from perdure import records as r
from perdure.errors import InputChanged, PointNotFound, RunExists
from perdure.journal.compaction import Compact, StreamMoved, plan
from perdure.journal.object_gc import collect
from perdure.journal.verify import verify
from perdure.maintenance.compaction import compactable
from perdure.platform.failpoints import CommitMoment, Site

from .kit import Behind, World, agent_at, check_views, kill_at

LARGE = "a large page " * 2000


class Trip:
    """A program: searches, picks, books. What it does to the outside is counted."""

    def __init__(self, agent: Agent, world: World) -> None:
        self.agent = agent
        self.run: Any = None

        def search(city: str) -> list[str]:
            world.do(f"search {city}")
            self.run.state["city"] = city
            self.run.messages.append(f"look for {city}")
            self.run.usage(model="m", input_tokens=10, cost_usd=0.5)
            return [f"{city}-9", f"{city}-11", LARGE]

        def pick(flights: list[str]) -> str:
            world.do(f"pick {flights[0]}")
            return flights[0]

        def book(flight: str, *, key: str) -> str:
            world.do(f"book {flight} {key}")
            agent.state.incr("trips", "booked")
            self.run.event("BOOKED", flight)
            return f"booked {flight}"

        self.search, self.pick, self.book = agent.step(search), agent.step(pick), agent.effect(book)

    def go(self, run_id: str, **options: Any) -> Any:
        with self.agent.run(run_id, **options) as self.run:
            flights = self.search("NYC")
            self.run.checkpoint("found", flights[:2])
            self.run.state["picked"] = self.pick(flights)
            self.run.result = self.book(self.run.state["picked"])
        return self.agent.runs.result(run_id)


def test_a_fork_shares_its_beginning_and_goes_its_own_way(store_url: str, world: World) -> None:
    agent = agent_at(store_url)
    trip = Trip(agent, world)
    trip.go("trip", input={"to": "NYC"})
    assert len(world.read_all()) == 3
    fork = agent.runs.fork("trip", at="search")
    assert (fork.id, fork.origin, fork.at) == ("trip-fork", "trip", 2)
    assert {(remaining.kind, remaining.what.partition(",")[0]) for remaining in fork.stays} == {
        ("checkpoint", "found"), ("effect", "book"), ("state", "trips/booked"), ("event", "BOOKED"),
    }  # fmt: skip
    made = agent.runs.get(fork.id)
    assert made.state == {"city": "NYC"} and made.messages == ["look for NYC"] and made.input == {"to": "NYC"}
    assert made.status == "interrupted" and "forked from 'trip' at entry 2" in made.error
    assert len(agent._engine.store.read("journal_of", (made.summary.stream, 0))) == 1
    with pytest.raises(InputChanged, match="was started with {'to': 'NYC'}"):
        trip.go(fork.id, input={"to": "BOS"})
    assert trip.go(fork.id, input={"to": "NYC"}) == "booked NYC-9"
    first, second = [line.split()[2] for line in world.read_all() if line.startswith("book")]
    assert first != second  # an effect of its own, with a key of its own
    assert [line.split()[0] for line in world.read_all()] == ["search", "pick", "book", "pick", "book"]
    assert agent.usage().calls == 1 and agent.usage(run=fork.id).calls == 0
    assert agent.savings().steps == 0  # nothing was resumed
    assert agent.runs.get(fork.id, at=2).state == {"city": "NYC"}
    assert agent.runs.get(fork.id).state == {"city": "NYC", "picked": "NYC-9"}
    again = agent.runs.fork(fork.id)  # all of a fork: nothing is left to be done
    assert again.id == "trip-fork-fork" and trip.go(again.id) == "booked NYC-9" and len(world.read_all()) == 5
    assert agent.runs.fork("trip", at="found").id == "trip-fork-2"
    check_views(agent)


def test_steps_are_overridden_by_name_number_or_id(store_url: str, world: World) -> None:
    agent = agent_at(store_url)
    asked: list[str] = []

    def think(about: str) -> str:
        asked.append(about)
        if about == "broken":
            raise ValueError("no idea")
        return about.upper()

    def go(run_id: str) -> Any:
        with agent.run(run_id) as run:
            first, second = run.step(think, "a"), run.step(think, "b")
            named = run.step(think, "c", id="the third", name="rethink")
            run.result = [first, second, named, run.step(think, "broken", name="guess")]
        return agent.runs.result(run_id)

    with pytest.raises(ValueError, match="no idea"):
        go("r")
    fork = agent.runs.fork("r", override={"guess": "42", "think#2": "Z", "the third": None})
    del asked[:]
    assert go(fork.id) == ["A", "Z", None, "42"] and asked == []
    nested = agent.runs.fork(fork.id, at="think#1", override={"think": "Y"})  # one call is left at that moment
    with pytest.raises(ValueError, match="no idea"):
        go(nested.id)
    assert asked == ["b", "c", "broken"]
    kept = agent.runs.fork(fork.id, at="guess", input="another")  # what the first fork overrides holds in its forks
    assert go(kept.id) == ["A", "Z", None, "42"] and agent.runs.get(kept.id).input == "another"
    check_views(agent)


def test_what_cannot_be_forked_says_why(store_url: str, world: World) -> None:
    agent = agent_at(store_url)
    Trip(agent, world).go("trip")
    with agent.run("loop") as run:
        for item in run.each(["x", "y"]):
            run.step(str.upper, item, name="upper")
        run.checkpoint("upper", 1)

    def refused(match: str, run_id: str = "trip", **options: Any) -> None:
        with pytest.raises((PointNotFound, RunExists), match=match):
            agent.runs.fork(run_id, **options)

    refused("did you mean 'search'", at="serch")
    refused("no entry 99; its entries are 1 to 8", at=99)
    refused("did you mean 'pick'", override={"pik": 1})
    refused("'book' is an effect", override={"book": 1})
    refused("already has a run 'loop'", to="loop")
    refused("a step and a checkpoint", "loop", at="upper")
    refused("'upper' was called 2 times: 'upper' at 2 in 1:x/, 'upper' at 4", "loop", override={"upper": 1})
    refused("in item '1:x', which is done.*before 3", "loop", override={"upper#1": 1})
    assert agent.runs.fork("loop", at="checkpoint:upper").at == 6
    assert agent.runs.fork("loop", at="step:upper").at == 4
    assert [run.id for run in agent.runs.list()].count("trip-fork") == 0


def test_an_effect_that_had_begun_is_not_repeated(store_url: str, world: World) -> None:
    """What the origin knows of it is the fork's too; what nobody knows is asked."""
    agent = agent_at(store_url)
    trip = Trip(agent, world)
    trip.go("trip")
    intent = next(e.seq for e in agent.runs.get("trip").events if isinstance(e.record, r.EffectIntended))
    fork = agent.runs.fork("trip", at=intent)
    assert fork.adopted == ("book",) and not fork.in_doubt
    assert [remaining.kind for remaining in fork.stays] == ["event", "state"]  # the effect itself is the fork's too
    assert trip.go(fork.id) == "booked NYC-9"
    assert len([line for line in world.read_all() if line.startswith("book")]) == 1
    assert agent.state.get("trips", "booked") == 1 and len(list(agent.events.read("BOOKED"))) == 1
    check_views(agent)


def test_an_effect_in_doubt_is_not_believed_absent_in_a_fork(store_url: str, world: World) -> None:
    agent = agent_at(store_url)
    happened = False

    def check(*, key: str) -> Any:
        return Done("found") if happened else NotDone

    def pay(*, key: str) -> str:
        world.do(f"pay {key}")
        if world.read_all() == [f"pay {key}"]:
            raise TimeoutError("the line is dead")
        return "paid"

    def go(run_id: str, **options: Any) -> Any:
        with agent.run(run_id, wait=0, **options) as run:
            run.result = run.effect(pay, check=(lambda *, key: check(key=key)) if run_id != "origin" else None)
        return agent.runs.result(run_id)

    with pytest.raises(InDoubt):
        go("origin")
    first, second = agent.runs.fork("origin"), agent.runs.fork("origin")
    assert first.in_doubt == ("pay",) and first.id != second.id
    with pytest.raises(RunWaiting, match="run 'origin' has started it and may still execute it"):
        go(first.id)
    assert len(world.read_all()) == 1
    agent.runs.answer(first.id, retry=True)
    assert go(first.id) == "paid"
    assert len(set(world.read_all())) == 1 and len(world.read_all()) == 2  # the same effect: the same key
    happened = True
    assert go(second.id) == "found" and len(world.read_all()) == 2
    check_views(agent)


def test_a_fork_waits_by_itself(store_url: str) -> None:
    agent = agent_at(store_url)

    def go(run_id: str) -> Any:
        with agent.run(run_id, wait=0) as run:
            run.result = [run.wait_event("go"), run.ask("Which?", choices=["a", "b"]), run.wait_event("go")]
        return agent.runs.result(run_id)

    def waits(run_id: str, match: str) -> None:
        with pytest.raises(RunWaiting, match=match):
            go(run_id)

    agent.send_event("r", "go", 1)
    waits("r", "Which")
    fork = agent.runs.fork("r")
    assert agent.runs.get(fork.id).status == "waiting"
    [question] = agent.runs.get(fork.id).questions
    assert question.text == "Which?" and question.choices == ["a", "b"]
    agent.runs.answer("r", "a")
    agent.send_event("r", "go", 2)
    assert go("r") == [1, "a", 2]
    waits(fork.id, "Which")
    agent.runs.answer(fork.id, "b")
    waits(fork.id, "go")  # events are sent to an id
    agent.send_event(fork.id, "go", 3)
    assert go(fork.id) == [1, "b", 3]
    check_views(agent)


def test_what_a_fork_shares_is_kept(store_url: str, world: World, tmp_path: Any) -> None:
    """Neither compacted nor collected; and if it is changed, that is found."""
    agent = agent_at(store_url)
    trip, store = Trip(agent, world), agent._engine.store
    trip.go("trip")
    trip.go("other")
    stream = agent.runs.get("trip").summary.stream
    late = plan(store, stream, 2**60, whole=True)
    fork = agent.runs.fork("trip", at="pick")
    agent.runs.fork("other", at="pick", to="given up")
    assert trip.go(fork.id) == "booked NYC-9"
    collect(store)
    assert agent.runs.get(fork.id, at="search").state == {"city": "NYC"}
    assert compactable(agent._engine, 2**60) == []
    signer = agent._engine.signer
    assert late is not None and signer is not None
    with pytest.raises(StreamMoved):
        store.submit(Compact(store, late, "file", b"", signer))
    assert trip.go(fork.id) == "booked NYC-9"
    check_views(agent)
    with Behind(store_url) as behind:
        where, which = behind.entry(stream, 4)
        behind.execute(f"UPDATE journal SET at = at + 1 WHERE {where}", which)
    texts = [one.text for one in verify(store).findings]
    assert any("does not fit the chain" in text for text in texts)
    with Behind(store_url) as behind:
        where, which = behind.entry(stream, agent.runs.fork("other").at)
        made = behind.entry(stream, 4)
        behind.execute(f"UPDATE journal SET chain = ? WHERE {made[0]}", (bytes(32), *made[1]))
    assert any("forked at entry 4" in one.text for one in verify(store).findings)


# -- any program, forked anywhere -------------------------------------------------------------------------------------

NUMBERS = itertools.count()
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["step", "effect", "set", "say", "each"]), st.integers(0, 2)), max_size=7
)


def perform(agent: Agent, run_id: str, program: list[tuple[str, int]], ran: list[str]) -> Any:
    """Steps and effects write, loops have both; what runs is noted."""

    def body(kind: str, place: int) -> str:
        ran.append(f"{kind} {place}")
        run.state[kind] = run.state.get(kind, 0) + 1
        run.messages.append([kind, place])
        return f"{kind} {place}"

    def effect(place: int, *, key: str) -> str:
        return body("effect", place)

    with agent.run(run_id) as run:
        for place, (kind, value) in enumerate(program):
            if kind == "step":
                run.step(body, "step", value)  # the same calls may come again
            elif kind == "effect":
                run.effect(effect, place)
            elif kind == "set":
                run.state["open"] = [run.state.get("open"), value]
            elif kind == "say":
                run.messages.append(value)
            elif kind == "each":
                for item in run.each(range(value)):
                    run.step(body, "in item", place * 10 + item)
                    run.state["item"] = item
                    run.effect(effect, place * 10 + item)
        run.result = [run.state.get("step"), len(run.messages)]
    info = agent.runs.get(run_id)
    return info.result, info.state, info.messages


def list_repeated_after(events: list[r.JournalEntry], cut: int) -> list[str]:
    """What has to run again: steps that end, and effects that begin, after the cut."""
    return [
        event.record.call.name
        for event in events
        if event.seq > cut and isinstance(event.record, r.StepDone | r.EffectIntended)
    ]


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=OPERATIONS, data=st.data())
def test_a_fork_anywhere_comes_to_the_same(store_url: str, program: list[tuple[str, int]], data: st.DataObject) -> None:
    agent = agent_at(store_url)
    origin, ran = f"r{next(NUMBERS)}", list[str]()
    outcome = perform(agent, origin, program, ran)
    for _ in range(3):
        events = agent.runs.get(origin).events
        cut = data.draw(st.integers(1, len(events)))
        fork = agent.runs.fork(origin, at=cut)
        past = agent.runs.get(origin, at=cut)
        assert (agent.runs.get(fork.id).state, agent.runs.get(fork.id).messages) == (past.state, past.messages) or (
            fork.adopted  # what such an effect wrote is there before its call
        )
        del ran[:]
        assert perform(agent, fork.id, program, ran) == outcome
        assert len(ran) == len(list_repeated_after(events, cut))
        origin = fork.id  # and a fork of that
    check_views(agent)


@pytest.mark.parametrize("moment", [CommitMoment.BEFORE, CommitMoment.WRITTEN, CommitMoment.AFTER])
def test_a_fork_is_there_or_not(store_url: str, world: World, moment: CommitMoment) -> None:
    agent = agent_at(store_url)
    Trip(agent, world).go("trip")
    agent.close()

    def fork_and_go() -> None:
        again = agent_at(store_url)
        with contextlib.suppress(RunExists):
            again.runs.fork("trip", at="pick", to="branch")
        assert Trip(again, world).go("branch") == "booked NYC-9"

    kill_at(fork_and_go, Site.FORK, moment)
    assert len(world.read_all()) == 3
    assert (moment == CommitMoment.AFTER) == ("branch" in [run.id for run in agent_at(store_url).runs.list()])
    kill_at(fork_and_go, Site.RUN_END, moment)
    fork_and_go()
    assert [line.split()[0] for line in world.read_all()] == ["search", "pick", "book", "book"]
    check_views(agent_at(store_url))


def test_a_fork_under_asyncio(store_url: str) -> None:
    async def double(number: int) -> int:
        return number * 2

    async def main() -> None:
        agent = AsyncAgent("tester", store=store_url)
        async with agent.run("r") as run:
            run.state["n"] = await run.step(double, 4)
        fork = await agent.runs.fork("r", override={"double": 7})
        async with agent.run(fork.id) as run:
            run.result = await run.step(double, 4) + 1
        assert await agent.runs.result(fork.id) == 8
        assert (await agent.runs.get("r", at="double")).state == {}

    asyncio.run(main())


def test_what_differs_between_two_runs(store_url: str, world: World) -> None:
    agent = agent_at(store_url)
    trip = Trip(agent, world)
    trip.go("trip")
    fork = agent.runs.fork("trip", override={"search": ["BOS-7", "BOS-8"]})
    trip.go(fork.id)
    found = agent.runs.diff("trip", fork.id)
    assert found and (found.shared, found.same_steps) == (2, 0)
    assert [(one.kind, one.name, one.seq_a, one.seq_b) for one in found.steps] == [
        ("changed", "search", 2, 2),
        ("changed", "pick", 4, 6),
        ("changed", "book", 6, 8),
    ]
    book = found.steps[2]
    assert [(one.steps, one.after) for one in book.arguments] == [(("flight",), "BOS-7")]
    assert (book.before, book.after) == ("booked NYC-9", "booked BOS-7")
    assert [(one.steps, one.before, one.after) for one in found.state] == [(("picked",), "NYC-9", "BOS-7")]
    assert found.messages == () and [one.after for one in found.result] == ["booked BOS-7"]
    assert "the first 2 entries are shared" in str(found) and "3 in steps" in repr(found)
    same = agent.runs.fork("trip")
    trip.go(same.id)
    nothing = agent.runs.diff("trip", same.id)
    assert not nothing and nothing.same_steps == 3 and "no difference" in repr(nothing)
    with pytest.raises(RuntimeError), agent.run("other", input=1) as run:
        run.messages.append("hello")
        run.step(str.upper, "x", name="shout")
        raise RuntimeError
    other = agent.runs.diff("trip", "other")
    assert other.shared == 0 and other.status == ("finished", "failed")
    assert {(one.kind, one.name) for one in other.steps} == {
        ("added", "shout"), ("removed", "search"), ("removed", "pick"), ("removed", "book"),
    }  # fmt: skip
    assert [(one.kind, one.after) for one in other.messages] == [("changed", "hello")]
