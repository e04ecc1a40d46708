"""`agent.state`: live, versioned, shared by processes; it lands with the step, effect or item around it."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure import AsyncAgent, records
from perdure.errors import NotDurable, NotStorable, ValueTooLarge, VersionConflict, WriteInsideUpdate

from .kit import WallClock, agent_at, check_views, run_in_child, run_in_children

LARGE = list(range(20_000))


def test_what_is_set_is_there_for_everybody(store_url: str) -> None:
    agent = agent_at(store_url)
    assert agent.state.get("crawl", "page") is None
    assert agent.state.get("crawl", "page", 0) == 0
    agent.state.set("crawl", "page", (31, {"a": LARGE}))

    def other() -> None:
        again = agent_at(store_url)
        assert again.state.get("crawl", "page") == (31, {"a": LARGE})
        assert again.state.get("other", "page") is None

    assert run_in_child(other) == 0
    check_views(store_url)


def test_reading_makes_no_agent_known(store_url: str) -> None:
    agent = agent_at(store_url)
    assert agent.state.get("a", "b") is None
    assert agent.state.items("a") == []
    assert agent.state.history("a", "b") == []
    assert agent.state.at(0).items("a") == []
    assert agent.state.revision("a") == 0
    assert agent._engine.store.read("all_agents") == []


def test_namespaces_and_agents_are_apart(store_url: str) -> None:
    one, other = agent_at(store_url, "one"), agent_at(store_url, "other")
    one.state.set("a", "k", 1)
    one.state.set("b", "k", 2)
    other.state.set("a", "k", 3)
    assert [one.state.get("a", "k"), one.state.get("b", "k"), other.state.get("a", "k")] == [1, 2, 3]
    assert other.state.items("b") == []


def test_a_value_is_a_copy(store_url: str) -> None:
    agent, given = agent_at(store_url), {"list": [1]}
    agent.state.set("a", "k", given)
    given["list"].append(2)
    agent.state.get("a", "k")["list"].append(3)
    assert agent.state.get("a", "k") == {"list": [1]}


def test_versions_count_and_a_lost_race_shows_both_values(store_url: str) -> None:
    agent = agent_at(store_url)
    assert agent.state.version("a", "k") == 0
    assert agent.state.set("a", "k", "mine", if_version=0) == 1
    assert agent.state.set("a", "k", "theirs") == 2
    with pytest.raises(VersionConflict) as lost:
        agent.state.set("a", "k", LARGE, if_version=1)
    assert (lost.value.expected, lost.value.found) == (1, 2)
    assert (lost.value.yours, lost.value.theirs) == (LARGE, "theirs")
    with pytest.raises(VersionConflict):
        agent.state.set("a", "k", "new", if_version=0)
    with pytest.raises(VersionConflict):
        agent.state.delete("a", "k", if_version=1)
    assert agent.state.get("a", "k") == "theirs"
    assert agent.state.set("a", "k", "next", if_version=2) == 3
    check_views(store_url)


def test_what_is_deleted_is_gone_and_its_versions_go_on(store_url: str) -> None:
    agent = agent_at(store_url)
    assert agent.state.delete("a", "k") is False
    agent.state.set("a", "k", 1)
    assert agent.state.delete("a", "k") is True
    assert agent.state.delete("a", "k") is False
    assert agent.state.get("a", "k", "none") == "none"
    assert agent.state.items("a") == []
    assert agent.state.version("a", "k") == 0
    assert agent.state.set("a", "k", 2, if_version=0) == 3
    assert [(version.version, version.value, version.deleted) for version in agent.state.history("a", "k")] == [
        (1, 1, False),
        (2, None, True),
        (3, 2, False),
    ]
    check_views(store_url)


def test_items_are_in_the_order_of_their_keys(store_url: str) -> None:
    agent = agent_at(store_url)
    for key in ("b", "a", "C", "ä", "a b"):
        agent.state.set("n", key, key.upper())
    assert [key for key, _ in agent.state.items("n")] == sorted(["b", "a", "C", "ä", "a b"])
    assert dict(agent.state.items("n"))["ä"] == "Ä"


def test_what_has_a_time_to_live_is_gone_after_it(store_url: str, clock: WallClock) -> None:
    agent = agent_at(store_url)
    agent.state.set("a", "short", 1, ttl=timedelta(minutes=1))
    agent.state.set("a", "long", 2, ttl="2h")
    clock.advance(60)
    assert agent.state.get("a", "short") is None
    assert agent.state.items("a") == [("long", 2)]
    assert agent.state.version("a", "short") == 0
    assert agent.state.set("a", "short", 3, if_version=0) == 2
    assert agent.state.incr("a", "short") == 4
    for wrong in (0, -1, "soon", "5 parsecs", float("inf")):
        with pytest.raises(ValueError, match="ttl"):
            agent.state.set("a", "k", 1, ttl=wrong)
    with pytest.raises(TypeError, match="ttl"):
        agent.state.set("a", "k", 1, ttl=True)
    check_views(store_url)


@pytest.mark.parametrize("wrong", ["a\0b", "\ud800"])
def test_names_that_no_store_can_keep_are_refused(store_url: str, wrong: str) -> None:
    agent = agent_at(store_url)
    for names in ((wrong, "k"), ("a", wrong)):
        with pytest.raises(NotStorable):
            agent.state.set(*names, 1)
    with pytest.raises(ValueTooLarge):
        agent.state.set("a", "k" * 100_000, 1)
    with pytest.raises(TypeError):
        agent.state.set("a", 1, 1)  # type: ignore[arg-type]
    with pytest.raises(NotStorable, match=r"state\['a'\]\['k'\]"):
        agent.state.set("a", "k", object())


def test_update_is_given_what_is_there_and_its_error_changes_nothing(store_url: str) -> None:
    agent = agent_at(store_url)
    assert agent.state.update("a", "k", lambda seen: [*(seen or []), 1]) == [1]
    assert agent.state.update("a", "k", lambda seen: [*seen, LARGE]) == [1, LARGE]
    assert agent.state.update("a", "k", len) == 2

    def broken(value: Any) -> Any:
        raise ZeroDivisionError(value)

    with pytest.raises(ZeroDivisionError):
        agent.state.update("a", "k", broken)
    with pytest.raises(NotStorable):
        agent.state.update("a", "k", lambda value: object())
    for write in (
        lambda value: agent.state.set("b", "k", 1),
        lambda value: agent.state.incr("a", "k"),
        lambda value: agent.events.append("SEEN"),
        lambda value: agent.checkpoint.create("c", value),
    ):
        with pytest.raises(WriteInsideUpdate):
            agent.state.update("a", "k", write)
    with pytest.raises(WriteInsideUpdate), agent.run("r") as run:
        for _ in run.each([1]):
            run.step(lambda: agent.state.update("a", "k", lambda value: agent.state.incr("b", "k")), name="s")
    assert agent.state.items("b") == []
    assert agent.state.get("a", "k") == 2
    assert agent.state.update("a", "k", lambda value: agent.state.get("a", "k")) == 2
    assert agent.state.incr("a", "k", 0.5) == 2.5
    agent.state.set("a", "words", "x")
    with pytest.raises(TypeError):
        agent.state.incr("a", "words")
    check_views(store_url)


def test_the_past_can_be_read_by_version_and_by_time(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.state.set("a", "x", 1)
    agent.state.set("a", "y", LARGE)
    assert agent.state.revision("a") == 2
    time.sleep(0.005)
    between = datetime.now(UTC)
    time.sleep(0.005)
    agent.state.set("a", "x", 2)
    agent.state.delete("a", "y")
    agent.state.set("b", "x", 5)
    assert agent.state.at(0).items("a") == []
    assert agent.state.at(1).items("a") == [("x", 1)]
    assert agent.state.at(2).items("a") == agent.state.at(between).items("a") == [("x", 1), ("y", LARGE)]
    assert agent.state.at(3).get("a", "x") == 2
    assert agent.state.at(4).get("a", "y", "gone") == "gone"
    assert agent.state.at(between).items("b") == []
    with pytest.raises(TypeError, match="yesterday"):
        agent.state.at("yesterday").items("a")  # type: ignore[arg-type]


def test_a_revert_is_a_change_like_any_other(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.state.set("a", "x", 1)
    agent.state.set("a", "y", LARGE)
    agent.state.set("a", "x", 2)
    agent.state.delete("a", "y")
    agent.state.set("a", "z", 3)
    agent.state.set("b", "x", "kept")
    with pytest.raises(ValueError, match="'a', 'b'"):
        agent.state.revert(2)
    assert agent.state.revert(2, ns="a") == 3
    assert agent.state.items("a") == [("x", 1), ("y", LARGE)]
    assert agent.state.items("b") == [("x", "kept")]
    assert [version.value for version in agent.state.history("a", "x")] == [1, 2, 1]
    assert agent.state.revert(2, ns="a") == 0
    agent.state.set("a", "y", "other")

    @agent.step
    def back() -> int:
        agent.state.set("a", "x", "not for long")
        agent.state.revert(2, ns="a")
        assert agent.state.get("a", "x") == 1
        agent.state.update("a", "y", lambda seen: [*seen, 1])
        return len(agent.state.get("a", "y"))

    with agent.run("r"):
        assert back() == len(LARGE) + 1
    assert agent.state.get("a", "y") == [*LARGE, 1]
    assert agent.state.revert(datetime(1990, 1, 1, tzinfo=UTC)) == 3
    assert agent.state.items("a") == agent.state.items("b") == []
    check_views(store_url)


@pytest.mark.parametrize("theirs", ["x", "new"])
def test_a_revert_in_a_step_is_refused_when_others_change_the_namespace_meanwhile(store_url: str, theirs: str) -> None:
    """It was decided by what was there: another's change would be undone unseen, or stay beside an older state."""
    agent = agent_at(store_url)
    agent.state.set("a", "x", 1)
    agent.state.set("a", "x", 2)

    @agent.step
    def back() -> int:
        changed = agent.state.revert(1, ns="a")
        other = threading.Thread(target=agent.state.set, args=("a", theirs, "theirs"))  # not in this run
        other.start()
        other.join()
        return changed

    with pytest.raises(VersionConflict, match="'a' has changed"), agent.run("r"):
        back()
    assert agent.state.get("a", theirs) == "theirs"
    assert agent.state.get("a", "x") == ("theirs" if theirs == "x" else 2)
    check_views(store_url)


