"""Committing to a real SQLite file: batches, heads, syncs, readers, copies, other processes."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure import Agent, engine, failpoints
from perdure.clock import SYSTEM_CLOCK
from perdure.errors import LeaseLost, PerdureError, StorageFull, StoreFenced, StoreForked
from perdure.failpoints import Moment, Site
from perdure.journal.append import Append, Head, read_events
from perdure.journal.rebuild import check
from perdure.records import Op, Record, Write, Wrote
from perdure.store import open_store
from perdure.store.base import Script, Statement, Unit
from tests.powerloss.vfs import NAME, LoggingVfs
from tests.unit import child

WAIT = 20


@pytest.fixture
def store(store_url: str) -> Iterator[Any]:
    it = open_store(store_url)
    yield it
    it.close()


@pytest.fixture
def hook() -> Iterator[Callable[[failpoints.Hook], None]]:
    """Arms a failpoint for the length of the test."""
    yield failpoints.arm
    failpoints.arm(None)


class Put(Unit[str]):
    """Keeps one fact."""

    site = Site.WRITE

    def __init__(self, key: str, error: PerdureError | None = None) -> None:
        self.key = key
        self.error = error

    def script(self) -> Script[str]:
        yield [Statement("put_meta", (self.key, b"v"))]
        if self.error is not None:
            raise self.error
        return self.key


class NewStream(Unit[int]):
    """A stream that nobody holds."""

    site = Site.WRITE

    def script(self) -> Script[int]:
        [[(stream,)]] = yield [Statement("add_stream", ("run", "test", 0))]
        yield [Statement("add_lease", (stream, None))]
        return int(stream)


def new_head(store: Any) -> Head:
    return Head(store.identity, store.submit(NewStream()), 1)


def entry(key: str, value: bytes = b"\x00\x01") -> Record:
    return Wrote("", Write(Op.SET, key, value))


def append(head: Head, *records: Record, also: tuple[Statement, ...] = ()) -> Append:
    return Append(Site.WRITE, head, records, SYSTEM_CLOCK, also=also)


def events(store: Any, head: Head) -> list[Any]:
    """A stream as it is stored, its chain checked, and equal to what its writer believes."""
    found, stored = read_events(store.identity, head.stream, store.read("events_of", (head.stream, 0)))
    assert (stored.seq, stored.chain) == (head.seq, head.chain)
    return found


def together(store: Any, *units: Unit[Any]) -> list[Any]:
    """Commit units in one transaction: results, or the errors that they raised."""
    transactions = 0
    arrived = threading.Event()
    release = threading.Event()

    def count(site: Site, moment: Moment) -> None:
        nonlocal transactions
        if moment is Moment.BEGUN:
            transactions += 1
            if transactions == 1:
                arrived.set()
                assert release.wait(WAIT)

    failpoints.arm(count)
    results: dict[int, Any] = {}

    def submit(number: int, unit: Unit[Any]) -> None:
        try:
            results[number] = store.submit(unit)
        except PerdureError as error:
            results[number] = error

    first = threading.Thread(target=submit, args=(-1, Put(f"first {time.monotonic_ns()}")))
    first.start()
    assert arrived.wait(WAIT)
    threads = [threading.Thread(target=submit, args=it) for it in enumerate(units)]
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
    assert together(store, *(Put(f"k{n}") for n in range(20))) == [f"k{n}" for n in range(20)]
    assert all(store.read("get_meta", (f"k{n}",)) == [(b"v",)] for n in range(20))


def test_a_failing_unit_is_undone_alone(store: Any) -> None:
    results = together(store, Put("a"), Put("b", LeaseLost("not yours")), Put("c"))
    assert [str(result) for result in results][::2] == ["a", "c"]
    assert isinstance(results[1], LeaseLost)
    assert [store.read("get_meta", (key,)) for key in "abc"] == [[(b"v",)], [], [(b"v",)]]


def test_a_failing_unit_alone_in_its_transaction_is_undone_too(store: Any) -> None:
    with pytest.raises(LeaseLost):
        store.submit(Put("a", LeaseLost()))
    assert store.read("get_meta", ("a",)) == []
    assert store.submit(Put("a")) == "a"


def test_a_stale_writer_in_a_batch_harms_nobody(store: Any) -> None:
    good, stale = new_head(store), new_head(store)
    stale.fence = 0
    results = together(store, append(good, entry("a")), append(stale, entry("b")), append(good, entry("c")))
    assert [results[0], results[2]] == [1, 2]
    assert isinstance(results[1], LeaseLost)
    assert [event.record.write.key for event in events(store, good)] == ["a", "c"]
    assert events(store, stale) == []


def test_a_failure_does_not_take_back_the_head_that_a_neighbour_has_moved(store: Any) -> None:
    """Two answers in the open go to one stream: the one that came too late must not harm the other."""
    head = new_head(store)
    refused = Statement("take_lease", (head.stream, 99, None), LeaseLost)
    results = together(
        store, append(head, entry("a")), append(head, entry("b"), also=(refused,)), append(head, entry("c"))
    )
    assert [results[0], results[2]] == [1, 2]
    assert isinstance(results[1], LeaseLost)
    assert store.submit(append(head, entry("d"))) == 3
    assert [event.record.write.key for event in events(store, head)] == ["a", "c", "d"]


def test_when_the_whole_batch_fails_every_head_goes_back(store: Any) -> None:
    heads = [new_head(store), new_head(store)]
    for head in heads:
        store.submit(append(head, entry("before")))
    units = [append(heads[0], entry("a"), entry("b")), append(heads[1], entry("c")), append(heads[0], entry("d"))]

    class Breaking(Append):
        __slots__ = ()

        def script(self) -> Script[int]:
            yield from super().script()
            raise OSError("the disk is gone")

    breaking = Breaking(Site.WRITE, heads[1], [entry("x")], SYSTEM_CLOCK)
    failures = failing_together(store, [*units, breaking])
    assert [type(error) for error in failures] == [OSError] * 4
    for head in heads:
        assert [event.record.write.key for event in events(store, head)] == ["before"]
        assert store.submit(append(head, entry("after"))) == 2
        events(store, head)


def failing_together(store: Any, units: list[Unit[Any]]) -> list[BaseException]:
    """Commit units in one transaction that fails as a whole."""
    errors: dict[int, BaseException] = {}
    store._committer._lead.acquire()

    def submit(number: int, unit: Unit[Any]) -> None:
        try:
            store.submit(unit)
        except OSError as error:
            errors[number] = error

    threads = [threading.Thread(target=submit, args=it) for it in enumerate(units)]
    for n, thread in enumerate(threads, start=1):
        thread.start()
        deadline = time.monotonic() + WAIT
        while len(store._committer._queue) < n:
            assert time.monotonic() < deadline
            time.sleep(0.001)
    store._committer._pass_on()
    for thread in threads:
        thread.join(WAIT)
    return [errors[number] for number in range(len(units))]


def test_32_threads_write_32_unbroken_chains(store: Any) -> None:
    heads = [new_head(store) for _ in range(32)]
    transactions: Counter[Moment] = Counter()
    failpoints.arm(lambda site, moment: transactions.update([moment]))

    def work(head: Head) -> None:
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
    assert transactions[Moment.AFTER] == 320
    assert transactions[Moment.BEGUN] < 320, "nobody ever shared a transaction"


async def test_tasks_share_transactions_too(store_url: str) -> None:
    store = open_store(store_url)
    begun: list[Site] = []
    failpoints.arm(lambda site, moment: begun.append(site) if moment is Moment.BEGUN else None)
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
    store._committer._pass_on()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, WAIT)
    assert store.read("get_meta", ("kept",)) == [(b"v",)]
    store.close()


def test_readers_see_everything_committed_and_nothing_else(store: Any, hook: Callable[[failpoints.Hook], None]) -> None:
    seen: list[Any] = []

    def look(site: Site, moment: Moment) -> None:
        if moment is Moment.WRITTEN:
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


class Raise(Unit[None]):
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


def system_calls(strace: str, folder: Path, steps: int, effects: int, durability: str) -> int:
    """How often a process syncs, by the kernel's own account."""
    log = folder / f"log-{durability}-{steps}-{effects}"
    program = child.command(CHAIN, folder / f"{durability}-{steps}-{effects}.db", steps, effects, durability)
    traced = [strace, "-f", "-e", "trace=fsync,fdatasync,sync_file_range,msync", "-o", str(log), *program]
    subprocess.run(traced, env=child.environment(), check=True, timeout=child.SECONDS_MAX, capture_output=True)
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


