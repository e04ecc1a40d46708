"""Many statements of one kind as one: what is sent, in which order, and whose the rows are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from perdure import Agent
from perdure.errors import LeaseLost
from perdure.failpoints import Site
from perdure.store.base import Rows, Script, Statement, Unit
from perdure.store.postgres_many import MANY_MAX, MANY_MIN, Gathered
from tests.unit.units import behind

MARK = Statement("get_space", (1, "a"))


def gets(count: int, first: int = 0) -> list[Statement]:
    return [Statement("get_entry", (1, "a", f"k{number}")) for number in range(first, first + count)]


def folds(count: int) -> list[Statement]:
    """As the journal makes them: those of each key together."""
    found = []
    for number in range(count):
        found.append(Statement("set_entry", (1, "a", f"k{number}", b"v", 1, number, 0, 0, 0, 0)))
        found.append(Statement("add_history", (1, "a", f"k{number}", number, 1, 1, 1, 0)))
    return found


def names(statements: list[Statement]) -> list[str]:
    return [one.name for one in Gathered(statements).sent]


def test_few_are_sent_as_they_are() -> None:
    few = [MARK, *gets(MANY_MIN - 1), *folds(MANY_MIN - 1)]
    gathered = Gathered(few)
    assert sorted(gathered.sent, key=str) == sorted(few, key=str)
    answers = {id(given): [(number,)] for number, given in enumerate(few)}
    assert gathered.spread([answers[id(sent)] for sent in gathered.sent]) == list(answers.values())


def test_many_are_sent_together_and_none_passes_another_statement() -> None:
    assert names([MARK, *gets(MANY_MIN), MARK]) == ["get_space", "get_entry[]", "get_space"]
    parted = [*gets(MANY_MIN - 1), MARK, *gets(MANY_MIN - 1)]
    assert Gathered(parted).sent == parted
    assert names([*folds(MANY_MIN), MARK]) == ["set_entry[]", "add_history[]", "get_space"]
    assert names([*folds(MANY_MIN), *gets(MANY_MIN)]) == ["set_entry[]", "add_history[]", "get_entry[]"]
    assert names(gets(2 * MANY_MAX + 3)) == ["get_entry[]", "get_entry[]", *["get_entry"] * 3]


def test_a_key_that_is_set_twice_is_set_one_after_the_other() -> None:
    twice = [*folds(MANY_MIN), *folds(MANY_MIN)]
    assert [one for one in Gathered(twice).sent if one.name == "set_entry"] == twice[::2]


def test_a_statement_that_must_do_something_stays_alone() -> None:
    watched = [Statement("get_entry", (1, "a", f"k{number}"), LeaseLost) for number in range(MANY_MIN)]
    assert Gathered(watched).sent == watched


def test_rows_go_to_whom_they_belong() -> None:
    given = [MARK, *gets(MANY_MIN), MARK]
    answers: list[Rows] = [[(7,)], [(MANY_MIN, b"last", 2), (1, b"first", 1)], []]
    spread = Gathered(given).spread(answers)
    assert len(spread) == len(given)
    assert (spread[0], spread[1], spread[MANY_MIN]) == ([(7,)], [(b"first", 1)], [(b"last", 2)])
    assert [one for one in spread if not one] == [[]] * (MANY_MIN - 1)


class Ask(Unit[list[Rows]]):
    """What statements answer."""

    site = Site.WRITE

    def __init__(self, statements: list[Statement]) -> None:
        self._statements = statements

    def script(self) -> Script[list[Rows]]:
        return (yield self._statements)


@pytest.fixture
def agent(store_url: str) -> Iterator[Agent]:
    it = Agent("many", store=store_url)
    yield it
    it.close()


@pytest.mark.stores("postgres")
def test_a_server_answers_many_as_it_answers_one(agent: Agent) -> None:
    with agent.state.transaction() as t:
        for number in range(40):
            t.set("a", f"k{number}", number, ttl="1h" if number % 3 else None)
    agent.state.delete("a", "k5")
    store: Any = agent._engine.store
    [(owner,)] = behind(store, "SELECT DISTINCT owner FROM entries")
    found_by = (owner, "state", "a", "k6", "", 1, b"text", "", b"")
    columns = "owner, kind, space, key, part, version, text, embedder, vector"
    behind(store, f"INSERT INTO documents ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", found_by)
    wanted = [Statement("get_entry", (owner, "a", f"k{number}")) for number in (*range(50), 6, 6)]
    assert names(wanted) == ["get_entry[]"]
    found = store.submit(Ask(wanted))
    assert found == [store.read("get_entry", one.args) for one in wanted]
    assert [len(rows) for rows in found] == [1] * 40 + [0] * 10 + [1] * 2
    assert [place for place, rows in enumerate(found) if rows and rows[0][-1]] == [6, 50, 51]


@pytest.mark.stores("postgres")
def test_a_transaction_of_many_keys_is_few_statements(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    monkeypatch.setattr(
        "perdure.store.postgres_commit.Gathered",
        lambda given: (sent.extend(one.name for one in Gathered(given).sent), Gathered(given))[1],
    )
    with agent.state.transaction() as t:
        for number in range(2 * MANY_MAX):
            t.set("a", f"k{number}", number)
    reads = ["lock_space", "get_space", *["get_entry[]"] * 2]
    writes = ["append_event", *["set_entry[]"] * 2, *["add_history[]"] * 2, "set_space"]
    assert sent == [*reads, *writes]
