"""Lists of runs: the newest of each status, without reading the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from perdure import Agent
from perdure.run.listing import list_runs, run_counts
from perdure.store.base import Statement

from .kit import Behind, run_in_child, wait_until

FIRST = (1 << 63) - 1
"""A place before the newest run, in the order of lists."""


def finish(agent: Agent, run_id: str) -> None:
    with agent.run(run_id) as run:
        run.result = 1


def crash(store_url: str) -> None:
    """A process ends inside a run."""

    def program() -> None:
        import os

        with Agent("one", store=store_url).run("dead"):
            os._exit(0)

    assert run_in_child(program) == 0


def test_the_first_of_a_list_are_those_of_the_whole_list(store_url: str) -> None:
    one, two = (Agent(name, store=store_url) for name in ("one", "two"))
    for number in range(4):
        finish(one, f"a{number}")
        finish(two, f"b{number}")
        with pytest.raises(ZeroDivisionError), one.run(f"c{number}"):
            1 / 0  # noqa: B018
    crash(store_url)
    store = one._engine.store
    for agent in (None, "one", "two", "nobody"):
        for status in (None, "finished", "failed", "crashed", "running", "queued"):
            whole = list_runs(store, agent, status)
            assert whole == sorted(whole, key=lambda run: run.changed_at, reverse=True)
            assert all(agent in (None, run.agent) and status in (None, run.status) for run in whole)
            for limit in (1, 3, 100):
                assert list_runs(store, agent, status, limit=limit) == whole[:limit]
    assert [run.id for run in one.runs.list("crashed", limit=2)] == ["dead"]
    assert len(list_runs(store)) == 13 == run_counts(store).total()
    assert run_counts(store)["one", one.runs.get("c0").status] == 4
    assert {run.id for run in list_runs(store, unfinished=True)} == {"dead", "c0", "c1", "c2", "c3"}


def test_a_short_list_reads_few_rows(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent("one", store=store_url)
    for number in range(30):
        finish(agent, f"a{number}")
    store, read = agent._engine.store, list[int]()
    whole = type(store).read_all

    def counted(self: object, queries: object) -> object:
        found = whole(self, queries)  # type: ignore[arg-type]
        read.append(sum(len(rows) for rows in found))
        return found

    monkeypatch.setattr(type(store), "read_all", counted)
    assert [run.id for run in agent.runs.list(limit=2)] == ["a29", "a28"]
    assert sum(read) == 2


class CommitsBetween(Sequence[Statement]):
    """Two queries; whatever asks for the second one lets somebody commit before it gets it."""

    def __init__(self, queries: list[Statement], commit: Callable[[], None]) -> None:
        self._queries, self._commit = queries, commit

    def __len__(self) -> int:
        return len(self._queries)

    def __getitem__(self, place: Any) -> Any:
        if place == 1:
            self._commit()
        return self._queries[place]


def test_a_run_whose_status_changes_is_listed_once(store_url: str) -> None:
    """Each status is a query of its own: one that left the first and came to the second would be in both lists."""
    agent = Agent("one", store=store_url)
    block = agent.run("r")
    block.__enter__()
    asked = [Statement("runs_in_status", ("one", status, FIRST, FIRST, 10)) for status in ("running", "finished")]
    queries = CommitsBetween(asked, lambda: block.__exit__(None, None, None))
    running, finished = agent._engine.store.read_all(queries)
    assert len(running) + len(finished) == 1
    assert agent.runs.get("r").status == "finished"


@pytest.mark.stores("postgres")
def test_on_a_server_a_list_is_of_one_moment(store_url: str) -> None:
    agent = Agent("one", store=store_url)
    finish(agent, "r")
    store = agent._engine.store
    asked = [Statement("get_meta", ("identity",)), Statement("runs_in_status", ("one", "finished", FIRST, FIRST, 10))]
    with Behind(store_url) as behind, ThreadPoolExecutor() as pool:
        behind.execute("BEGIN")
        behind.execute("UPDATE runs SET status = 'failed' WHERE id = 'r'")
        behind.execute("LOCK TABLE runs IN ACCESS EXCLUSIVE MODE")
        found = pool.submit(store.read_all, asked)
        waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'runs'::regclass"
        wait_until(lambda: bool(behind.execute(waits)))
        behind.execute("COMMIT")
        assert len(found.result()[1]) == 1, "as it was at the first query"


def test_a_run_that_ends_while_it_is_listed_has_not_crashed(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent("one", store=store_url)
    block = agent.run("r")
    block.__enter__()
    store, ends = agent._engine.store, [lambda: block.__exit__(None, None, None)]
    read = store.read

    def read_late(name: str, args: tuple[Any, ...] = ()) -> Any:
        if name == "read_lease" and ends:
            ends.pop()()
        return read(name, args)

    monkeypatch.setattr(store, "read", read_late)
    assert [run.status for run in list_runs(store)] == ["finished"]
    assert not ends
