"""What the tables of the semantics leave between their rows: found by mutants that no other test noticed."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import apsw
import pytest

from perdure import Agent, AsyncAgent, NotDone, RunBusy, failpoints
from perdure.errors import LeaseLost, StorageFull
from perdure.failpoints import Moment, Site
from perdure.records import EffectAgain, RunResumed

from .kit import Behind, World, agent_at, die, in_child, killed_at, lose_lease


def test_the_fence_is_compared_with_every_write(store_url: str, world: World) -> None:
    # The old holder's next entry would fit the chain: nothing but the fence stands between it and the journal.
    agent = agent_at(store_url)

    def program() -> None:
        with agent.run("r") as run:
            run.state["mine"] = 1
            lose_lease(store_url, "r")
            with pytest.raises(LeaseLost):
                run.state["mine"] = 2
            with pytest.raises(LeaseLost):
                run.step(lambda: 1, name="one")
            with pytest.raises(LeaseLost):
                run.effect(lambda: world.do("paid"), name="pay")

    with pytest.raises(LeaseLost):
        program()
    info = agent.runs.get("r")
    assert (info.state, len(info.events), world.all()) == ({"mine": 1}, 2, [])


def test_every_takeover_has_a_fence_of_its_own(store_url: str) -> None:
    for _ in range(3):
        assert in_child(lambda: agent_at(store_url).run("r").__enter__() and die()) == 9
    with agent_at(store_url).run("r"):
        pass
    entries = [event.record for event in agent_at(store_url).runs.get("r").events]
    assert [entry.fence for entry in entries if isinstance(entry, RunResumed)] == [2, 3, 4]


@pytest.mark.parametrize("how", ["finished", "failed", "interrupted"])
def test_a_run_that_ended_is_free_while_its_process_lives_on(store_url: str, how: str) -> None:
    ready, release = os.pipe(), os.pipe()
    leave = {"finished": None, "failed": ValueError("stop"), "interrupted": KeyboardInterrupt()}[how]

    def use_and_live_on() -> None:
        agent = agent_at(store_url)
        try:
            with agent.run("r"):
                if leave is not None:
                    raise leave
        except (ValueError, KeyboardInterrupt):
            pass
        os.write(ready[1], b"x")
        os.read(release[0], 1)

    thread = threading.Thread(target=lambda: in_child(use_and_live_on))
    thread.start()
    os.read(ready[0], 1)
    try:
        agent = agent_at(store_url)
        assert agent.runs.get("r").status == how
        assert agent.runs.get("r").summary.holder == ""
        with agent.run("r") as run:
            assert run.resumed
    finally:
        os.write(release[1], b"x")
        thread.join()


def test_a_run_is_busy_in_its_process_for_an_agent_of_another_durability(store_url: str) -> None:
    # Two doors to one file in one process: each has a holder of its own, and both are alive.
    with agent_at(store_url).run("r") as run:
        with (
            pytest.raises(RunBusy, match="this process"),
            Agent("tester", store=store_url, durability="process").run("r"),
        ):
            pass
        run.state["mine"] = 1


def test_who_slept_past_the_lease_between_intent_and_body_does_not_act(store_url: str, world: World) -> None:
    agent = agent_at(store_url)

    def sleep_too_long(site: Site, moment: Moment) -> None:
        if (site, moment) == (Site.EFFECT_INTENT, Moment.AFTER):
            agent._engine.tenancy._deadline = 0
            lose_lease(store_url, "r")

    failpoints.arm(sleep_too_long)
    try:
        with pytest.raises(LeaseLost), agent.run("r") as run:
            run.effect(lambda: world.do("paid"), name="pay")
    finally:
        failpoints.arm(None)
    assert world.all() == []


def test_an_old_deadline_alone_loses_nothing(store_url: str, world: World) -> None:
    agent = agent_at(store_url)
    with agent.run("r") as run:
        agent._engine.tenancy._deadline = 0
        run.effect(lambda: world.do("paid"), name="pay")
        assert not agent._engine.tenancy.expired()
    assert world.all() == ["paid"]


def test_the_pause_before_a_retry_is_kept_and_survives_a_crash(
    store_url: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program() -> None:
        agent = agent_at(store_url)

        @agent.step(retries=2, backoff=30)
        def flaky() -> None:
            world.do("attempt")
            if world.count("attempt") < 3:
                raise ConnectionError("down")

        with agent.run("r"):
            flaky()

    killed_at(program, Site.ATTEMPT_FAILED, Moment.AFTER)
    slept: list[float] = []
    monkeypatch.setattr("perdure.clock.SystemClock.sleep", lambda clock, seconds: slept.append(seconds))
    program()
    # In slices, between which it listens for orders.
    assert 59 + 10 < sum(slept) < 60 + 30, "what is left of the first pause, and the second, which is twice as long"


@pytest.mark.parametrize("how", ["raises", "check"])
def test_the_attempts_of_an_effect_are_counted_across_a_crash(store_url: str, world: World, how: str) -> None:
    def program() -> None:
        agent = agent_at(store_url)

        @agent.effect(retries=3, backoff=0.001, check=(lambda *, key: NotDone) if how == "check" else None)
        def pay(*, key: str) -> None:
            world.do(key)
            raise NotDone("no money") if how == "raises" else TimeoutError("who knows")

        with agent.run("r"):
            pay()

    killed_at(program, Site.ATTEMPT_FAILED, Moment.AFTER, nth=2)
    assert len(world.all()) == 2
    assert in_child(program) != 0
    assert len(world.all()) == 4
    assert len(set(world.all())) == 1


def test_an_effect_that_failed_for_certain_keeps_its_key_over_a_new_process(store_url: str, world: World) -> None:
    def program() -> None:
        agent = agent_at(store_url)

        @agent.effect
        def pay(*, key: str) -> None:
            world.do(key)
            if len(world.all()) == 1:
                raise NotDone("no money")

        with agent.run("r"):
            pay()

    assert in_child(program) != 0
    program()
    assert len(world.all()) == 2
    assert len(set(world.all())) == 1
    again = [event for event in agent_at(store_url).runs.get("r").events if isinstance(event.record, EffectAgain)]
    assert len(again) == 1


def test_code_outside_of_steps_runs_again(store_url: str, world: World) -> None:
    def program() -> None:
        agent = agent_at(store_url)
        with agent.run("r") as run:
            world.do("outside")
            run.step(lambda: world.do("inside"), name="inside")
            run.state["a"] = 1

    killed_at(program, Site.WRITE, Moment.AFTER)
    program()
    assert world.all() == ["outside", "inside", "outside"]


def test_an_effect_without_check_that_is_declared_repeatable_can_happen_twice(store_url: str, world: World) -> None:
    def program() -> None:
        with agent_at(store_url).run("r") as run:
            run.effect(lambda: world.do("paid"), name="pay", in_doubt="retry")

    killed_at(program, Site.EFFECT_OUTCOME, Moment.BEFORE)
    program()
    assert world.count("paid") == 2


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
        sizes = [length for (length,) in store.execute("SELECT length(body) FROM events WHERE kind = 16")]
    assert len(sizes) == 300
    assert max(sizes) - min(sizes) <= 2  # the position grows from one byte to three
    assert len(set(statements)) == 1


@pytest.mark.stores("sqlite")
def test_a_failed_commit_takes_nothing_with_it_from_its_batch(store_url: str) -> None:
    values = {"first": "1", "lost": "x" * 10_000, "last": "3"}

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
        lose_lease(store_url, "lost")
        go.set()  # all three wake up in one turn of the loop, and so their writes share a transaction
        return await asyncio.gather(*tasks, return_exceptions=True)

    batches: list[str] = []
    failpoints.arm(lambda site, moment: batches.append(moment) if site is Site.WRITE else None)
    try:
        outcomes = asyncio.run(program())
    finally:
        failpoints.arm(None)
    assert batches.count(Moment.BEGUN) == 1, "they were not in one transaction: this test shows nothing"
    assert [type(one) for one in outcomes] == [type(None), LeaseLost, type(None)]
    agent = agent_at(store_url)
    states = [agent.runs.get(run_id).state for run_id in values]
    assert states == [{"value": "1"}, {}, {"value": "3"}]
    assert agent._engine.store.read("all_objects") == []


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
def test_a_disk_that_fills_up_in_the_commit_itself_takes_the_run_back_to_where_it_was(store_url: str) -> None:
    # Two writes of one run in one transaction: both have built on the head, and both are undone.
    refused: list[Moment] = []

    def fill_up(site: Site, moment: Moment) -> None:
        if site is Site.WRITE and moment is Moment.WRITTEN and not refused:
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

    assert in_child(lambda: program(stop=True)) == 9
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
