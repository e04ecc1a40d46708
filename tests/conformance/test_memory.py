"""`agent.memory`: kept once, found again, replaced and still readable, in both stores and on both faces."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure import AsyncAgent
from perdure.errors import MemoryNotFound
from perdure.platform.failpoints import CommitMoment, Site

from .kit import agent_at, check_views, kill_at, run_in_child

LARGE = " ".join(f"word{n}" for n in range(2000))


def test_what_is_remembered_is_recalled_by_everybody(store_url: str) -> None:
    agent = agent_at(store_url)
    assert (agent.memory.list(), agent.memory.recall("seats"), agent.memory.history("alice")) == ([], [], [])
    given: dict[str, Any] = {"tags": ["travel", "seat"], "source": "chat", "meta": {"n": (1, 2)}, "importance": 0.9}
    made = agent.memory.remember("Alice prefers aisle seats", about="alice", user="alice", **given)
    agent.memory.remember(LARGE, kind="procedural", meta={"large": LARGE}, trust="unsure")

    def other() -> None:
        memory = agent_at(store_url).memory
        [found] = memory.recall("which seat does alice like?")
        assert (found.id, found.text, found.meta, found.tags) == (
            made.id,
            "Alice prefers aisle seats",
            {"n": (1, 2)},
            ("travel", "seat"),
        )
        assert found.score > 0
        assert "seat" in str(found.why)
        assert f"entry {found.entry[1]}" in found.why.event
        assert memory.get(made.id) == made
        assert memory.get(made).writer == "tester"
        assert memory.list(kind="procedural")[0].text == memory.list(min_trust=0.4, tags=())[0].text == LARGE
        assert [recalled.text for recalled in memory.list(tags="seat")] == [made.text]
        assert memory.list(tags=["seat", "food"]) == memory.list(user="bob") == memory.list(source="web") == []
        assert memory.list(kind="procedural", min_trust=0.6) == []

    assert run_in_child(other) == 0
    check_views(store_url)


def test_a_fact_that_was_replaced_is_readable_as_of_its_time(store_url: str) -> None:
    memory = agent_at(store_url).memory
    paris = memory.remember("Alice lives in Paris", about="alice.city", valid_from="2020-01-01")
    time.sleep(0.002)  # recorded in another millisecond
    rome = memory.remember("Alice lives in Rome", about="alice.city", valid_from="2023-05-01", supersedes=paris)
    assert [recalled.id for recalled in memory.recall("where does Alice live?")] == [rome.id]
    assert [recalled.id for recalled in memory.recall("where does Alice live?", as_of="2021-06-01")] == [paris.id]
    assert memory.recall("where does Alice live?", as_of="2019-06-01") == []
    assert [recalled.id for recalled in memory.list(as_of=datetime(2023, 6, 1, tzinfo=UTC))] == [rome.id]
    assert [recalled.id for recalled in memory.list(as_of="2023-06-01", known_at=paris.recorded)] == [paris.id]
    was, now = memory.history("alice.city")
    assert (was.superseded_by, was.valid_to, was.current) == (rome.id, rome.valid_from, False)
    assert (now.supersedes, now.current) == ((paris.id,), True)
    # What holds from tomorrow on does not end today's.
    later = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    memory.remember("Alice lives in Oslo", about="alice.city", valid_from=later, supersedes=rome.id)
    assert rome.id in [recalled.id for recalled in memory.list(about="alice.city")]
    with pytest.raises(MemoryNotFound):
        memory.remember("Bob", supersedes="nothing")
    check_views(store_url)


ADDITIONS: tuple[dict[str, Any], ...] = (
    {"meta": {"turn": 2}},
    {"tags": "seat"},
    {"importance": 0.9},
    {"valid_from": "2026-01-02"},
    {"thread": "another"},
)


def test_the_same_again_is_kept_when_it_adds_something(store_url: str) -> None:
    agent = agent_at(store_url)
    short = agent.memory.remember("Alice likes aisle seats", about="alice", ttl=3600)
    kept = agent.memory.remember("Alice likes aisle seats", about="alice")
    assert kept.id != short.id and kept.expires is None
    ids = {agent.memory.remember("Alice likes aisle seats", about="alice", **more).id for more in ADDITIONS}
    assert len(ids - {kept.id, short.id}) == len(ADDITIONS)
    old = agent.memory.remember("Alice likes windows", about="alice")
    new = agent.memory.remember("Alice likes aisle seats", about="alice", supersedes=old)
    assert new.supersedes == (old.id,)
    assert old.id not in {memory.id for memory in agent.memory.list()}
    over = agent.memory.remember("Bob is in Rome", about="bob", valid_from="2026-01-01", valid_to="2026-02-01")
    assert agent.memory.remember("Bob is in Rome", about="bob").id != over.id
    with pytest.raises(TypeError, match="give a list"):
        agent.memory.remember_all("hello")
    agent.memory.remember("x" * 5000)  # one word: a server has none that is so long


def test_the_same_again_is_counted_and_the_opposite_is_surfaced(store_url: str) -> None:
    memory = agent_at(store_url).memory
    first = memory.remember("Alice likes tea", about="alice")
    again = memory.remember("Alice likes tea!", about="alice", source="mail")
    assert (again.id, again.count) == (first.id, 2)
    against = memory.remember("Alice likes coffee", about="alice")
    assert against.contradicts == (first.id,)
    assert memory.get(first.id).contradicts == (against.id,)
    assert set(memory.remember("Alice does not like tea", about="alice").contradicts) == {against.id, first.id}
    assert memory.remember("Alice works at night", about="alice").contradicts == ()
    # Whom nobody trusts neither takes a fact's place, nor makes it more by saying it again.
    doubtful = memory.remember("Alice likes cocoa", about="alice", trust="untrusted", supersedes=first)
    assert (doubtful.supersedes, memory.get(first.id).current) == ((), True)
    assert first.id in doubtful.contradicts
    assert memory.remember("Alice likes cocoa", about="alice").id != doubtful.id
    # What happened has happened as often as it did.
    many = memory.remember_all(["hello", "hello", {"text": "hello", "user": "bob"}], kind="episodic", thread="chat")
    assert [recalled.place for recalled in many] == [1, 2, 3]
    assert memory.remember("tea time", derived_from=[doubtful, first]).trust == 0
    check_views(store_url)


def test_a_memory_lands_with_its_step_or_not_at_all(store_url: str) -> None:
    def program() -> None:
        agent = agent_at(store_url)

        @agent.step
        def read() -> str:
            agent.memory.remember("It rained", kind="episodic")
            fact = agent.memory.remember("Rain is wet", about="rain", meta={"large": LARGE})
            assert agent.memory.get(fact.id).meta == {"large": LARGE}
            assert agent.memory.list(about="rain")[0].id == fact.id
            return agent.memory.remember("Rain is wet!", about="rain").id + fact.id[:0]

        with agent.run("weather") as run:
            run.result = read()
        agent.memory.remember("In the open", about="rain")
        agent.close()

    for site, nth in ((Site.STEP_DONE, 1), (Site.MEMORY, 1)):
        for moment in CommitMoment:
            kill_at(program, site, moment, nth)
            texts = sorted(recalled.text for recalled in agent_at(store_url).memory.list(all=True))
            whole = ["It rained", "Rain is wet"]
            assert texts in ([], whole, ["In the open", *whole])
            check_views(store_url)
            if site == Site.STEP_DONE and moment == CommitMoment.WRITTEN:
                assert texts == []
    program()
    memory = agent_at(store_url).memory
    assert sorted(recalled.text for recalled in memory.list()) == ["In the open", "It rained", "Rain is wet"]
    # The id that a body was given is that of the memory which was known already.
    fact = memory.get(agent_at(store_url).runs.result("weather"))
    assert (fact.text, fact.count, fact.run, fact.step) == ("Rain is wet", 2, "weather", "read")
    assert [recalled.thread for recalled in memory.list(kind="episodic")] == ["run weather"]


def test_the_other_face(store_url: str) -> None:
    async def main() -> None:
        agent = AsyncAgent("tester", store=store_url)
        made = await agent.memory.remember("Bob eats fish", user="bob", ttl="1h")
        assert (await agent.memory.get(made.id)).expires == made.expires
        [found] = await agent.memory.recall("what does Bob eat?", around=1)
        assert found.around == ()
        assert [memory.id for memory in await agent.memory.list(limit=1)] == [made.id]
        await agent.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"kind": "semantik"}, "did you mean 'semantic'"),
        ({"trust": 2}, "from 0 to 1"),
        ({"trust": "trustd"}, "did you mean 'trusted'"),
        ({"valid_from": "soon"}, "valid_from='soon'"),
        ({"valid_from": "2026-02-02", "valid_to": "2026-02-01"}, "not later"),
        ({"text": " "}, "needs a text"),
        ({"text": 7}, "a memory is a text"),
        ({"tags": 7}, "tags=7"),
        ({"meta": [1]}, "give a dict"),
        ({"abuot": "x"}, "did you mean 'about'"),
    ],
)
def test_mistakes_are_told_at_the_call(store_url: str, given: dict[str, Any], told: str) -> None:
    with pytest.raises((ValueError, TypeError), match=told):
        agent_at(store_url).memory.remember_all([{"text": "x", **given}])


PAIRS = [
    ("Alice manages Bob", "Bob manages Alice"),
    ("Price went from 3 to 5", "Price went from 5 to 3"),
    ("He owes me 50", "I owe him 50"),
    ("Deploy before tests", "Deploy after tests"),
    ("Balance is 1000", "Balance is -1000"),
    ("Uses C++", "Uses C#"),
    ("load > 5", "load < 5"),
    ("Bob reacted 👍", "Bob reacted 👎"),
    ("Is Bob ill?", "Bob is ill"),
    (" ".join(f"word{n}" for n in range(40)) + " Miller", " ".join(f"word{n}" for n in range(40)) + " Schmidt"),
]


def test_what_differs_in_a_word_a_sign_or_an_order_is_not_the_same(store_url: str) -> None:
    with closing(agent_at(store_url)) as agent:
        for about in ("it", None):
            for one, other in PAIRS:
                kept = [agent.memory.remember(text, about=about, kind="procedural").text for text in (one, other)]
                assert kept == [one, other]
        assert agent.memory.remember("  the LOAD > 5.", about="it", kind="procedural").count == 2


def test_an_empty_name_is_nobody_s(store_url: str) -> None:
    with closing(agent_at(store_url)) as agent:
        agent.memory.remember("a secret", user="ann")
        for call in (agent.memory.recall, agent.memory.remember):
            with pytest.raises(ValueError, match="user=''"):
                call("secret", user="")
        with pytest.raises(ValueError, match="user=''"):
            agent.memory.list(user="")


def test_a_mistake_is_told_by_the_name_that_was_given(file_url: str) -> None:
    agent = agent_at(file_url)
    for wrong in (3, "trustd"):
        with pytest.raises(ValueError, match=f"^min_trust={wrong!r}: "):
            agent.memory.recall("x", min_trust=wrong)
        with agent.run("one") as run, pytest.raises(ValueError, match=f"^min_trust={wrong!r}: "):
            run.context(min_trust=wrong)