# -- other processes ------------------------------------------------------------------------------------------------

WRITER = """
import sys
from perdure.failpoints import Site
from perdure.store import open_store
from perdure.store.base import Statement, Unit
class Put(Unit):
    site = Site.WRITE
    def __init__(self, key): self.key = key
    def script(self): yield [Statement("put_meta", (self.key, b"v"))]
store = open_store(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    store.submit(Put(line.strip()))
    print("done", flush=True)
"""


def test_changes_move_when_another_process_commits_and_only_then(store: Any, store_url: str) -> None:
    other = child.start(WRITER, store_url)
    assert other.stdin is not None
    assert other.stdout is not None
    try:
        assert other.stdout.readline() == "ready\n"
        before = store.changes()
        assert {store.changes() for _ in range(20)} == {before}
        store.read("all_streams")
        assert store.changes() == before
        seen = [before]
        for n in range(3):
            other.stdin.write(f"k{n}\n")
            other.stdin.flush()
            assert other.stdout.readline() == "done\n"
            seen.append(store.changes())
            assert store.read("get_meta", (f"k{n}",)) == [(b"v",)]
        assert len(set(seen)) == 4
        assert store.changes() == seen[-1]
    finally:
        child.end(other)


def test_changes_in_memory_never_stand_still_while_something_is_written() -> None:
    store = open_store("sqlite://:memory:")
    before = store.changes()
    store.submit(Put("k"))
    assert store.changes() != before
    store.close()