def test_one_key_of_the_past_is_read_alone(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = agent_at(store_url)
    for number in range(10):
        agent.state.set("a", f"k{number}", number)
    before = agent.state.revision("a")
    agent.state.set("a", "k3", "later")
    agent.state.delete("a", "k4")
    asked: list[str] = []
    read = agent._engine.store.read
    monkeypatch.setattr(agent._engine.store, "read", lambda name, args=(): (asked.append(name), read(name, args))[1])
    then = agent.state.at(before)
    assert [then.get("a", "k3"), then.get("a", "k4"), then.get("a", "none", "?")] == [3, 4, "?"]
    assert agent.state.at(before + 2).get("a", "k4", "gone") == "gone"
    assert "agent_state_at" not in asked
    assert asked.count("journal_entry") == 3


def test_a_transaction_is_all_or_nothing(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.state.set("bank", "alice", 100)
    with agent.state.transaction() as t:
        t.set("bank", "alice", t.get("bank", "alice") - 10)
        t.set("bank", "bob", t.get("bank", "bob", 0) + 10)
        t.incr("count", "transfers")
        assert t.get("bank", "alice") == 90
        assert t.get("count", "transfers") == 1
        assert agent.state.get("bank", "alice") == 100
    assert dict(agent.state.items("bank")) == {"alice": 90, "bob": 10}
    with pytest.raises(KeyError), agent.state.transaction() as t:
        t.set("bank", "alice", 0)
        t.delete("bank", "bob")
        raise KeyError
    with agent.state.transaction() as t:
        t.update("bank", "bob", lambda has: has + 1)
        t.delete("bank", "bob")
        assert t.get("bank", "bob", "closed") == "closed"
    assert dict(agent.state.items("bank")) == {"alice": 90}
    assert agent.state.get("count", "transfers") == 1
    check_views(store_url)


def test_a_transaction_that_relied_on_old_values_is_refused(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.state.set("a", "x", 1)
    with pytest.raises(VersionConflict), agent.state.transaction() as t:
        t.set("a", "y", t.get("a", "x") + 1)
        agent.state.set("a", "x", 5)
    assert agent.state.get("a", "y") is None


def test_a_transaction_that_is_not_open_takes_and_tells_nothing(store_url: str) -> None:
    agent = agent_at(store_url)
    never = agent.state.transaction()
    with agent.state.transaction() as over:
        over.set("a", "k", 1)
    with pytest.raises(ZeroDivisionError), agent.state.transaction() as failed:
        raise ZeroDivisionError
    for t in (never, over, failed):
        for use in (
            lambda t: t.set("a", "late", 1),
            lambda t: t.get("a", "k"),
            lambda t: t.delete("a", "k"),
            lambda t: t.update("a", "k", lambda value: 2),
            lambda t: t.incr("a", "k"),
        ):
            with pytest.raises(NotDurable, match=r"not open.*inside `with agent\.state"):
                use(t)
    assert agent.state.items("a") == [("k", 1)]
    with over:
        assert over.get("a", "k") == 1
        over.set("a", "again", 2)
        with pytest.raises(NotDurable, match="already open"), over:
            pass
    agent.state.set("a", "k", 5)
    with over:
        over.set("a", "sum", over.get("a", "k") + 1)
    assert agent.state.items("a") == [("again", 2), ("k", 5), ("sum", 6)]
    check_views(store_url)


async def test_an_asynchronous_transaction_that_is_not_open_takes_and_tells_nothing(store_url: str) -> None:
    agent = AsyncAgent("async", store=store_url)
    async with agent.state.transaction() as over:
        await over.set("a", "k", 1)
    for t in (over, agent.state.transaction()):
        with pytest.raises(NotDurable, match="not open"):
            await t.set("a", "late", 1)
        with pytest.raises(NotDurable, match="not open"):
            await t.get("a", "k")
    assert await agent.state.items("a") == [("k", 1)]
    await agent.close()


# -- many at once -----------------------------------------------------------------------------------------------------


def test_eight_processes_lose_nothing(store_url: str) -> None:
    agent_at(store_url).state.set("a", "start", True)
    rounds = 12

    def program() -> None:
        agent = agent_at(store_url)
        for _ in range(rounds):
            agent.state.incr("a", "count")
            agent.state.update("a", "who", lambda seen: [*(seen or []), os.getpid()])

    assert run_in_children(8, program) == [0] * 8
    agent = agent_at(store_url)
    assert agent.state.get("a", "count") == 8 * rounds
    assert len(agent.state.get("a", "who")) == 8 * rounds
    assert [version.version for version in agent.state.history("a", "count")] == list(range(1, 8 * rounds + 1))
    agent.state.incr("a", "count")  # the newest value is in the oldest stream: rebuilding must not go by streams
    check_views(store_url)


async def test_steps_side_by_side_land_whole_whether_they_write_to_the_agent_or_not(store_url: str) -> None:
    agent = AsyncAgent("async", store=store_url)

    @agent.step
    async def work(number: int) -> int:
        if number % 2:
            await agent.state.incr("a", "odd")
        return number

    async with agent.run("r"):
        assert await asyncio.gather(*(work(number) for number in range(40))) == list(range(40))
    info = await agent.runs.get("r")
    done = [event.record for event in info.events if isinstance(event.record, records.StepDone)]
    assert len(done) == 40
    assert await agent.state.get("a", "odd") == 20
    await agent.close()
    check_views(store_url)


def test_a_watcher_hears_of_another_process(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.state.set("a", "k", 0)
    heard: list[tuple[int, Any]] = []

    def listen() -> None:
        for change in agent.state.watch("a", "k"):
            heard.append((change.version, change.value))
            if change.value == "last":
                return

    listener = threading.Thread(target=listen)
    listener.start()
    while listener.is_alive():  # only what comes after its first look is news
        listener.join(0.3)
        assert run_in_child(lambda: agent_at(store_url).state.set("a", "k", "last")) == 0
    [(version, value)] = heard
    assert version >= 2 and value == "last"
    assert list(agent.state.watch("a", "k", timeout=0.05)) == []


async def test_the_asynchronous_side_is_the_same(store_url: str) -> None:
    agent = AsyncAgent("async", store=store_url)
    assert await agent.state.set("a", "k", 1) == 1
    assert await agent.state.incr("a", "k") == 2

    @agent.step
    async def work() -> None:
        await agent.state.incr("a", "k")

    async with agent.run("r"):
        await work()
    async with agent.state.transaction() as t:
        await t.set("a", "l", await t.get("a", "k") + 1)
    assert await agent.state.items("a") == [("k", 3), ("l", 4)]
    assert await agent.state.at(1).items("a") == [("k", 1)]
    assert [change async for change in agent.state.watch("a", "k", timeout=0.03)] == []
    await agent.close()


def test_a_large_namespace_is_read_page_by_page(store_url: str) -> None:
    agent = agent_at(store_url)
    keys = sorted(["", "a", "Z", "ä", "日", "𝄞", *(f"k{number:02}" for number in range(20))])
    with agent.state.transaction() as t:
        for number, key in enumerate(keys):
            t.set("s", key, number)
    agent.state.set("s", "k05", None, ttl=0.001)
    agent.state.delete("s", "k06")
    time.sleep(0.01)
    expected = [(key, number) for number, key in enumerate(keys) if key not in ("k05", "k06")]
    found: list[tuple[str, int]] = []
    while page := agent.state.items("s", after=found[-1][0] if found else None, limit=7):
        assert len(page) <= 7
        found += page
    assert found == expected == agent.state.items("s")
    assert agent.state.items("s", after="zzz") == [pair for pair in expected if pair[0] > "zzz"]
    with agent.run("r"):

        @agent.step
        def within() -> None:
            agent.state.delete("s", "k00")
            agent.state.set("s", "k001", -1)
            agent.state.set("s", "zz", -2)
            assert agent.state.items("s", after="k0", limit=2) == [("k001", -1), ("k01", dict(expected)["k01"])]
            whole = sorted([*(pair for pair in expected if pair[0] != "k00"), ("k001", -1), ("zz", -2)])
            for limit in range(1, len(whole) + 2):
                assert agent.state.items("s", limit=limit) == whole[:limit]

        within()
    assert agent.state.items("s", limit=sys.maxsize) == agent.state.items("s")
    for wrong in (0, -1, "7", True, 10**30):
        with pytest.raises(ValueError, match="must be an int from 1 to sys.maxsize"):
            agent.state.items("s", limit=wrong)  # type: ignore[arg-type]
    agent.close()


def test_incr_of_what_is_no_number_names_the_key(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.state.set("a", "k", {"n": 1})
    with pytest.raises(TypeError, match="'k' of 'a' is a dict"):
        agent.state.incr("a", "k")
    assert agent.state.get("a", "k") == {"n": 1}
