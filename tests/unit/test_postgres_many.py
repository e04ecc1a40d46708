"""Many statements of one kind as one: what is sent, in which order, and whose the rows are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from perdure import Agent
from perdure.errors import LeaseLost
from perdure.platform.failpoints import Site
from perdure.store.base import Rows, Script, Statement, UnitOfWork
from perdure.store.postgres.batch import MANY_MAX, MANY_MIN, MergedStatements
from tests.unit.units import behind

MARK = Statement("get_namespace_revision", (1, "a"))


def gets(count: int, first: int = 0) -> list[Statement]:
    return [Statement("get_agent_state", (1, "a", f"k{number}")) for number in range(first, first + count)]


def projections(count: int) -> list[Statement]:
    """As the journal makes them: those of each key together."""
    found = []
    for number in range(count):
        found.append(Statement("set_agent_state", (1, "a", f"k{number}", b"v", 1, number, 0, 0, 0, 0)))
        found.append(Statement("add_state_history", (1, "a", f"k{number}", number, 1, 1, 1, 0)))
    return found


def names(statements: list[Statement]) -> list[str]:
    return [one.name for one in MergedStatements(statements).sent]


def test_few_are_sent_as_they_are() -> None:
    few = [MARK, *gets(MANY_MIN - 1), *projections(MANY_MIN - 1)]
    gathered = MergedStatements(few)
    assert sorted(gathered.sent, key=str) == sorted(few, key=str)
    answers = {id(given): [(number,)] for number, given in enumerate(few)}
    assert gathered.distribute_rows([answers[id(sent)] for sent in gathered.sent]) == list(answers.values())


def test_many_are_sent_together_and_none_passes_another_statement() -> None:
    assert names([MARK, *gets(MANY_MIN), MARK]) == [
        "get_namespace_revision",
        "get_agent_state[]",
        "get_namespace_revision",
    ]
    parted = [*gets(MANY_MIN - 1), MARK, *gets(MANY_MIN - 1)]
    assert MergedStatements(parted).sent == parted
    assert names([*projections(MANY_MIN), MARK]) == [
        "set_agent_state[]",
        "add_state_history[]",
        "get_namespace_revision",
    ]
    assert names([*projections(MANY_MIN), *gets(MANY_MIN)]) == [
        "set_agent_state[]",
        "add_state_history[]",
        "get_agent_state[]",
    ]
    assert names(gets(2 * MANY_MAX + 3)) == ["get_agent_state[]", "get_agent_state[]", *["get_agent_state"] * 3]


def test_a_key_that_is_set_twice_is_set_one_after_the_other() -> None:
    twice = [*projections(MANY_MIN), *projections(MANY_MIN)]
    assert [one for one in MergedStatements(twice).sent if one.name == "set_agent_state"] == twice[::2]


def test_a_statement_that_must_do_something_stays_alone() -> None:
    watched = [Statement("get_agent_state", (1, "a", f"k{number}"), LeaseLost) for number in range(MANY_MIN)]
    assert MergedStatements(watched).sent == watched


def test_rows_go_to_whom_they_belong() -> None:
    given = [MARK, *gets(MANY_MIN), MARK]
    answers: list[Rows] = [[(7,)], [(MANY_MIN, b"last", 2), (1, b"first", 1)], []]
    spread = MergedStatements(given).distribute_rows(answers)
    assert len(spread) == len(given)
    assert (spread[0], spread[1], spread[MANY_MIN]) == ([(7,)], [(b"first", 1)], [(b"last", 2)])
    assert [one for one in spread if not one] == [[]] * (MANY_MIN - 1)


class Ask(UnitOfWork[list[Rows]]):
    """What statements answer."""

    site = Site.WRITE

    def __init__(self, statements: list[Statement]) -> None:
        self._statements = statements

    def script(self) -> Script[list[Rows]]:
        return (yield self._statements)


@pytest.fixture
def agent(store_url: str) -> Iterator[Agent]:
    other_agent = Agent("many", store=store_url)
    yield other_agent
    other_agent.close()


@pytest.mark.stores("postgres")
def test_a_server_answers_many_as_it_answers_one(agent: Agent) -> None:
    with agent.state.transaction() as t:
        for number in range(40):
            t.set("a", f"k{number}", number, ttl="1h" if number % 3 else None)
    agent.state.delete("a", "k5")
    store: Any = agent._engine.store
    [(owner,)] = behind(store, "SELECT DISTINCT owner FROM agent_state")
    found_by = (owner, "state", "a", "k6", "", 1, b"text", "", b"")
    columns = "owner, kind, space, key, part, version, text, embedder, vector"
    behind(store, f"INSERT INTO documents ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", found_by)
    wanted = [Statement("get_agent_state", (owner, "a", f"k{number}")) for number in (*range(50), 6, 6)]
    assert names(wanted) == ["get_agent_state[]"]
    found = store.submit(Ask(wanted))
    assert found == [store.read("get_agent_state", one.args) for one in wanted]
    assert [len(rows) for rows in found] == [1] * 40 + [0] * 10 + [1] * 2
    assert [place for place, rows in enumerate(found) if rows and rows[0][-1]] == [6, 50, 51]


@pytest.mark.stores("postgres")
def test_a_transaction_of_many_keys_is_few_statements(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    monkeypatch.setattr(
        "perdure.store.postgres.commit.MergedStatements",
        lambda given: (sent.extend(one.name for one in MergedStatements(given).sent), MergedStatements(given))[1],
    )
    with agent.state.transaction() as t:
        for number in range(2 * MANY_MAX):
            t.set("a", f"k{number}", number)
    reads = ["lock_namespace", "get_namespace_revision", *["get_agent_state[]"] * 2]
    writes = ["append_entry", *["set_agent_state[]"] * 2, *["add_state_history[]"] * 2, "set_namespace_revision"]
    assert sent == [*reads, *writes]
