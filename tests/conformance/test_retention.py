"""What is not needed any more goes, and nothing else: expired keys, old checkpoints, large values nobody refers to."""

from __future__ import annotations

import itertools
import os
import time
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from perdure import Agent, AsyncAgent
from perdure.data import state
from perdure.errors import CheckpointNotFound
from perdure.journal.object_gc import SweepObjects, collect, iterate_unused, mark_live
from perdure.kernel.protocol import drive_sync
from perdure.platform.failpoints import CommitMoment, Site
from perdure.values.limits import SWEEP_KEYS_MAX, SWEEP_WRITES
from perdure.work.threads import prune, retention
from perdure.work.threads.write import NewThreadCheckpoint, put_checkpoint

from .kit import agent_at, check_views, kill_at, run_children, run_in_child
from .test_checkpoints import noise


def write_expired_keys(agent: Agent, count: int) -> None:
    """Keys whose time has run out."""
    with agent.state.transaction() as t:
        for number in range(count):
            t.set("short", f"k{number}", noise(number, 50), ttl=0.001)
    time.sleep(0.005)


def rows_with_a_value(agent: Agent) -> set[str]:
    return {row[2] for row in agent._engine.store.read("all_agent_state") if row[3]}


# -- state ------------------------------------------------------------------------------------------------------------


def test_expired_keys_are_told_and_then_deleted_by_events(store_url: str) -> None:
    agent = agent_at(store_url)
    write_expired_keys(agent, 3)
    agent.state.set("short", "live", 1, ttl="1h")
    agent.state.set("short", "ever", 2)
    told = agent.gc(dry_run=True)
    assert (told.dry_run, told.state.count, rows_with_a_value(agent)) == (True, 3, {"k0", "k1", "k2", "live", "ever"})
    assert str(told) == "would free 3 expired keys of state"
    assert agent.gc().state == told.state
    assert rows_with_a_value(agent) == {"live", "ever"}
    assert agent.gc(dry_run=True).nothing
    assert [(version.version, version.deleted) for version in agent.state.history("short", "k1")] == [
        (1, False),
        (2, True),
    ]
    assert agent.state.set("short", "k1", "again", if_version=0) == 3
    check_views(store_url)


def test_a_key_that_was_set_again_is_not_swept_away(store_url: str) -> None:
    agent = agent_at(store_url)
    write_expired_keys(agent, 2)
    asks = state.overdue(agent._engine, 10)
    agent.state.set("short", "k0", "again")
    landed = drive_sync(agent._engine.store, state.land(agent._engine, Site.STATE, asks))
    assert [item.key for item in landed if hasattr(item, "key")] == ["k1"]
    assert agent.state.get("short", "k0") == "again"


def test_writing_takes_expired_keys_along_a_few_at_a_time(store_url: str) -> None:
    agent = agent_at(store_url)
    write_expired_keys(agent, SWEEP_KEYS_MAX + 5)
    before = agent.state.revision("busy")
    for number in range(2 * SWEEP_WRITES):
        assert agent.state.set("busy", "n", number) == number + 1
        if number == SWEEP_WRITES:
            assert len(rows_with_a_value(agent)) == 6
    assert rows_with_a_value(agent) == {"n"}
    assert agent.state.revision("busy") == before + 2 * SWEEP_WRITES
    assert agent.state.delete("busy", "never there") is False
    check_views(store_url)


# -- checkpoints ------------------------------------------------------------------------------------------------------


def versions(agent: Agent, name: str) -> list[int]:
    return [checkpoint.version for checkpoint in agent.checkpoint.list() if checkpoint.name == name]


def test_the_last_ones_are_kept_and_those_with_a_label(store_url: str) -> None:
    agent = agent_at(store_url)
    for number in range(7):
        labels = ["release"] if number == 1 else []
        assert agent.checkpoint.create("c", [noise(number)], labels=labels, keep_last=3) == number + 1
        assert len(versions(agent, "c")) <= 4
    assert versions(agent, "c") == [2, 5, 6, 7]
    with pytest.raises(CheckpointNotFound):
        agent.checkpoint.restore("c", 4)
    other = agent_at(store_url)
    assert other.checkpoint.create("c", 8) == 8, "the rule is remembered, in whichever process"
    assert versions(agent, "c") == [2, 6, 7, 8]
    other.checkpoint.retain("c")
    other.checkpoint.create("c", 9)
    assert versions(agent, "c") == [2, 6, 7, 8, 9]
    for wrong in (0, -1, "3", True):
        with pytest.raises(ValueError, match="keep_last"):
            agent.checkpoint.create("c", 1, keep_last=wrong)  # type: ignore[arg-type]
    check_views(store_url)


