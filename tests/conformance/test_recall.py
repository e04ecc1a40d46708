"""Recall through an agent, on every store: what is found, among what, and why."""

from __future__ import annotations

import random
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent
from perdure.memory.recall import candidate_sources, candidates
from perdure.memory.recall.embedders import FunctionEmbedder

TOWNS = "Porto Lisbon Oslo Rome Paris Turin Bern Kyiv Cork Graz Lund Ghent".split()
THINGS = "train kitchen violin garden invoice harbour lantern bicycle novel sauna anchor parrot".split()


def embed_letters(texts: list[str]) -> list[list[float]]:
    """A model of sorts: texts with the same letters mean the same."""
    return [[text.casefold().count(letter) + 0.01 for letter in "aeiourstln"] for text in texts]


def make_texts(count: int, seed: int = 1) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    made = []
    for n in range(count):
        town, thing = chance.choice(TOWNS), chance.choice(THINGS)
        text = chance.choice([f"I saw a {thing} in {town}.", f"{town}?", f"The {thing} was lovely, number {n}."])
        day = date(2026, 1, 1) + timedelta(n // 10)
        made.append({"text": text, "user": chance.choice(["ann", "bo"]), "valid_from": day, "tags": [thing]})
    return made


QUESTIONS = ["Where did you see the violin?", "Who was in Oslo?", "a lovely sauna", "what happened on 5 January 2026?"]


def recall_texts(agent: Agent, question: str, **narrowed: Any) -> list[tuple[str, float]]:
    return [(memory.text, round(memory.score, 4)) for memory in agent.memory.recall(question, k=6, **narrowed)]


@pytest.mark.parametrize("embedder", [False, embed_letters], ids=["words", "meaning"])
def test_a_filter_leaves_what_an_agent_would_find_that_knows_nothing_else(store_url: str, embedder: Any) -> None:
    whole, half = (Agent(name, store=store_url, embedder=embedder) for name in ("whole", "half"))
    everything = make_texts(120)
    whole.memory.remember_all(everything, kind="episodic")
    half.memory.remember_all([item for item in everything if item["user"] == "ann"], kind="episodic")
    for question in QUESTIONS:
        assert recall_texts(whole, question, user="ann") == recall_texts(half, question) != []
    assert {memory.tags for memory in whole.memory.recall("lovely", tags="sauna", k=9)} == {("sauna",)}
    whole.close()
    half.close()


@pytest.mark.parametrize("embedder", [False, embed_letters], ids=["words", "meaning"])
def test_of_many_the_likely_ones_are_compared_and_the_same_is_found(
    store_url: str, embedder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Agent("a", store=store_url, embedder=embedder)) as agent:
        agent.memory.remember_all(make_texts(300), kind="episodic")
        all_of_it = [recall_texts(agent, question) for question in QUESTIONS]
        narrowed = [recall_texts(agent, question, user="ann") for question in QUESTIONS]
        monkeypatch.setattr(candidates, "RECALL_ALL", 10)
        assert [recall_texts(agent, question) for question in QUESTIONS] == all_of_it
        for exact in (candidates.RECALL_EXACT, 20):
            monkeypatch.setattr(candidates, "RECALL_EXACT", exact)
            monkeypatch.setattr(candidates, "RECALL_WIDE", exact)
            some = [recall_texts(agent, question, user="ann") for question in QUESTIONS]
            # What a word is worth is seen from all that the agent knows then.
            assert [[text for text, _ in value] for value in some] == [
                [text for text, _ in value] for value in narrowed
            ]


@pytest.mark.parametrize("exact", [1000, 12], ids=["listed", "asked one by one"])
def test_what_passes_a_filter_is_found_however_many_better_ones_do_not(
    store_url: str, exact: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By meaning, by words and by days, though few are drawn, and others would be drawn before them."""
    for module, name, value in (
        (candidates, "RECALL_ALL", 10),
        (candidates, "RECALL_EXACT", exact),
        (candidates, "RECALL_WIDE", exact),
        (candidate_sources, "RECALL_WORDS", 4),
        (candidate_sources, "RECALL_MEANING", 3),
        (candidate_sources, "OF_DAYS", 3),
    ):
        monkeypatch.setattr(module, name, value)
    better = [{"text": "violin uuuuuu", "user": "bo", "valid_from": "2026-05-02"} for _ in range(80)]
    better += [{"text": "violin violin", "user": "bo", "valid_from": "2026-05-02"} for _ in range(20)]
    worse = [{"text": f"rst {n} lll", "user": "ann", "valid_from": "2026-01-01"} for n in range(20)]
    wanted = [
        {"text": "uuuu tt", "user": "ann", "valid_from": "2025-01-01"},
        {"text": "a violin nn", "user": "ann", "valid_from": "2025-02-01"},
        {"text": "sss rrr", "user": "ann", "valid_from": "2026-05-04"},
    ]
    with closing(Agent("a", store=store_url, embedder=embed_letters)) as agent:
        wishes = []
        for number, item in enumerate([*better, *worse, *wanted]):
            wishes.append({**item, "thread": str(number), "meta": {"n": number}})
        agent.memory.remember_all(wishes, kind="episodic")
        for question, text in (("uuuuu", "uuuu tt"), ("violin?", "a violin nn")):
            assert agent.memory.recall(question, k=1, user="ann")[0].text == text
        assert "sss rrr" in [
            memory.text for memory in agent.memory.recall("on 3 May 2026", user="ann") if memory.why.time > 0.9
        ]
        assert agent.memory.recall("uuuuu violin?", k=1)[0].user == "bo"


def test_what_does_not_pass_lends_nothing_among_many_either(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "RECALL_ALL", 10)
    with closing(Agent("a", store=store_url, embedder=False)) as agent:
        agent.memory.remember_all(make_texts(40), kind="episodic", user="ann")
        for trust, text in ((0.1, "How did you travel to Ulm?"), (1.0, "By zeppelin."), (1.0, "It was cold.")):
            agent.memory.remember(text, trust=trust, kind="episodic", thread="one")
        why = [memory.why for memory in agent.memory.recall("cold Ulm", min_trust=0.5)]
        assert {word for reason in why for word in reason.words + reason.neighbours} == {"cold"}
        why = [memory.why for memory in agent.memory.recall("cold Ulm")]
        assert {word for reason in why for word in reason.neighbours} == {"cold", "ulm"}


def test_it_says_why(store_url: str) -> None:
    with closing(Agent("a", store=store_url, embedder=embed_letters)) as agent:
        agent.memory.remember("Where is the violin?", kind="episodic", valid_from="2026-05-02")
        agent.memory.remember("By the window, since last week.", kind="episodic", valid_from="2026-05-02")
        agent.memory.remember("Rice is cooked.", about="rice", valid_from="2020-01-01")
        [first, *_] = agent.memory.recall("Whose window has the violin in April 2026?")
        assert (first.text, first.why.words, first.why.neighbours, first.why.time) == (
            "By the window, since last week.", ("window",), ("violin",), 1.0,
        )  # fmt: skip
        assert first.why.meaning > 0.5 and first.why.event == f"entry {first.entry[1]} of stream {first.entry[0]}"
        assert "neighbours have violin" in str(first.why)


def test_what_others_have_forgotten_is_left_out_and_what_is_new_is_found(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "RECALL_ALL", 10)
    monkeypatch.setattr(candidate_sources, "RECALL_MEANING", 5)
    with closing(Agent("a", store=store_url, embedder=embed_letters)) as agent:
        agent.memory.remember_all(make_texts(60), kind="episodic")
        agent.memory.remember_all([f"Zanzibar number {n}" for n in range(20)], user="zoe", kind="episodic")
        assert {memory.user for memory in agent.memory.recall("Zanzibar number")} == {"zoe"}
        agent.memory.forget(user="zoe")
        assert {memory.user for memory in agent.memory.recall("Zanzibar number 3")} <= {"ann", "bo"}
        agent.memory.remember("A word that nobody has said: quokka")
        assert agent.memory.recall("quokka")[0].why.words == ("quokka",)


def test_what_was_said_around_it_is_for_the_same_eyes(store_url: str) -> None:
    with closing(Agent("a", store=store_url)) as agent:
        for user, trust in (("bo", 1.0), ("ann", 1.0), ("ann", 0.1)):
            agent.memory.remember(f"{user} sees a lantern", user=user, trust=trust, kind="episodic", thread="one")
        [found] = agent.memory.recall("lantern", user="ann", min_trust=0.5, around=2)
        assert (found.text, found.around) == ("ann sees a lantern", ())
        assert len(agent.memory.recall("lantern", k=1, around=2)[0].around) == 2


def test_a_time_that_is_asked_for_is_no_word(store_url: str) -> None:
    with closing(Agent("a", store=store_url, embedder="table")) as agent:
        for days, text in ((1, "Lunch with Maria at the harbour"), (9, "Saw the dentist"), (190, "We went hiking")):
            agent.memory.remember(text, kind="episodic", valid_from=datetime.now(UTC) - timedelta(days))
        assert agent.memory.recall("what happened yesterday?")[0].text == "Lunch with Maria at the harbour"
        [first, *_] = agent.memory.recall("a trip on foot")
        assert (first.why.words, first.text) == ((), "We went hiking") and any(
            " ~ " in name for name in first.why.alike
        )


def test_another_model_reads_everything_and_is_never_compared_with_the_one_before(store_url: str) -> None:
    asked: list[str] = []

    def flat(texts: list[str]) -> list[list[float]]:
        asked.extend(texts)
        return [[1.0, 2.0] for _ in texts]

    told: list[tuple[int, int]] = []
    with closing(Agent("a", store=store_url)) as agent:
        agent.memory.remember_all(["without a model", " ".join(["a long one."] * 100)])
        agent.memory.embedder = embed_letters
        agent.memory.remember("with the first")
        assert agent.memory.recall("model")[0].why.meaning != 0
        agent.memory.embedder = FunctionEmbedder(flat, id="flat")
        done = agent.memory.reembed(lambda *numbers: told.append(numbers))
        assert (done.embedder, done.memories, told[0][0], told[-1][0]) == ("flat", 3, 0, done.pieces) and len(asked) > 4
        assert {memory.why.meaning for memory in agent.memory.recall("model")} == {1.0}
        kept = agent._engine.store.read("vectors_page", (0, 100))
        assert {row[3] for row in kept} == {"flat"} and len(kept) == done.pieces
        assert agent.memory.reembed().memories == 0


@pytest.mark.stores("sqlite")
def test_a_vector_database_outside_finds_and_the_store_decides(store_url: str, tmp_path: Path) -> None:
    qdrant = pytest.importorskip("perdure.adapters.qdrant")
    index = qdrant.QdrantVectors(tmp_path / "vectors")
    with closing(Agent("a", store=store_url, embedder=embed_letters)) as agent, pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "RECALL_ALL", 10)
        agent.memory.remember_all(make_texts(100), kind="episodic")
        here = [recall_texts(agent, question) for question in QUESTIONS]
        agent.memory.vectors = index
        assert [recall_texts(agent, question) for question in QUESTIONS] == here
        agent.memory.remember("The parrot flew to Ulm", user="ann")
        assert recall_texts(agent, "parrot to Ulm")[0][0] == "The parrot flew to Ulm"
        [space] = {collection.name for collection in index._client.get_collections().collections}
        before = index.nearest(space, embed_letters(["parrot"])[0], 1000)
        agent.memory.forget(agent.memory.recall("parrot to Ulm", k=1)[0])
        assert len(set(before) - set(index.nearest(space, embed_letters(["parrot"])[0], 1000))) == 1
    index.close()


def test_neighbours_are_those_of_one_day_wherever_each_was_read(store_url: str) -> None:
    with closing(Agent("guide", store=store_url, embedder=False)) as agent:
        for number, text in enumerate(["How did you travel to Lisbon?", "By train, it took two days.", "Splendid!"]):
            agent.memory.remember(text, kind="episodic", user="bo", source=f"message {number}")
        found = {memory.text: memory.why.neighbours for memory in agent.memory.recall("travel to Lisbon")}
        assert found["By train, it took two days."] == ("travel", "lisbon")


def test_whom_and_what_it_is_about_are_words_of_it(store_url: str) -> None:
    with closing(Agent("guide", store=store_url, embedder=False)) as agent:
        agent.memory.remember("prefers the aisle", user="alice")
        agent.memory.remember("prefers the window", user="bo")
        agent.memory.remember("closed on Mondays", about="museum.hours")
        agent.memory.remember("a long queue", kind="episodic", tags=["zoo"], thread="trip")
        assert agent.memory.recall("What does Alice prefer?", k=1)[0].user == "alice"
        assert agent.memory.recall("When is the museum open?", k=1)[0].about == "museum.hours"
        assert agent.memory.recall("How was the zoo?", k=1)[0].why.words == ("zoo",)
