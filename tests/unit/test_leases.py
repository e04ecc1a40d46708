"""Who may write to a stream: alive, released, dead, too late; and the heart that keeps a lease."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from perdure import Agent
from perdure.errors import LeaseLost, RunBusy, StoreClosed
from perdure.journal import leases
from perdure.journal.leases import LEASE_MS, Lease, LeaseKeeper, read_lease
from perdure.platform import failpoints, process
from perdure.platform.failpoints import CommitMoment, Site
from perdure.platform.process import Holder, identify_this_process
from perdure.store import open_store
from perdure.store.base import Script, Statement, UnitOfWork
from perdure.values.clock import SystemClock
from perdure.values.limits import HEARTBEAT_SECONDS, LEASE_SECONDS
from tests.conformance.kit import wait_until
from tests.unit import child
from tests.unit.units import behind

WAIT = 100
ELSEWHERE = msgspec.structs.replace(identify_this_process(), namespace="pid:[1]", pid=1)


class Boots(SystemClock):
    """A boot clock that stands where the test puts it."""

    def __init__(self) -> None:
        self.now = 1_000_000

    def boot_ms(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Boots:
    return Boots()


@pytest.fixture
def store(store_url: str, clock: Boots) -> Iterator[Any]:
    opened_store = open_store(store_url, clock=clock)
    yield opened_store
    opened_store.close()


class Give(UnitOfWork[int]):
    """A new stream with a lease for a holder."""

    site = Site.WRITE

    def __init__(self, holder: int | None) -> None:
        self.holder = holder

    def script(self) -> Script[int]:
        [[(stream,)]] = yield [Statement("add_stream", ("run", "test", 0))]
        yield [Statement("add_lease", (stream, self.holder))]
        return int(stream)


class Ask(UnitOfWork[Lease]):
    """Reads a lease as a claim does."""

    site = Site.WRITE

    def __init__(self, stream: int, now: int) -> None:
        self.stream, self.now = stream, now

    def script(self) -> Script[Lease]:
        return (yield from read_lease(self.stream, self.now))


class Do(UnitOfWork[Any]):
    """One statement."""

    site = Site.WRITE

    def __init__(self, name: str, *args: Any) -> None:
        self.statement = Statement(name, args)

    def script(self) -> Script[Any]:
        [rows] = yield [self.statement]
        return rows


def holders(store: Any) -> list[tuple[int, int]]:
    return [(number, deadline) for number, deadline in behind(store, "SELECT id, deadline FROM holders ORDER BY id")]


def lease(process: Holder | None, left_ms: int = 1) -> Lease:
    return Lease(1, 1, process, 0, left_ms)


def present(store: Any, lease_keeper: LeaseKeeper, clock: Boots) -> None:
    """What a claim does for its holder."""
    statement = lease_keeper.holder_statement(clock.now)
    store.submit(Do(statement.name, *statement.args))


# -- the rules ------------------------------------------------------------------------------------------------------


def test_a_released_lease_is_free() -> None:
    assert not lease(None, 1000).is_alive()


def test_a_living_holder_keeps_it_until_its_time_is_up() -> None:
    assert lease(identify_this_process(), 1).is_alive()
    assert not lease(identify_this_process(), 0).is_alive()
    assert not lease(identify_this_process(), -1).is_alive()


def test_a_dead_holder_loses_it_at_once() -> None:
    item = subprocess.Popen([sys.executable, "-c", "pass"])
    started = process._start_time(item.pid)
    item.wait(WAIT)
    assert started is not None
    assert not lease(msgspec.structs.replace(identify_this_process(), pid=item.pid, started=started), 1000).is_alive()
    assert not lease(msgspec.structs.replace(identify_this_process(), boot="an earlier one"), 1000).is_alive()


def test_one_that_cannot_be_looked_at_has_its_time() -> None:
    assert lease(ELSEWHERE, 1).is_alive()
    assert not lease(ELSEWHERE, 0).is_alive()


def test_busy_names_who_and_since_when() -> None:
    text = str(lease(identify_this_process()).busy_error("trip"))
    assert "'trip'" in text
    assert str(identify_this_process().pid) in text
    assert identify_this_process().host in text
    assert "19" in text


def test_a_lease_survives_some_missed_beats() -> None:
    assert LEASE_SECONDS >= 2.5 * HEARTBEAT_SECONDS
    assert LEASE_MS == LEASE_SECONDS * 1000


# -- in the store ---------------------------------------------------------------------------------------------------


@pytest.mark.stores("sqlite")  # by the boot clock, which the test owns
def test_a_tenancy_is_present_renews_and_leaves(store: Any, clock: Boots) -> None:
    lease_keeper = LeaseKeeper(store)
    assert holders(store) == [], "nothing to write before there is a lease"
    present(store, lease_keeper, clock)
    assert holders(store) == [(lease_keeper.holder_id, clock.now + LEASE_MS)]
    stream = store.submit(Give(lease_keeper.holder_id))
    assert store.submit(Ask(stream, clock.now)) == Lease(
        1, lease_keeper.holder_id, identify_this_process(), store.submit(Ask(stream, clock.now)).since, LEASE_MS
    )
    clock.now += 9_000
    assert store.submit(Ask(stream, clock.now)).left_ms == LEASE_MS - 9_000
    lease_keeper.renew()
    assert store.submit(Ask(stream, clock.now)).left_ms == LEASE_MS
    lease_keeper.close()
    assert holders(store) == []
    assert store.submit(Ask(stream, clock.now)) == Lease(1, None, None, 0, 0)


def test_a_lease_expires_at_its_deadline(store: Any, clock: Boots) -> None:
    lease_keeper = LeaseKeeper(store)
    clock.now += LEASE_MS - 1
    assert not lease_keeper.has_expired()
    clock.now += 1
    assert lease_keeper.has_expired()
    lease_keeper.renew()
    assert not lease_keeper.has_expired()
    lease_keeper.close()


def test_a_renewal_before_an_effect_confirms_or_refuses(store: Any, clock: Boots) -> None:
    lease_keeper = LeaseKeeper(store)
    stream = store.submit(Give(lease_keeper.holder_id))
    clock.now += LEASE_MS
    store.submit(lease_keeper.renewal(stream, 1))
    assert not lease_keeper.has_expired()
    store.submit(Do("take_lease", stream, 1, None))
    clock.now += LEASE_MS
    with pytest.raises(LeaseLost):
        store.submit(lease_keeper.renewal(stream, 1))
    assert lease_keeper.has_expired(), "a refused renewal must not look like a granted one"
    lease_keeper.close()


def test_the_deadline_counts_from_before_the_commit(store: Any, clock: Boots) -> None:
    lease_keeper = LeaseKeeper(store)

    def slow(site: Site, moment: CommitMoment) -> None:
        clock.now += 5_000  # the disk takes its time

    asked = clock.now
    failpoints.arm(slow)
    lease_keeper.renew()
    failpoints.arm(None)
    assert clock.now > asked
    clock.now = asked + LEASE_MS
    assert lease_keeper.has_expired()
    lease_keeper.close()


@pytest.mark.stores("sqlite")  # by the boot clock, which the test owns
def test_what_dead_processes_left_is_removed_but_not_what_may_live(store: Any, clock: Boots) -> None:
    past_boot, late, late_with_lease, alive = 1, 2, 3, 4

    def leave_behind() -> None:
        here = ELSEWHERE.boot
        for number, boot, ttl in [
            (past_boot, "earlier", 1000),
            (late, here, -1),
            (late_with_lease, here, -1),
            (alive, here, 1),
        ]:
            holder = msgspec.structs.replace(ELSEWHERE, boot=boot)
            row = (number, holder.boot, holder.namespace, holder.pid, holder.started, holder.host, 0, clock.now, ttl)
            store.submit(Do("renew_holder", *row))

    def left() -> set[int]:
        return {number for number, _ in holders(store)}

    leave_behind()
    store.submit(Give(late_with_lease))
    lease_keeper = LeaseKeeper(store)
    lease_keeper.renew()
    assert left() == {late_with_lease, alive, lease_keeper.holder_id}, "the first beat"
    leave_behind()
    lease_keeper.renew()
    assert left() == {past_boot, late, late_with_lease, alive, lease_keeper.holder_id}, "later ones only renew"
    lease_keeper.close()
    assert left() == {late_with_lease, alive}, "and who leaves"


@pytest.mark.stores("sqlite")  # by the boot clock, which the test owns
def test_a_holder_taken_for_dead_while_it_slept_is_itself_again(store: Any, clock: Boots) -> None:
    """A laptop sleeps, another process clears up, and the sleeper opens a run: its lease must name it."""
    sleeper = LeaseKeeper(store)
    present(store, sleeper, clock)
    clock.now += LEASE_MS + 1
    other = LeaseKeeper(store)
    other.renew()
    assert [number for number, _ in holders(store)] == [other.holder_id]
    assert other.holder_id != sleeper.holder_id
    present(store, sleeper, clock)
    stream = store.submit(Give(sleeper.holder_id))
    assert store.submit(Ask(stream, clock.now)).is_alive()
    other.close()
    assert store.submit(Ask(stream, clock.now)).is_alive(), "the other process gave a lease back that was not its own"
    sleeper.renew()
    assert [number for number, _ in holders(store)] == [sleeper.holder_id]
    sleeper.close()


def test_a_number_of_a_holder_is_never_given_again(store: Any) -> None:
    numbers = []
    for _ in range(3):
        lease_keeper = LeaseKeeper(store)
        numbers.append(lease_keeper.holder_id)
        lease_keeper.close()
    assert len(set(numbers)) == 3


def test_an_agent_that_slept_opens_its_next_run_as_somebody(store_url: str) -> None:
    agent = Agent("a", store=store_url)
    with agent.run("one"):
        pass
    store: Any = agent._engine.store
    behind(store, "DELETE FROM holders")
    with agent.run("two"):
        other = Agent("a", store=store_url)
        assert other.runs.get("two").status == "running"
        with pytest.raises(RunBusy), other.run("two"):
            pass
        other.close()
    agent.close()


# -- the heart ------------------------------------------------------------------------------------------------------


@pytest.mark.stores("sqlite")  # by the boot clock, which the test owns
def test_the_heart_renews_and_stops(store: Any, clock: Boots, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 0.01)
    lease_keeper = LeaseKeeper(store)
    clock.now += 20_000
    wait_until(lambda: holders(store) == [(lease_keeper.holder_id, clock.now + LEASE_MS)])
    clock.now += 20_000
    wait_until(lambda: holders(store) == [(lease_keeper.holder_id, clock.now + LEASE_MS)])
    lease_keeper.close()
    assert lease_keeper._heart is not None and not lease_keeper._heart.is_alive()


def test_closing_waits_for_a_beat_in_progress(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread may be using a connection, which cannot be closed meanwhile."""
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 0.01)
    lease_keeper = LeaseKeeper(store)
    begun, free, order = threading.Event(), threading.Event(), list[str]()

    def beat() -> None:
        begun.set()
        assert free.wait(WAIT)
        order.append("beat")

    lease_keeper.between_beats = beat
    assert begun.wait(WAIT)
    heart = lease_keeper._heart
    assert heart is not None
    join = heart.join

    def free_and_join(seconds: float | None = None) -> None:
        free.set()
        join(WAIT)

    monkeypatch.setattr(heart, "join", free_and_join)
    lease_keeper.close()
    order.append("closed")
    free.set()
    join(WAIT)
    assert order == ["beat", "closed"]