def test_processes_make_one_store_at_the_same_time(tmp_path: Path) -> None:
    """Whoever is first creates it; nobody sees it half made, or locked."""
    path = tmp_path / "perdure.db"
    code = "import sys; from perdure.store import open_store; print(open_store('sqlite:///' + sys.argv[1]).identity)"
    children = [child.start(code, path) for _ in range(5)]
    identities = {one.communicate(timeout=child.SECONDS_MAX)[0] for one in children}
    assert [one.returncode for one in children] == [0] * 5
    assert len(identities) == 1


def test_a_child_of_fork_may_not_use_the_store_and_does_not_keep_its_turn(store: Any) -> None:
    """The parent dies in the middle of a commit while a child lives: others must not wait for the child."""
    descriptor = store._turnstile._fd
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        answers = []
        for use in (lambda: store.submit(Put("k")), lambda: store.read("all_streams"), store.changes):
            try:
                use()
            except StoreForked:
                answers.append("forked")
        try:
            os.fstat(descriptor)
        except OSError:
            answers.append("closed")
        os.write(writer, " ".join(answers).encode())
        os._exit(0)
    os.close(writer)
    assert os.waitpid(pid, 0)[1] == 0
    assert os.read(reader, 1000) == b"forked forked forked closed"
    os.close(reader)
    assert store.submit(Put("k")) == "k"


# -- copies ---------------------------------------------------------------------------------------------------------

BUSY = """
import sys
from perdure import Agent
agent = Agent("busy", store=sys.argv[1])
print("ready", flush=True)
n = 0
while True:
    with agent.run(f"r{n}") as run:
        for item in run.each(range(3)):
            run.state["sum"] = run.state.get("sum", 0) + 1
            run.step(lambda: "x" * 6000, name="step")
    n += 1
"""


def test_a_backup_under_load_is_a_moment_of_the_store(store: Any, store_url: str, tmp_path: Path) -> None:
    writers = [child.start(BUSY, store_url) for _ in range(2)]
    stop = threading.Event()
    head = new_head(store)

    def write() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            store.submit(append(head, entry(f"k{n}"), entry(f"l{n}")))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for one in writers:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        copies = []
        for n in range(4):
            first = heads(store)
            path = tmp_path / f"copy{n}.db"
            assert store.backup(str(path)) == path.stat().st_size
            copies.append((path, first, heads(store)))
    finally:
        stop.set()
        thread.join(WAIT)
        for one in writers:
            child.end(one)
    assert copies[0][1] != copies[-1][2], "nothing was written meanwhile"
    for path, first, last in copies:
        look_at(path, first, last, head.stream)


def heads(store: Any) -> dict[int, int]:
    streams = [stream for stream, *_ in store.read("all_streams")]
    return {stream: seq for stream in streams for seq, _ in store.read("head_of", (stream,))}


def look_at(path: Path, first: dict[int, int], last: dict[int, int], pairs: int) -> None:
    """A copy opens, is sound, and lies between what was there before it was begun and after it was done."""
    copy: Any = open_store(f"sqlite:///{path}")
    assert copy._writer.pragma("integrity_check") == "ok"
    found = heads(copy)
    for stream in found:
        read_events(copy.identity, stream, copy.read("events_of", (stream, 0)))
    assert all(found.get(stream, 0) >= seq for stream, seq in first.items())
    assert all(last.get(stream, 0) >= seq for stream, seq in found.items())
    assert found[pairs] % 2 == 0, "half a commit was copied"
    assert [difference for difference in check(copy) if difference.key[0] != pairs] == []
    copy.close()
