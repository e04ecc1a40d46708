"""Committing to a real SQLite file: batches, heads, syncs, readers, copies, other processes."""

from __future__ import annotations

import asyncio
import gc
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure import Agent
from perdure.errors import LeaseLost, PerdureError, StorageFull, StoreBusy, StoreFenced
from perdure.journal.append import Append, StreamHead, read_events
from perdure.kernel import engine
from perdure.platform import failpoints
from perdure.platform.failpoints import CommitMoment, Site
from perdure.store import open_store
from perdure.store.base import Script, Statement, UnitOfWork
from perdure.store.sqlite.watch import StoreWatch
from perdure.values.clock import SYSTEM_CLOCK
from tests.powerloss.vfs import NAME, LoggingVfs
from tests.unit import child
from tests.unit.units import Put, append, create_head, entry

WAIT = 100


@pytest.fixture
def hook() -> Iterator[Callable[[failpoints.FailpointHook], None]]:
    """Arms a failpoint for the length of the test."""
    yield failpoints.arm
    failpoints.arm(None)


def events(store: Any, head: StreamHead) -> list[Any]:
    """A stream as it is stored, its chain checked, and equal to what its writer believes."""
    found, stored = read_events(store.identity, head.stream, store.read("journal_of", (head.stream, 0)))
    assert (stored.seq, stored.chain) == (head.seq, head.chain)
    return found


def commit_together(store: Any, *units: UnitOfWork[Any]) -> list[Any]:
    """Commit units in one transaction: results, or the errors that they raised."""
    transactions = 0
    arrived = threading.Event()
    release = threading.Event()

    def count(site: Site, moment: CommitMoment) -> None:
        nonlocal transactions
        if moment is CommitMoment.BEGUN and site is not Site.HEARTBEAT:  # an agent that another test has left
            transactions += 1
            if transactions == 1:
                arrived.set()
                assert release.wait(WAIT)

    failpoints.arm(count)
    results: dict[int, Any] = {}

    def submit(number: int, unit: UnitOfWork[Any]) -> None:
        try:
            results[number] = store.submit(unit)
        except PerdureError as error:
            results[number] = error

    first = threading.Thread(target=submit, args=(-1, Put(f"first {time.monotonic_ns()}")))
    first.start()
    assert arrived.wait(WAIT)
    threads = [threading.Thread(target=submit, args=unit) for unit in enumerate(units)]
    for n, thread in enumerate(threads, start=1):
        thread.start()
        deadline = time.monotonic() + WAIT
        while len(store._committer._queue) < n:
            assert time.monotonic() < deadline
            time.sleep(0.001)
    release.set()
    for thread in [first, *threads]:
        thread.join(WAIT)
    failpoints.arm(None)
    assert transactions == 2
    return [results[number] for number in range(len(units))]


# -- batches --------------------------------------------------------------------------------------------------------


def test_units_that_wait_share_a_transaction(store: Any) -> None:
    assert commit_together(store, *(Put(f"k{n}") for n in range(20))) == [f"k{n}" for n in range(20)]
    assert all(store.read("get_meta", (f"k{n}",)) == [(b"v",)] for n in range(20))


def test_a_failing_unit_is_undone_alone(store: Any) -> None:
    results = commit_together(store, Put("a"), Put("b", LeaseLost("not yours")), Put("c"))
    assert [str(result) for result in results][::2] == ["a", "c"]
    assert isinstance(results[1], LeaseLost)
    assert [store.read("get_meta", (key,)) for key in "abc"] == [[(b"v",)], [], [(b"v",)]]


def test_a_failing_unit_alone_in_its_transaction_is_undone_too(store: Any) -> None:
    with pytest.raises(LeaseLost):
        store.submit(Put("a", LeaseLost()))
    assert store.read("get_meta", ("a",)) == []
    assert store.submit(Put("a")) == "a"