@pytest.mark.stores("sqlite")
def test_a_store_is_not_closed_while_a_thread_polls_it(store: Any) -> None:
    store.changes()
    with ThreadPoolExecutor() as pool:
        with store._watch_lock:
            closing = pool.submit(store.close)
            wait_until(lambda: store._closed)
            store._watcher.execute("PRAGMA data_version").fetchall()
        closing.result(WAIT)
    with pytest.raises(StoreClosed):
        store.changes()


@pytest.mark.stores("sqlite")  # by the boot clock, which the test owns
def test_the_heart_goes_on_after_a_failed_beat(store: Any, clock: Boots, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 0.01)
    lease_keeper = LeaseKeeper(store)
    original, failed = store.submit, []

    def failing(unit: Any) -> Any:
        failed.append(unit)
        raise LeaseLost

    store.submit = failing
    wait_until(lambda: len(failed) > 2)
    store.submit = original
    clock.now += 20_000
    wait_until(lambda: holders(store) == [(lease_keeper.holder_id, clock.now + LEASE_MS)])
    lease_keeper.close()


def test_the_heart_of_a_forgotten_tenancy_stops(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 0.01)
    lease_keeper = LeaseKeeper(store)
    heart, gone = lease_keeper._heart, weakref.ref(lease_keeper)
    assert heart is not None
    del lease_keeper

    def is_gone() -> bool:
        gc.collect()
        return gone() is None

    wait_until(is_gone)
    heart.join(WAIT)
    assert not heart.is_alive()