def test_old_ones_go_but_never_the_newest(store_url: str) -> None:
    agent = agent_at(store_url)
    for name in ("crawl-1", "crawl-2", "other"):
        for number in range(3):
            agent.checkpoint.create(
                name, [noise(number, 5000)], labels=["kept"] if name + str(number) == "crawl-20" else ()
            )
    agent.checkpoint.retain("crawl-*", keep_for="1ms")
    agent.checkpoint.retain("crawl-2*", keep_for=timedelta(days=30), keep_last=2)
    assert [(rule.name, rule.keep_last, rule.keep_for) for rule in agent.checkpoint.retention()] == [
        ("crawl-*", None, timedelta(milliseconds=1)),
        ("crawl-2*", 2, timedelta(days=30)),
    ]
    time.sleep(0.005)
    told = agent.gc(dry_run=True)
    assert told.checkpoints.count == 2
    freed = agent.gc()
    assert (freed.checkpoints, freed.objects) == (told.checkpoints, told.objects)
    assert versions(agent, "crawl-1") == [3]
    assert versions(agent, "crawl-2") == [1, 2, 3], "a label pins"
    assert versions(agent, "other") == [1, 2, 3]
    assert agent.checkpoint.create("crawl-1", "next") == 4
    check_views(store_url)


def test_it_lands_with_the_step_that_makes_them(store_url: str) -> None:
    agent = agent_at(store_url)

    @agent.step
    def work(number: int) -> None:
        agent.checkpoint.create("c", number, keep_last=2)
        *landed, mine = versions(agent, "c")
        assert (len(landed), mine) == (min(number, 2), 0), "what waits is seen here, without a number"

    with agent.run("r") as run:
        for number in range(4):
            work(number)
        run.checkpoint("c", "from the run")
    assert versions(agent, "c") == [4, 5]
    agent.state.set("a", "k", 1)
    then = agent.state.revision("a")
    agent.state.set("a", "k", 2)
    assert agent.state.revert(then) == 1, "the rules are no namespace of the user's"
    check_views(store_url)


# -- large values -----------------------------------------------------------------------------------------------------


def write_repeatedly(store_url: str, number: int) -> None:
    """Makes and deletes checkpoints with the same few parts again and again: each is garbage every other moment."""
    agent = agent_at(store_url)
    for turn in itertools.count():
        value = [noise(part, 3000) for part in range(turn % 3, 6)]
        agent.checkpoint.create(f"c{number}", value)
        assert agent.checkpoint.restore(f"c{number}") == value
        agent.checkpoint.delete(f"c{number}")
        agent.state.set("s", f"k{number}", noise(turn % 4, 6000))
        assert agent.state.get("s", f"k{number}") == noise(turn % 4, 6000)
        agent.state.set("turns", f"k{number}", turn)