def test_a_stale_writer_in_a_batch_harms_nobody(store: Any) -> None:
    good, stale = create_head(store), create_head(store)
    stale.fence = 0
    results = commit_together(store, append(good, entry("a")), append(stale, entry("b")), append(good, entry("c")))
    assert [results[0], results[2]] == [1, 2]
    assert isinstance(results[1], LeaseLost)
    assert [event.record.write.key for event in events(store, good)] == ["a", "c"]
    assert events(store, stale) == []


def test_a_failure_does_not_take_back_the_head_that_a_neighbour_has_moved(store: Any) -> None:
    """Two answers in the open go to one stream: the one that came too late must not harm the other."""
    head = create_head(store)
    refused = Statement("take_lease", (head.stream, 99, None), LeaseLost)
    results = commit_together(
        store, append(head, entry("a")), append(head, entry("b"), also=(refused,)), append(head, entry("c"))
    )
    assert [results[0], results[2]] == [1, 2]
    assert isinstance(results[1], LeaseLost)
    assert store.submit(append(head, entry("d"))) == 3
    assert [event.record.write.key for event in events(store, head)] == ["a", "c", "d"]


def test_when_the_whole_batch_fails_every_head_goes_back(store: Any) -> None:
    heads = [create_head(store), create_head(store)]
    for head in heads:
        store.submit(append(head, entry("before")))
    units = [append(heads[0], entry("a"), entry("b")), append(heads[1], entry("c")), append(heads[0], entry("d"))]

    class Breaking(Append):
        __slots__ = ()

        def script(self) -> Script[int]:
            yield from super().script()
            raise OSError("the disk is gone")

    breaking = Breaking(Site.WRITE, heads[1], [entry("x")], SYSTEM_CLOCK)
    failures = fail_together(store, [*units, breaking])
    assert sorted(type(error).__name__ for error in failures) == ["OSError", "StoreBusy", "StoreBusy", "StoreBusy"]
    for head in heads:
        assert [event.record.write.key for event in events(store, head)] == ["before"]
        assert store.submit(append(head, entry("after"))) == 2
        events(store, head)


def fail_together(store: Any, units: list[UnitOfWork[Any]]) -> list[BaseException]:
    """Commit units in one transaction that fails as a whole."""
    errors: dict[int, BaseException] = {}
    store._committer._lead.acquire()

    def submit(number: int, unit: UnitOfWork[Any]) -> None:
        try:
            store.submit(unit)
        except (OSError, StoreBusy) as error:
            errors[number] = error

    threads = [threading.Thread(target=submit, args=unit) for unit in enumerate(units)]
    for n, thread in enumerate(threads, start=1):
        thread.start()
        deadline = time.monotonic() + WAIT
        while len(store._committer._queue) < n:
            assert time.monotonic() < deadline
            time.sleep(0.001)
    store._committer._lead.release()
    for thread in threads:
        thread.join(WAIT)
    return [errors[number] for number in range(len(units))]


def test_32_threads_write_32_unbroken_chains(store: Any) -> None:
    heads = [create_head(store) for _ in range(32)]
    transactions: Counter[CommitMoment] = Counter()
    failpoints.arm(lambda site, moment: transactions.update([moment] if site is Site.WRITE else []))

    def work(head: StreamHead) -> None:
        for n in range(10):
            assert store.submit(append(head, entry(f"k{n}"))) == n + 1

    threads = [threading.Thread(target=work, args=(head,)) for head in heads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    failpoints.arm(None)
    for head in heads:
        assert [event.record.write.key for event in events(store, head)] == [f"k{n}" for n in range(10)]
    assert transactions[CommitMoment.AFTER] == 320
    assert transactions[CommitMoment.BEGUN] < 320, "nobody ever shared a transaction"


async def test_tasks_share_transactions_too(store_url: str) -> None:
    store = open_store(store_url)
    begun: list[Site] = []
    failpoints.arm(lambda site, moment: begun.append(site) if moment is CommitMoment.BEGUN else None)
    keys = await asyncio.wait_for(asyncio.gather(*(store.submit_async(Put(f"k{n}")) for n in range(50))), WAIT)
    failpoints.arm(None)
    assert keys == [f"k{n}" for n in range(50)]
    assert len(begun) < 10
    store.close()


async def test_a_cancelled_task_has_committed(store_url: str) -> None:
    store: Any = open_store(store_url)
    store._committer._lead.acquire()
    task = asyncio.ensure_future(store.submit_async(Put("kept")))
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.sleep(0.05)
    assert not task.done()
    store._committer._lead.release()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, WAIT)
    assert store.read("get_meta", ("kept",)) == [(b"v",)]
    store.close()


