"""Facts that change: at each time one holds of those that took each other's place, in whatever order they came."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import Agent
from perdure.memory.results import Memory
from perdure.values.clock import SystemClock

from .kit import agent_at, check_views

BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
NUMBERS = count()
DAYS = st.integers(0, 12)


def day_time(day: float) -> datetime:
    return BEGIN + timedelta(days=day)


class Story:
    """Facts about one thing, and which of them should hold when: by the day on which each begins."""

    def __init__(self, agent: Agent) -> None:
        self.memory = agent.memory
        self.about = f"thing{next(NUMBERS)}.value"
        self.expected: dict[int, Memory] = {}

    def list_valid(self, day: float) -> list[str]:
        return [memory.id for memory in self.memory.list(about=self.about, as_of=day_time(day))]

    def put(self, day: int, **given: Any) -> None:
        text = f"It is {next(NUMBERS)}"
        self.expected[day] = self.memory.remember(text, about=self.about, valid_from=day_time(day), **given)

    def comes(self, day: int) -> None:
        """In the place of what held then; before all others it says when it ended."""
        before = [begin for begin in self.expected if begin <= day]
        if before or not self.expected:
            self.put(day, supersedes=[self.expected[max(before)]] if before else [])
        else:
            self.put(day, valid_to=day_time(min(self.expected)))

    def was_so_already(self, day: int, instead: int) -> None:
        """In the place of one that begins later: there never was one between."""
        wrong = self.expected[instead]
        for gone in [begin for begin in self.expected if day <= begin <= instead]:
            del self.expected[gone]
        self.put(day, supersedes=wrong)

    def check(self) -> None:
        for day in range(14):
            begun = [begin for begin in self.expected if begin <= day]
            right = [self.expected[max(begun)].id] if begun else []
            assert self.list_valid(day) == self.list_valid(day + 0.5) == right


def tell_stories(
    store_url: str, days: st.SearchStrategy[Any], tell: Callable[[Story, Any], None], *, inside: bool
) -> None:
    """Many stories, in one store; in the open, or each in a step of its own."""
    with closing(agent_at(store_url)) as agent:

        @settings(deadline=None, max_examples=settings.default.max_examples // 4)
        @given(days)
        def each(moves: Any) -> None:
            story = Story(agent)
            if not inside:
                tell(story, moves)
            else:
                with agent.run(story.about) as run:
                    run.step(lambda: tell(story, moves))
            story.check()

        each()
    check_views(store_url)


def check_any_order(story: Story, days: Sequence[int]) -> None:
    for day in days:
        story.comes(day)
        story.check()


@pytest.mark.parametrize("inside", [False, True])
def test_at_each_time_one_holds_in_whatever_order_they_come(store_url: str, inside: bool) -> None:
    tell_stories(store_url, st.lists(DAYS, min_size=1, max_size=6), check_any_order, inside=inside)


def with_corrections(story: Story, moves: Sequence[tuple[int, bool]]) -> None:
    for day, wrong in moves:
        later = [begin for begin in story.expected if begin > day]
        if later and (wrong or len(later) == len(story.expected)):
            story.was_so_already(day, later[len(later) // 2])
        else:
            story.comes(day)
        story.check()


@pytest.mark.parametrize("inside", [False, True])
def test_what_was_never_so_leaves_no_gap_and_nothing_beside(store_url: str, inside: bool) -> None:
    moves = st.lists(st.tuples(DAYS, st.booleans()), min_size=2, max_size=6)
    tell_stories(store_url, moves, with_corrections, inside=inside)


def cities(agent: Agent) -> tuple[Memory, Memory, Memory]:
    """Paris, then Oslo; and that it was Rome between them is heard last."""
    put = agent.memory.remember
    paris = put("Ann lives in Paris", about="ann.city", valid_from="2020-01-01")
    oslo = put("Ann lives in Oslo", about="ann.city", valid_from="2024-01-01", supersedes=paris, source="web")
    rome = put("Ann lives in Rome", about="ann.city", valid_from="2022-01-01", supersedes=paris)
    return paris, rome, oslo


def test_what_is_put_between_two_ends_where_the_next_begins(store_url: str) -> None:
    with closing(agent_at(store_url)) as agent:
        paris, rome, oslo = cities(agent)
        assert [memory.id for memory in agent.memory.list()] == [oslo.id]
        assert (rome.valid_to, rome.superseded_by, rome.contradicts) == (oslo.valid_from, oslo.id, ())
        assert [memory.valid_to for memory in agent.memory.history("ann.city")] == [
            rome.valid_from,
            oslo.valid_from,
            None,
        ]
        assert agent.memory.get(oslo).supersedes == (paris.id, rome.id)
        for year, city in ((2021, paris), (2023, rome), (2025, oslo)):
            [found] = agent.memory.recall("where does Ann live?", as_of=f"{year}-06-01")
            assert found.id == city.id
        assert agent.memory.contradictions() == []
    check_views(store_url)


def test_when_the_next_is_undone_what_was_before_it_goes_on(store_url: str) -> None:
    with closing(agent_at(store_url)) as agent:
        _, rome, oslo = cities(agent)
        report = agent.memory.rollback(source="web")
        assert rome.id in report.restored
        assert [memory.id for memory in agent.memory.list()] == [rome.id]
        assert agent.memory.get(rome).valid_to is None
        later = agent.memory.remember("Ann lives in Bern", about="ann.city", valid_from="2023-01-01", supersedes=rome)
        assert (later.valid_to, agent.memory.get(oslo).withdrawn) == (None, True)
    check_views(store_url)


def test_when_the_next_is_forgotten_what_was_before_it_stays_over(store_url: str) -> None:
    with closing(agent_at(store_url)) as agent:
        _, rome, oslo = cities(agent)
        agent.memory.forget(oslo.id)
        assert agent.memory.list() == []
        over = agent.memory.get(rome)
        assert (over.valid_to, over.superseded_by, over.current) == (oslo.valid_from, "", False)
    check_views(store_url)


def test_only_what_is_about_the_same_follows(store_url: str) -> None:
    with closing(agent_at(store_url)) as agent:
        put = agent.memory.remember
        both = put("Ann and Bob live in Paris", about="home", valid_from="2020-01-01")
        ann = put("Ann lives in Oslo", about="ann", valid_from="2024-01-01", supersedes=both)
        bob = put("Bob lives in Rome", about="bob", valid_from="2022-01-01", supersedes=both)
        assert {memory.id for memory in agent.memory.list()} == {ann.id, bob.id}
        two = put("Carl lives in Bern", about="carl", valid_from="2020-01-01", trust="untrusted")
        rumour = put("Carl is at sea", about="carl", valid_from="2024-01-01", trust="untrusted", supersedes=two)
        known = put("Carl lives in Basel", about="carl", valid_from="2022-01-01", supersedes=two)
        assert (known.valid_to, known.contradicts) == (None, (rumour.id,))
    check_views(store_url)


# What holds only later

PLAN = {"text": "Ann moves to Oslo", "kind": "episodic", "user": "ann", "valid_from": "2999-03-01"}
FACT: dict[str, Any] = {"text": "Ann lives in Oslo", "about": "ann.city", "user": "ann", "valid_from": "2999-03-01"}
HOW = {"text": "Call Ann in Oslo", "kind": "procedural", "user": "ann", "valid_from": "2999-03-01"}
ASKED: tuple[tuple[dict[str, Any], set[str]], ...] = (
    ({}, {PLAN["text"]}),
    ({"user": "ann"}, {PLAN["text"]}),
    ({"about": "ann.city"}, set()),
    ({"since": "2999-01-01"}, {PLAN["text"], FACT["text"], HOW["text"]}),
    ({"since": "2999-04-01"}, set()),
    ({"as_of": "2999-04-01"}, {PLAN["text"], FACT["text"], HOW["text"]}),
    ({"as_of": "2999-02-01"}, set()),
)


def test_a_fact_that_begins_later_is_not_told_as_if_it_was_so(store_url: str) -> None:
    with closing(agent_at(store_url)) as agent:

        def ask() -> list[set[str]]:
            found = [{memory.text for memory in agent.memory.list(**given)} for given, _ in ASKED]
            assert found == [
                {memory.text for memory in agent.memory.recall("Ann in Oslo", **given)} for given, _ in ASKED
            ]
            return found

        def plan() -> list[set[str]]:
            agent.memory.remember_all([PLAN, FACT, HOW])
            return ask()

        right = [texts for _, texts in ASKED]
        with agent.run("one") as run:
            assert run.step(plan) == right
        assert ask() == right
        assert len(agent.memory.list(all=True)) == len(agent.memory.history("ann.city")) + 2 == 3
    check_views(store_url)


def test_what_is_so_until_later_is_not_let_go_as_if_it_was_over(store_url: str) -> None:
    with closing(agent_at(store_url)) as agent:
        now = agent.memory.remember("Ann lives in Paris", about="ann.city")
        later = agent.memory.remember(**FACT, supersedes=now)
        agent.memory.remember("Ann has a bike", importance=0.1)
        agent.memory.retain("semantic", max_items=2)
        agent.gc()
        assert {memory.id for memory in agent.memory.list(all=True)} == {now.id, later.id}
    check_views(store_url)


def test_what_is_so_from_now_on_is_seen_by_whose_clock_is_behind(store_url: str, monkeypatch: Any) -> None:
    with closing(agent_at(store_url)) as agent:
        now = SystemClock.wall_ms
        with monkeypatch.context() as patch:
            patch.setattr(SystemClock, "wall_ms", lambda self: now(self) + 60_000)
            made = agent.memory.remember("The door is open", about="door")
        assert [memory.id for memory in agent.memory.list()] == [made.id]
        assert [memory.id for memory in agent.memory.recall("is the door open?")] == [made.id]


@settings(max_examples=20)
@given(st.lists(st.booleans(), min_size=2, max_size=7), st.booleans())
def _undone(store_url: str, bad: list[bool], one_by_one: bool) -> None:
    """A chain of facts, some of a bad source, which is undone at once or one run after the other."""
    with closing(Agent(f"a{next(NUMBERS)}", store=store_url, embedder=False)) as agent:
        about, last, kept = f"thing{next(NUMBERS)}.value", None, dict[int, str]()
        for day, is_bad in enumerate(bad):
            source = f"web {day}" if is_bad and one_by_one else "web" if is_bad else "hr"
            text = f"It is {day}"
            given = {"about": about, "valid_from": day_time(day), "source": source}
            last = agent.memory.remember(text, **given, supersedes=[last] if last else [])
            kept.update({} if is_bad else {day: text})
        for source in [f"web {day}" for day in range(len(bad))] if one_by_one else ["web"]:
            agent.memory.rollback(source=source)
        for day in range(len(bad) + 1):
            there = [begin for begin in kept if begin <= day]
            held = [memory.text for memory in agent.memory.list(about=about, as_of=day_time(day + 0.5))]
            assert held == ([kept[max(there)]] if there else []), (bad, day)


def test_what_comes_before_and_after_one_that_is_undone_meet(store_url: str) -> None:
    _undone(store_url)


def test_what_is_undone_between_others_brings_nothing_back_beside_them(store_url: str) -> None:
    with closing(agent_at(store_url)) as agent:
        first = agent.memory.remember("It is 1", about="q.v", source="hr")
        second = agent.memory.remember("It is 2", about="q.v", source="web", supersedes=first)
        third = agent.memory.remember("It is 3", about="q.v", source="hr", supersedes=second)
        done = agent.memory.rollback(source="web")
        assert (done.withdrawn, done.restored) == ((second.id,), ())
        assert [memory.id for memory in agent.memory.list(about="q.v")] == [third.id]
        assert agent.memory.get(first.id).superseded_by == third.id
        assert agent.memory.contradictions() == []
    check_views(store_url)


def test_a_stated_end_ends_a_fact(store_url: str) -> None:
    with closing(agent_at(store_url)) as agent:
        more = {"importance": 1.0, "meta": {"who": "gus"}, "tags": "hr"}
        first = agent.memory.remember("Gus is on leave", about="gus.status", valid_from=day_time(1), **more)
        ended = agent.memory.remember(
            "Gus is on leave", about="gus.status", valid_from=day_time(1), valid_to=day_time(9)
        )
        assert (ended.supersedes, ended.valid_to) == ((first.id,), day_time(9))
        assert (ended.importance, ended.meta, ended.tags) == (1, {"who": "gus"}, ("hr",))
        assert agent.memory.list(about="gus.status") == []
        assert [memory.id for memory in agent.memory.list(about="gus.status", as_of=day_time(5))] == [ended.id]
        again = agent.memory.remember(
            "Gus is on leave", about="gus.status", valid_from=day_time(1), valid_to=day_time(9)
        )
        assert [memory.text for memory in agent.memory.list(about="gus.status", as_of=day_time(5))] == [again.text]
    check_views(store_url)


def test_what_is_trusted_less_ends_nothing(store_url: str) -> None:
    with closing(agent_at(store_url)) as agent:
        agent.memory.remember("Gus is on leave", about="gus.status", valid_from=day_time(1))
        agent.memory.remember(
            "Gus is on leave", about="gus.status", valid_from=day_time(1), valid_to=day_time(9), trust=0.1
        )
        assert [memory.valid_to for memory in agent.memory.list(about="gus.status")] == [None]


def test_facts_of_different_times_are_not_against_each_other(store_url: str) -> None:
    with closing(agent_at(store_url)) as agent:
        agent.memory.remember("Dana works at Corex", about="dana.job", valid_from=day_time(9))
        old = agent.memory.remember(
            "Dana works at Zero", about="dana.job", valid_from=day_time(1), valid_to=day_time(9)
        )
        beside = agent.memory.remember(
            "Dana works at Acme", about="dana.job", valid_from=day_time(1), valid_to=day_time(10)
        )
        assert (old.contradicts, len(beside.contradicts)) == ((), 2)


def test_a_day_is_all_of_it(store_url: str) -> None:
    today = datetime.now(UTC).date()
    with closing(agent_at(store_url)) as agent:
        agent.memory.remember("Bo sits in room 5", about="bo.room")
        agent.memory.remember("Went to the gym", kind="episodic", valid_from="2020-05-10")
        for day in (today, str(today)):
            assert len(agent.memory.list(about="bo.room", as_of=day)) == 1
            assert len(agent.memory.list(about="bo.room", known_at=day)) == 1
        assert len(agent.memory.list(kind="episodic", since="2020-05-10", until="2020-05-10")) == 1
        assert agent.memory.list(kind="episodic", since="2020-05-10", until="2020-05-10T00:00") == []