def test_nothing_vanishes_that_somebody_is_about_to_refer_to(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.state.set("s", "k", 1)
    freed = 0
    with run_children(*(partial(write_repeatedly, store_url, number) for number in range(2))) as writers:
        while freed < 20 or min(agent.state.get("turns", f"k{number}", 0) for number in range(2)) < 20:
            freed += collect(agent._engine.store).objects
            assert [os.waitpid(pid, os.WNOHANG) for pid in writers] == [(0, 0), (0, 0)], "a writer missed a value"
    check_views(store_url)


def test_what_is_referred_to_again_after_the_look_stays(store_url: str) -> None:
    agent = agent_at(store_url)
    value = [noise(number, 3000) for number in range(20)]
    agent.checkpoint.create("before", value)
    agent.checkpoint.delete("before")
    store = agent._engine.store
    marks = mark_live(store)
    pages = list(iterate_unused(store, marks))
    assert pages
    agent.checkpoint.create("after", value)
    assert sum(store.submit(SweepObjects(marks, page)).objects for page in pages) == 0
    assert agent.checkpoint.restore("after") == value
    check_views(store_url)


# -- killed -----------------------------------------------------------------------------------------------------------


def test_killed_anywhere_it_can_be_done_again(store_url: str) -> None:
    agent = agent_at(store_url)
    kept = [noise(900 + number, 5000) for number in range(5)]
    agent.checkpoint.create("kept", kept)
    agent.close()
    shrinks = store_url.startswith("sqlite")
    for site in (Site.STATE, Site.CHECKPOINT, Site.COLLECT, *([Site.SHRINK] if shrinks else [])):
        for moment in CommitMoment:
            agent = agent_at(store_url)
            write_expired_keys(agent, 3)
            for number in range(3):
                agent.checkpoint.create("old", [noise(number, 20_000)])
            agent.checkpoint.retain("old", keep_last=1)
            agent.close()
            kill_at(lambda: agent_at(store_url).gc(vacuum=True), site, moment)
            agent_at(store_url).gc()
            agent = agent_at(store_url)
            assert agent.gc(dry_run=True).nothing
            assert len(versions(agent, "old")) == 1
            assert agent.checkpoint.restore("kept") == kept
            agent.checkpoint.retain("old")
            agent.close()
    check_views(store_url)


def test_the_file_becomes_smaller(store_url: str) -> None:
    agent = agent_at(store_url)
    for _ in range(20):
        agent.checkpoint.create("c", os.urandom(60_000))
    agent.checkpoint.retain("c", keep_last=1)
    report = agent.gc()
    assert report.objects.bytes > 1_000_000
    if store_url.startswith("sqlite"):
        path = store_url.removeprefix("sqlite:///")
        assert os.path.getsize(path) == report.bytes_after < report.bytes_before // 3
        assert os.path.getsize(path + "-wal") == 0
    check_views(store_url)


async def test_the_asynchronous_side_is_the_same(store_url: str) -> None:
    agent = AsyncAgent("async", store=store_url)
    assert (await agent.gc()).nothing
    await agent.state.set("s", "k", 1, ttl=0.001)
    for number in range(3):
        await agent.checkpoint.create("c", number, keep_last=1)
    async with agent.autosave(lambda: {"n": 1}, every=1, name="a", keep_last=1) as saver:
        for _ in range(3):
            await saver.tick()
    assert [(checkpoint.name, checkpoint.version) for checkpoint in await agent.checkpoint.list()] == [
        ("c", 3),
        ("a", 3),
    ]
    assert (await agent.gc(dry_run=True)).state.count == 1
    assert (await agent.gc()).state.count == 1
    assert [rule.keep_last for rule in await agent.checkpoint.retention()] == [1, 1]
    await agent.checkpoint.retain("c")
    await agent.close()


def test_another_agents_things_are_left_alone(store_url: str) -> None:
    agent, other = agent_at(store_url), agent_at(store_url, "other")
    for one in (agent, other):
        write_expired_keys(one, 2)
        for number in range(3):
            one.checkpoint.create("c", number)
        one.checkpoint.retain("c", keep_last=1)
    report: Any = agent.gc()
    assert (report.state.count, report.checkpoints.count) == (2, 2)
    assert versions(other, "c") == [1, 2, 3]
    assert other.gc(dry_run=True).state.count == 2
    check_views(store_url)


def test_an_agent_that_nobody_knows_frees_nothing(store_url: str) -> None:
    assert run_in_child(lambda: agent_at(store_url, "nobody").gc()) == 0
    assert agent_at(store_url, "nobody").gc().nothing
    assert str(agent_at(store_url, "nobody").gc()) == "nothing to free"


# -- threads ----------------------------------------------------------------------------------------------------------


def put_thread(agent: Agent, thread: str, count: int) -> None:
    """A conversation of large messages, one checkpoint after the other."""
    for number in range(count):
        values = {"messages": [noise(index, 3000) for index in range(number + 1)], thread: noise(number)}
        before = f"{number - 1:08}" if number else ""
        wanted = NewThreadCheckpoint(thread, "", f"{number:08}", before, {}, {}, values, dict.fromkeys(values, number))
        drive_sync(agent._engine.store, put_checkpoint(agent._engine, wanted))


def test_threads_go_by_age_and_by_count_unless_in_use(store_url: str) -> None:
    agent = agent_at(store_url)
    for thread in ("guest-1", "guest-2", "long"):
        put_thread(agent, thread, 5)
    agent.threads.retain(keep_last=2)
    agent.threads.retain("guest-*", idle_for="1ms")
    assert [rule.pattern for rule in agent.threads.retention()] == ["*", "guest-*"]
    time.sleep(0.005)
    [first, second, _] = retention.iterate_outdated(agent._engine)
    assert (first.thread, second.thread, first.count) == ("guest-1", "guest-2", 5)
    told = agent.gc(dry_run=True)
    assert told.threads.count == 13
    put_thread(agent, "guest-2", 6)
    protocol = prune.delete_idle(agent._engine, second.thread, second.since)
    assert drive_sync(agent._engine.store, protocol) == 0, "somebody has gone on with it"
    agent.threads.retain("guest-2", keep_last=2)
    told = agent.gc(dry_run=True)
    assert told.threads.count == 5 + 4 + 3
    freed = agent.gc()
    assert (freed.threads, freed.objects) == (told.threads, told.objects)
    assert {info.id: info.checkpoints for info in agent.threads.list()} == {"guest-2": 2, "long": 2}
    assert agent.threads.state("long")["messages"] == [noise(index, 3000) for index in range(5)]
    check_views(store_url)