def test_readers_see_everything_committed_and_nothing_else(
    store: Any, hook: Callable[[failpoints.FailpointHook], None]
) -> None:
    seen: list[Any] = []

    def look(site: Site, moment: CommitMoment) -> None:
        if moment is CommitMoment.WRITTEN:
            seen.append(store.read("get_meta", ("k",)))

    hook(look)
    store.submit(Put("k"))
    assert seen == [[]]
    assert store.read("get_meta", ("k",)) == [(b"v",)]


def test_many_threads_may_read_at_once(store: Any) -> None:
    store.submit(Put("k"))
    wrong: list[Any] = []
    start = threading.Barrier(16)

    def read() -> None:
        start.wait(WAIT)
        wrong.extend(rows for _ in range(100) if (rows := store.read("get_meta", ("k",))) != [(b"v",)])

    threads = [threading.Thread(target=read) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert wrong == []


# -- errors of the disk ---------------------------------------------------------------------------------------------


class Raise(UnitOfWork[None]):
    """Fails as the driver would."""

    site = Site.WRITE

    def __init__(self, error: Exception) -> None:
        self.error = error

    def script(self) -> Script[None]:
        yield [Statement("put_meta", ("lost", b"v"))]
        raise self.error


def test_after_an_input_output_error_the_store_writes_no_more_until_it_is_opened_again(store_url: str) -> None:
    store: Any = open_store(store_url)
    store.submit(Put("before"))
    with pytest.raises(StoreFenced):
        store.submit(Raise(apsw.IOError("fsync failed")))
    with pytest.raises(StoreFenced, match="fsync failed"):
        store.submit(Put("after"))
    assert store.read("get_meta", ("before",)) == [(b"v",)]
    store.close()
    again = open_store(store_url)
    assert again.read("get_meta", ("lost",)) == []
    assert again.submit(Put("after")) == "after"
    again.close()


def test_a_full_disk_is_told_and_passes(store: Any) -> None:
    with pytest.raises(StorageFull):
        store.submit(Raise(apsw.FullError("no space")))
    assert store.read("get_meta", ("lost",)) == []
    assert store.submit(Put("after")) == "after"


# -- syncs ----------------------------------------------------------------------------------------------------------

CHAIN = """
import sys
from perdure import Agent
agent = Agent("a", store=sys.argv[1], durability=sys.argv[4])
with agent.run("r") as run:
    for n in range(int(sys.argv[2])):
        run.step(lambda n=n: n, id=f"s{n}", name="step")
    for n in range(int(sys.argv[3])):
        run.effect(lambda n=n: n, id=f"e{n}", name="effect")
"""

pytestmark = pytest.mark.stores("sqlite")


def system_calls(strace: str, folder: Path, steps: int, effects: int, durability: str) -> int:
    """How often a process syncs, by the kernel's own account."""
    log = folder / f"log-{durability}-{steps}-{effects}"
    program = child.command(CHAIN, folder / f"{durability}-{steps}-{effects}.db", steps, effects, durability)
    traced = [strace, "-f", "-e", "trace=fsync,fdatasync,sync_file_range,msync", "-o", str(log), *program]
    subprocess.run(traced, env=child.environment(), check=True, capture_output=True)
    return len(re.findall(r"sync\w*\(", log.read_text()))


def test_a_step_is_one_sync_and_an_effect_two_by_the_kernels_account(tmp_path: Path, strace: str) -> None:
    base = system_calls(strace, tmp_path, 0, 0, "full")
    assert system_calls(strace, tmp_path, 7, 0, "full") - base == 7
    assert system_calls(strace, tmp_path, 0, 5, "full") - base == 10
    relaxed = system_calls(strace, tmp_path, 0, 0, "process")
    assert system_calls(strace, tmp_path, 7, 5, "process") == relaxed


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoggingVfs]:
    """Stores of agents are opened on a VFS that notes every sync."""
    vfs = LoggingVfs(trusting=True)
    monkeypatch.setattr(engine, "open_store", lambda url, **options: open_store(url, vfs=NAME, **options))
    yield vfs
    vfs.unregister()


