"""Memories inside steps, effects and items: a body sees its own, nobody else does, and they may name each other."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from perdure import Agent, AsyncAgent
from perdure.errors import MemoryNotFound
from perdure.journal import memory_writes
from perdure.memory import facts
from perdure.memory.lifecycle.usage import find_unrecorded_uses
from perdure.memory.recall import candidates
from perdure.memory.results import Recalled

from .kit import agent_at, check_views
from .test_recall import QUESTIONS, embed_letters, make_texts


def summarize_found(found: list[Recalled]) -> list[tuple[Any, ...]]:
    return [
        (memory.text, round(memory.score, 6), memory.why.words, memory.why.neighbours, round(memory.why.meaning, 4))
        for memory in found
    ]


def recall_in_other_thread(agent: Agent, question: str) -> list[str]:
    """What is recalled by somebody who is not in the body: in another thread, where nothing is known of it."""
    with ThreadPoolExecutor(1) as pool:
        return [memory.id for memory in pool.submit(agent.memory.recall, question).result()]


# -- recall -----------------------------------------------------------------------------------------------------------


def test_a_body_recalls_what_it_has_remembered_and_nobody_else_does(store_url: str) -> None:
    agent = agent_at(store_url)
    cat = agent.memory.remember("The cat is grey", about="cat")

    def body() -> str:
        made = agent.memory.remember("The violin is by the window", user="ann", tags="music", source="chat")
        [found] = agent.memory.recall("where is the violin?")
        assert (found.id, found.text, found.why.words, found.entry) == (made.id, made.text, ("violin",), (0, 0))
        assert found.score > 0 and found.why.event == "run band, not landed yet"
        assert agent.memory.recall("violin", user="bo") == agent.memory.recall("violin", known_at="2026-01-01") == []
        assert agent.memory.recall("violin", user="ann", tags="music", source="chat", min_trust=1)
        assert agent.memory.recall("")[0].id == made.id
        assert recall_in_other_thread(agent, "violin") == [] and recall_in_other_thread(agent, "") == [cat.id]
        newer = agent.memory.remember("The cat is black now", about="cat", supersedes=cat)
        assert [memory.id for memory in agent.memory.recall("the cat")] == [newer.id]
        assert recall_in_other_thread(agent, "the cat") == [cat.id]
        return made.id

    def light() -> bool:
        return agent.memory.remember("A lantern", kind="episodic").id == agent.memory.recall("lantern")[0].id

    def failing() -> None:
        body()
        raise ValueError("not like this")

    with agent.run("band") as run:
        with pytest.raises(ValueError, match="not like this"):
            run.step(failing)
        assert agent.memory.recall("violin") == [], "what has failed has remembered nothing"
        which = run.step(body)
        assert agent.memory.recall("violin")[0].id == which
        for n in run.each([1, 2], key=str):
            made = agent.memory.remember(f"Song number {n} was played", kind="episodic")
            assert len(agent.memory.recall("which song?", kind="episodic")) == n
            assert len({made.id} & set(recall_in_other_thread(agent, "which song?"))) == 0
        assert run.effect(light)
    assert find_unrecorded_uses(agent._engine).keys() <= {memory.id for memory in agent.memory.list(all=True)}, (
        "only what there is is used"
    )
    check_views(agent)
    agent.close()


@pytest.mark.parametrize("embedder", [False, embed_letters], ids=["words", "meaning"])
@pytest.mark.parametrize("few", [candidates.RECALL_ALL, 10], ids=["all", "likely"])
def test_what_is_found_in_a_step_is_what_is_found_after_it(
    store_url: str, embedder: Any, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = make_texts(140)
    with closing(Agent("a", store=store_url, embedder=embedder)) as agent:
        agent.memory.remember_all(everything[:120], kind="episodic", thread="talk")
        agent.memory.remember("Where is the zeppelin?", kind="episodic", thread="talk", user="ann")
        agent.memory.recall("violin")  # another time the words would be counted anew
        monkeypatch.setattr(candidates, "RECALL_ALL", few)

        def recalled() -> list[Any]:
            asked = [*QUESTIONS, "which lovely lantern?", "the zeppelin"]
            return [
                summarize_found(agent.memory.recall(one, k=9, **more))
                for one in asked
                for more in ({}, {"user": "ann"})
            ]

        def listen() -> list[Any]:
            agent.memory.remember("Above the lake.", kind="episodic", thread="talk", user="ann")
            agent.memory.remember_all(everything[120:], kind="episodic", thread="talk")
            agent.memory.remember("What about a lovely lantern?", kind="episodic", thread="talk")
            agent.memory.remember("By the harbour, since then.", kind="episodic", thread="talk")
            return recalled()

        with agent.run("listening") as run:
            inside = run.step(listen)
            after = recalled()
        assert sum(map(len, inside)) > 50
        if few > 10 and not embedder:
            assert inside == after
        # Of many, what is known of all words is as old as the last time that they were counted.
        best = [
            [[(words, near) for _, _, words, near, _ in memory[:3]] for memory in found] for found in (inside, after)
        ]
        assert best[0] == best[1]


def test_what_was_said_around_it_comes_along(store_url: str) -> None:
    with closing(agent_at(store_url)) as agent:
        agent.memory.remember("Hello", kind="episodic", thread="talk", user="ann")

        def listen() -> list[list[str]]:
            for text, user in (("A lantern!", "ann"), ("For Bo only", "bo"), ("Bye", "ann")):
                agent.memory.remember(text, kind="episodic", thread="talk", user=user)
            [found] = agent.memory.recall("lantern", k=1, user="ann", around=2)
            [first] = agent.memory.recall("hello", k=1, user="ann", around=1)
            return [[memory.text for memory in one.around] for one in (found, first)]

        with agent.run("one") as run:
            assert run.step(listen) == [["Hello", "Bye"], ["A lantern!"]]


def test_what_is_true_only_later_ends_nothing_yet(store_url: str) -> None:
    with closing(agent_at(store_url)) as agent:
        paris = agent.memory.remember("Ann lives in Paris", about="ann.city", valid_from="2020-01-01")

        def learn() -> list[list[str]]:
            agent.memory.remember("Ann lives in Oslo", about="ann.city", valid_from="2999-01-01", supersedes=paris)
            asked = [agent.memory.recall("where does Ann live?", **memory) for memory in ({}, {"as_of": "2999-06-01"})]
            asked.append(agent.memory.recall("where does Ann live?", as_of="2021-01-01"))
            assert [memory.id for memory in agent.memory.list()] == [paris.id]
            return [sorted(memory.text for memory in one) for one in asked]

        with agent.run("one") as run:
            inside = run.step(learn)
        assert inside == [["Ann lives in Paris"], ["Ann lives in Oslo"], ["Ann lives in Paris"]]


def test_the_other_face_sees_it_too(store_url: str) -> None:
    async def main() -> None:
        agent = AsyncAgent("tester", store=store_url)

        async def listen() -> int:
            made = await agent.memory.remember("A parrot")
            await agent.memory.remember("A green parrot", supersedes=made)
            return len(await agent.memory.recall("parrot"))

        async with agent.run("one") as run:
            assert await run.step(listen) == 1
        await agent.close()

    asyncio.run(main())


def test_a_context_in_a_step_has_them_and_they_can_be_opened(store_url: str) -> None:
    long = "The violin: " + " ".join(f"note {n}" for n in range(400))
    with closing(agent_at(store_url)) as agent:

        def think() -> str:
            made = agent.memory.remember(long)
            text = run.context("the violin").text
            assert f"memory:{made.id}" in text
            return agent.open(f"memory:{made.id}")

        with agent.run("one") as run:
            assert run.step(think) == long


# -- naming each other ------------------------------------------------------------------------------------------------


def test_a_memory_of_the_same_step_can_be_replaced_and_made_use_of(store_url: str) -> None:
    with closing(agent_at(store_url)) as agent:

        def learn() -> list[str]:
            draft = agent.memory.remember("Ann lives in Rome", about="ann", trust=0.6)
            final = agent.memory.remember("Ann lives in Bern", about="ann", supersedes=draft)
            note = agent.memory.remember("Ann is in Switzerland", derived_from=[draft, final])
            assert (final.supersedes, note.derived_from, note.trust) == ((draft.id,), (draft.id, final.id), 0.6)
            assert [memory.id for memory in agent.memory.list(about="ann")] == [final.id]
            rumour = agent.memory.remember("Ann lives in Graz", about="ann", supersedes=final, trust="untrusted")
            assert (rumour.supersedes, rumour.contradicts) == ((), (final.id,))
            return [memory.id for memory in (draft, final, note, rumour)]

        with agent.run("one") as run:
            draft, final, note, rumour = run.step(learn)
        get = agent.memory.get
        assert (get(draft).superseded_by, get(draft).current, get(final).current) == (final, False, True)
        assert (set(get(note).derived_from), get(note).trust) == ({draft, final}, 0.6)
        assert (get(rumour).supersedes, final in get(rumour).contradicts) == ((), True)
        assert {memory.id for memory in agent.memory.list(about="ann")} == {rumour, final}
        check_views(agent)


def test_what_was_known_already_is_meant_by_the_name_that_it_got(store_url: str) -> None:
    with closing(agent_at(store_url)) as agent:
        first = agent.memory.remember("Ann lives in Rome", about="ann", source="handbook")

        def learn(trust: float) -> list[str]:
            again = agent.memory.remember("Ann lives in Rome!", about="ann", trust=trust)
            other = agent.memory.remember("Ann lives in Bern", about="ann", supersedes=again, trust=trust)
            note = agent.memory.remember("Somebody left Rome", derived_from=again)
            return [again.id, other.id, note.id]

        with agent.run("one") as run:
            again, rumour, note = run.step(learn, 0.1)
            assert agent.memory.get(again).id == first.id
            assert agent.memory.get(first).current, "whom nobody trusts has not replaced it"
            assert agent.memory.get(rumour).contradicts == (first.id,)
            assert (agent.memory.get(note).derived_from, agent.memory.get(note).trust) == ((first.id,), 0.1)
            _, bern, _ = run.step(learn, 1.0)
        assert agent.memory.get(first).superseded_by == bern
        assert agent.memory.get(first).count == 3
        report = agent.memory.rollback(source="handbook")
        assert note in report.derived
        check_views(agent)


def test_a_step_cannot_name_what_waits_for_the_item_around_it(store_url: str) -> None:
    with closing(agent_at(store_url)) as agent, agent.run("one") as run:
        for n in run.each([1], key=str):
            made = agent.memory.remember(f"Item {n}", about="item")
            with pytest.raises(
                MemoryNotFound, match="belongs to the enclosing item, which is committed after this step"
            ):
                run.step(lambda which: agent.memory.remember("Other", supersedes=which).id, made.id)
            agent.memory.remember(f"Item {n} is done", about="item", supersedes=made)
        assert [memory.text for memory in agent.memory.list()] == ["Item 1 is done"]


def test_what_a_step_forgets_again_does_not_land(store_url: str) -> None:
    agent = agent_at(store_url)
    stored = agent.memory.remember("The harbour gate code is 4711", about="code")

    def body() -> list[int]:
        by_id, by_name, by_text, kept, item = agent.memory.remember_all(
            [
                {"text": "walnut one", "meta": {"large": "x" * 9_000}},
                {"text": "walnut two", "about": "code"},
                "walnut three",
                "hazelnut",
                "walnut four",
            ]
        )
        newer = agent.memory.remember("hazelnut, not walnut", supersedes=kept)
        counts = [agent.memory.forget([by_id, item]).count, agent.memory.forget(about="code").count]
        counts += [agent.memory.forget(text="walnut three").count, agent.memory.forget(about="code").count]
        assert {memory.id for memory in agent.memory.list(all=True)} == {kept.id, newer.id}
        with pytest.raises(MemoryNotFound):
            agent.memory.get(by_name.id)
        assert by_text.id not in [memory.id for memory in agent.memory.recall("walnut")]
        return counts

    with agent.run("r") as run:
        assert run.step(body) == [2, 2, 1, 0]
    assert {memory.text for memory in agent.memory.list(all=True)} == {"hazelnut, not walnut", "hazelnut"}
    with pytest.raises(MemoryNotFound):
        agent.memory.get(stored.id)
    check_views(agent)


def test_what_was_replaced_in_a_commit_is_no_twin_of_what_follows(store_url: str) -> None:
    with closing(agent_at(store_url)) as agent:
        tea = agent.memory.remember("Ann drinks tea", about="ann.drink")

        def learn() -> None:
            agent.memory.remember("Ann drinks milk", about="ann.drink", supersedes=tea)
            agent.memory.remember("Ann drinks tea", about="ann.drink")

        with agent.run("one") as run:
            run.step(learn)
        assert sorted(memory.text for memory in agent.memory.list()) == ["Ann drinks milk", "Ann drinks tea"]
        assert not agent.memory.get(tea).current


# -- many about one thing ---------------------------------------------------------------------------------------------


def test_each_of_many_is_compared_with_a_few(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_writes, "MEMORIES_COMPARED_MAX", 5)
    monkeypatch.setattr(memory_writes, "SILENT_MAX", 40)
    monkeypatch.setattr(facts, "CONTRADICTIONS_MAX", 3)
    compared, judged = list[int](), facts.FactJudge.__call__

    def judge(self: facts.FactJudge, near: Any) -> Any:
        compared.append(len(near))
        return judged(self, near)

    monkeypatch.setattr(facts.FactJudge, "__call__", judge)
    with closing(agent_at(store_url)) as agent:
        texts = [f"Server {n} was seen in rack {n * 7}" for n in range(150)]
        made = agent.memory.remember_all(texts, about="servers.rack")
        assert len({memory.id for memory in made}) == 150
        assert len(compared) == 150 and max(compared) <= 2 * 5
        assert max(len(memory.contradicts) for memory in made) <= 2 * 3, "those that it names, and those that name it"
        assert set(made[-1].contradicts) == {memory.id for memory in made[-4:-1]}, "the newest"
        # The very same is known, however many have come since.
        assert [memory.id for memory in agent.memory.remember_all([texts[0], texts[70]], about="servers.rack")] == [
            made[0].id,
            made[70].id,
        ]
        assert agent.memory.get(made[70]).count == 2
        check_views(agent)


def test_the_same_many_times_is_counted(store_url: str) -> None:
    with closing(agent_at(store_url)) as agent:
        made = agent.memory.remember_all(["Ann is here"] * 40, about="ann")
        assert {(memory.id, memory.count) for memory in made} == {(made[0].id, 40)}
        for n in range(3):
            assert agent.memory.remember("Ann is here!", about="ann", source="mail").count == 41 + n
        check_views(agent)
        agent.memory.remember("Ann is here", about="ann", source="web")
        agent.memory.rollback(source="mail")
        assert agent.memory.get(made[0]).count == 41
        check_views(agent)
