"""Lists of runs: the newest of each status, without reading the others."""

from __future__ import annotations

import pytest

from perdure import Agent
from perdure.run.listing import list_runs, run_counts

from .kit import run_in_child


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