def test_a_step_is_one_sync_and_an_effect_two(store_url: str, logged: LoggingVfs) -> None:
    agent = Agent("a", store=store_url)

    def syncs(work: Callable[[], object]) -> int:
        before = len(logged.log)
        work()
        return sum(op.kind == "sync" for op in logged.log[before:])

    with agent.run("r") as run:
        # The first commit after a checkpoint also syncs the head of the log.
        run.step(lambda: 0, id="warm")
        assert [syncs(lambda n=n: run.step(lambda: n, id=f"s{n}")) for n in range(5)] == [1] * 5  # type: ignore[misc]
        assert [syncs(lambda n=n: run.effect(lambda: n, id=f"e{n}")) for n in range(5)] == [2] * 5  # type: ignore[misc]
        assert syncs(lambda: run.state.__setitem__("k", 1)) == 1
        assert syncs(lambda: run.messages.append("m")) == 1
    agent.close()


class Alarm(Exception):
    """What a signal handler of the user's raises."""


def test_an_alarm_at_any_moment_loses_nothing_and_stops_nobody(store: Any) -> None:
    """Interrupted at random: who was told of a commit finds it, the chains are whole, and the threads go on."""
    heads = [create_head(store) for _ in range(4)]
    told: list[list[str]] = [[] for _ in heads]

    def work(number: int) -> None:
        for n in range(150):
            with suppress(StoreBusy):
                store.submit(append(heads[number], entry(f"k{n}")))
                told[number].append(f"k{n}")

    def ring(number: int, frame: object) -> None:
        raise Alarm

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in (1, 2, 3)]
    before = signal.signal(signal.SIGALRM, ring)
    for thread in threads:
        thread.start()
    gc.disable()  # others' callbacks of the collector would be interrupted too, and nobody would hear of it
    rung = sum(commit_with_alarm(store, heads[0], f"k{n}", told[0], n % 40 / 20_000 + 0.00001) for n in range(400))
    signal.signal(signal.SIGALRM, before)
    gc.enable()
    for thread in threads:
        thread.join(WAIT)
        assert not thread.is_alive(), "nobody leads any more"
    assert rung > 20
    for head, keys in zip(heads, told, strict=True):
        found = [event.record.write.key for event in events(store, head)]
        assert [key for key in found if key in set(keys)] == keys
    assert store.submit(append(heads[0], entry("after"))) == heads[0].seq


@pytest.mark.stores("sqlite")
def test_an_alarm_just_after_the_commit_leaves_the_head_where_it_is(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python delivers signals when a function begins: here, the one that checks the files after a commit."""
    head = create_head(store)

    def ring(*_: object) -> None:
        raise Alarm

    with monkeypatch.context() as patched, pytest.raises(Alarm):
        patched.setattr(StoreWatch, "check_after_commit", ring)
        store.submit(append(head, entry("first")))
    assert store.submit(append(head, entry("second"))) == head.seq
    assert [event.record.write.key for event in events(store, head)] == ["first", "second"]


def commit_with_alarm(store: Any, head: StreamHead, key: str, told: list[str], seconds: float) -> bool:
    """Commit one entry with an alarm set; whether it rang."""
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        store.submit(append(head, entry(key)))
        told.append(key)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Alarm:
        return True
    except StoreBusy:
        pass  # its batch was interrupted
    try:
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Alarm:
        return True
    return False
