"""What a commit stores, and what becomes of a run whose commit fails."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import apsw
import pytest

from perdure import AsyncAgent
from perdure.errors import LeaseLost, StorageFull
from perdure.platform import failpoints
from perdure.platform.failpoints import CommitMoment, Site

from .kit import Behind, agent_at, die, lose_lease, run_in_child


class Counting:
    """The statements that a connection executes meanwhile."""

    def __init__(self, connection: apsw.Connection, seen: list[str]) -> None:
        self._connection = connection
        self._seen = seen

    def __enter__(self) -> None:
        self._connection.exec_trace = lambda cursor, sql, bindings: self._seen.append(sql) is None

    def __exit__(self, *_: object) -> None:
        self._connection.exec_trace = None


@pytest.mark.stores("sqlite")
def test_a_message_costs_the_same_at_the_end_of_a_long_conversation(store_url: str) -> None:
    agent = agent_at(store_url)
    statements: list[int] = []
    with agent.run("r") as run:
        writer: apsw.Connection = agent._engine.store._writer  # type: ignore[attr-defined]
        for n in range(300):
            seen: list[str] = []
            with Counting(writer, seen):
                run.messages.append(f"message {n:04}")
            statements.append(len(seen))
    with Behind(store_url) as store:
        sizes = [length for (length,) in store.execute("SELECT length(body) FROM journal WHERE kind = 16")]
    assert len(sizes) == 300
    assert max(sizes) - min(sizes) <= 2  # the position grows from one byte to three
    assert len(set(statements)) == 1


@pytest.mark.stores("sqlite")
def test_a_failed_commit_takes_nothing_with_it_from_its_batch(store_url: str) -> None:
    # On a busy machine the writer may begin with the first before the others have come: then once more.
    attempt = next((n for n in range(20) if _write_in_one_transaction(store_url, n)), None)
    assert attempt is not None, "they were never in one transaction: this test shows nothing"
    agent = agent_at(store_url)
    states = [agent.runs.get(f"{name}-{attempt}").state for name in ("first", "lost", "last")]
    assert states == [{"value": "1"}, {}, {"value": "3"}]
    assert agent._engine.store.read("all_objects") == []


def _write_in_one_transaction(store_url: str, attempt: int) -> bool:
    """Write in three runs at once, one of which has lost its lease. Returns whether they shared a transaction."""
    values = {f"first-{attempt}": "1", f"lost-{attempt}": "x" * 10_000, f"last-{attempt}": "3"}

    async def write(agent: AsyncAgent, run_id: str, opened: asyncio.Semaphore, go: asyncio.Event) -> None:
        async with agent.run(run_id) as run:
            opened.release()
            await go.wait()
            await run.state.set("value", values[run_id])

    async def program() -> list[BaseException | None]:
        agent, opened, go = AsyncAgent("tester", store=store_url), asyncio.Semaphore(0), asyncio.Event()
        tasks = [asyncio.create_task(write(agent, run_id, opened, go)) for run_id in values]
        for _ in tasks:
            await opened.acquire()
        lose_lease(store_url, f"lost-{attempt}")
        go.set()  # all three wake up in one turn of the loop
        return await asyncio.gather(*tasks, return_exceptions=True)

    batches: list[str] = []
    failpoints.arm(lambda site, moment: batches.append(moment) if site is Site.WRITE else None)
    try:
        outcomes = asyncio.run(program())
    finally:
        failpoints.arm(None)
    assert [type(one) for one in outcomes] == [type(None), LeaseLost, type(None)]
    return batches.count(CommitMoment.BEGUN) == 1


@pytest.mark.stores("sqlite")
def test_after_a_failed_commit_the_run_goes_on_where_it_was(store_url: str) -> None:
    agent = agent_at(store_url)
    with agent.run("r") as run:
        run.state["a"] = 1
        writer: Any = agent._engine.store._writer  # type: ignore[attr-defined]
        pages = writer.pragma("page_count")
        writer.pragma("max_page_count", pages)
        with pytest.raises(StorageFull):
            run.state["big"] = os.urandom(200_000)
        writer.pragma("max_page_count", 1_000_000)
        assert run.state.get("big") is None
        run.state["b"] = 2
    info = agent.runs.get("r")
    assert (info.status, info.state) == ("finished", {"a": 1, "b": 2})


@pytest.mark.stores("sqlite")
def test_a_disk_that_fills_up_in_the_commit_takes_the_run_back(store_url: str) -> None:
    # Two writes of one run in one transaction: both have built on the head, and both are undone.
    refused: list[CommitMoment] = []

    def fill_up(site: Site, moment: CommitMoment) -> None:
        if site is Site.WRITE and moment is CommitMoment.WRITTEN and not refused:
            refused.append(moment)
            raise apsw.FullError("the disk is full")

    async def program(agent: AsyncAgent) -> None:
        async with agent.run("r") as run:
            await run.state.set("before", 1)
            failpoints.arm(fill_up)
            outcomes = await asyncio.gather(run.state.set("a", 1), run.state.set("b", 2), return_exceptions=True)
            assert [type(one) for one in outcomes] == [StorageFull, StorageFull]
            await run.state.set("after", 3)

    agent = AsyncAgent("tester", store=store_url)
    try:
        asyncio.run(program(agent))
    finally:
        failpoints.arm(None)
    info = agent_at(store_url).runs.get("r")
    assert (info.status, info.state, len(info.events)) == ("finished", {"before": 1, "after": 3}, 4)


def test_large_values_land_with_what_wrote_them(store_url: str) -> None:
    big = {name: name * 9_000 for name in "abcdef"}

    def program(stop: bool) -> None:
        def step() -> str:
            run.state["step"] = big["b"]
            return big["a"]

        agent = agent_at(store_url)
        with agent.run("r", input=big["f"]) as run:
            assert run.step(step) == big["a"]
            assert run.effect(lambda text: text, big["c"], name="effect") == big["c"]
            for _ in run.each([1]):
                run.state["item"] = big["d"]
            run.state["open"] = big["e"]
            if stop:
                die()

    assert run_in_child(lambda: program(stop=True)) == 9
    info = agent_at(store_url).runs.get("r")
    assert info.input == big["f"]
    assert info.state == {"step": big["b"], "item": big["d"], "open": big["e"]}
    program(stop=False)


def test_a_value_in_the_journal_is_stored_once(store_url: str) -> None:
    agent = agent_at(store_url)
    with agent.run("r") as run:
        for n in range(5):
            run.state[f"copy {n}"] = "the same " * 1_000
    assert len(agent._engine.store.read("all_objects")) == 1