def test_threads_that_open_their_first_runs_at_once_share_one_heart(store_url: str) -> None:
    agent = Agent("a", store=store_url)
    start = threading.Barrier(8)
    problems: list[BaseException] = []

    def work(number: int) -> None:
        start.wait(WAIT)
        try:
            with agent.run(f"r{number}") as run:
                run.step(lambda: number, name="step")
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert problems == []
    assert len(holders(agent._engine.store)) == 1
    assert agent._engine.place.users == 1
    agent.close()


@pytest.mark.stores("sqlite")
@pytest.mark.parametrize("begun", [False, True])
def test_of_threads_that_open_one_run_in_one_batch_one_gets_it(store_url: str, begun: bool) -> None:
    agent = Agent("a", store=store_url)
    with pytest.raises(OSError, match="again"), agent.run("r" if begun else "another"):
        raise OSError("again")
    committer = agent._engine.store._committer  # type: ignore[attr-defined]
    outcomes: list[str] = []
    opened, finish = threading.Event(), threading.Event()

    def work() -> None:
        try:
            with agent.run("r") as run:
                run.step(lambda: 1, name="step")
                opened.set()
                assert finish.wait(WAIT)
            outcomes.append("finished")
        except RunBusy:
            outcomes.append("busy")

    assert committer._lead.acquire(timeout=WAIT)
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(committer._queue) == 3)
    committer._lead.release()
    assert opened.wait(WAIT)
    wait_until(lambda: len(outcomes) == 2)
    finish.set()
    for thread in threads:
        thread.join(WAIT)
    assert sorted(outcomes) == ["busy", "busy", "finished"]
    agent.close()


def test_two_stores_of_one_process_know_of_each_other(store_url: str) -> None:
    """An agent with another durability has its own connection to the same file, but is the same process."""
    one, other = Agent("a", store=store_url), Agent("a", store=store_url, durability="process")
    with one.run("r") as run:
        with pytest.raises(RunBusy, match="already open in this process"), other.run("r"):
            pass
        run.step(lambda: 1, name="step")
    other.close()
    one.close()


def test_a_killed_holder_is_taken_over_at_once(store_url: str) -> None:
    code = """
        import os, signal, sys
        from perdure import Agent
        with Agent("a", store=sys.argv[1]).run("r") as run:
            run.step(lambda: 1, name="step")
            os.kill(os.getpid(), signal.SIGKILL)
    """
    assert child.run(code, store_url).returncode == -9
    agent = Agent("a", store=store_url)
    assert agent.runs.get("r").status == "crashed"
    with agent.run("r") as run:
        assert run.resumed
        assert run.step(lambda: 2, name="step") == 1
    agent.close()
