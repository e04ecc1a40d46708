"""What a process keeps between two questions: it saves parsing, and never finds what is gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from perdure import Agent
from perdure.memory import facts
from perdure.memory.pieces import ParsedPiece, parsed
from perdure.memory.recall import piece_cache, terms
from perdure.store.base import Row

from .kit import run_in_child

SECRET = "The code of the safe is Zanzibar7"


@pytest.fixture
def agent(store_url: str) -> Iterator[Agent]:
    with closing(agent_of(store_url)) as made:
        made.memory.remember_all([f"Message {number} about the harbour" for number in range(9)], kind="episodic")
        yield made


@pytest.fixture
def rows_parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the pieces that were parsed."""
    seen: list[int] = []

    def counted(row: Row, wanted: frozenset[str] | None = None) -> ParsedPiece:
        seen.append(row[0])
        return parsed(row, wanted)

    monkeypatch.setattr(piece_cache, "parsed", counted)
    return seen


def agent_of(store_url: str) -> Agent:
    return Agent("a", store=store_url, embedder=False)


def texts(agent: Agent, question: str, **narrowed: Any) -> list[str]:
    return [memory.text for memory in agent.memory.recall(question, k=20, **narrowed)]


def kept(agent: Agent) -> set[str]:
    """Every term that this process keeps of the agent."""
    cache: Any = piece_cache.cache_of(agent._engine)
    return {term for made in cache._kept.values() for term in made.terms.places}


def test_a_piece_is_parsed_once(agent: Agent, rows_parsed: list[int]) -> None:
    first = texts(agent, "Which message?")
    assert len(first) == len(rows_parsed) == 9
    assert texts(agent, "Which message?") == first
    assert len(rows_parsed) == 9
    agent.memory.remember("Message 10 about the lighthouse", kind="episodic")
    assert len(texts(agent, "Which message?")) == 10
    assert len(rows_parsed) == len(set(rows_parsed)) == 10


def test_what_another_process_remembers_and_forgets_is_seen_at_once(store_url: str, agent: Agent) -> None:
    def remember() -> None:
        with closing(agent_of(store_url)) as other:
            other.memory.remember(SECRET, kind="episodic")

    def forget() -> None:
        with closing(agent_of(store_url)) as other:
            [secret] = [memory for memory in other.memory.list() if memory.text == SECRET]
            other.memory.forget(secret.id)

    assert SECRET not in texts(agent, "the safe")
    assert run_in_child(remember) == 0
    assert SECRET in texts(agent, "the safe")
    assert SECRET in texts(agent, "the safe", kind="episodic")
    assert "zanzibar7" in kept(agent)
    assert run_in_child(forget) == 0
    assert SECRET not in texts(agent, "the safe")
    assert "zanzibar7" not in kept(agent)


def test_forgetting_drops_what_this_process_keeps_of_the_text(agent: Agent) -> None:
    secret = agent.memory.remember(SECRET, about="safe")
    agent.memory.remember("The safe is grey", about="safe")  # compared with what is known of its subject
    assert SECRET in texts(agent, "the safe")
    agent.memory.forget(secret.id)
    assert kept(agent) == set()
    assert facts._sense_in.cache_info().currsize == 0
    assert terms.stem.cache_info().currsize == terms._short_terms.cache_info().currsize == 0
    assert SECRET not in texts(agent, "the safe")


def test_a_piece_that_was_listed_but_is_gone_is_not_recalled(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process forgets it between the list and the answer: the text is read last, from the store."""
    secret = agent.memory.remember(SECRET, kind="episodic")
    assert SECRET in texts(agent, "the safe")
    among = piece_cache.PieceCache.among

    def forgotten_meanwhile(self: Any, *args: Any) -> Any:
        made = among(self, *args)
        if secret.id in [memory.id for memory in agent.memory.list()]:
            agent.memory.forget(secret.id)
        return made

    monkeypatch.setattr(piece_cache.PieceCache, "among", forgotten_meanwhile)
    assert SECRET not in texts(agent, "the safe")


def test_what_is_kept_has_a_limit(agent: Agent, rows_parsed: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piece_cache, "RECALL_CACHED", 12)
    texts(agent, "Which message?")
    texts(agent, "Which message?", kind="episodic")  # the same nine, under another filter: no room for both
    assert len(rows_parsed) == 18
    texts(agent, "Which message?", kind="episodic")
    assert len(rows_parsed) == 18
    texts(agent, "Which message?")
    assert len(rows_parsed) == 27
