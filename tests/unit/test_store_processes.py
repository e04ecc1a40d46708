"""A SQLite file that several processes use, or that is copied while it is in use."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure.errors import StoreForked
from perdure.journal.append import read_events
from perdure.journal.rebuild import check
from perdure.store import open_store
from tests.conformance.kit import run_in_child
from tests.unit import child
from tests.unit.units import Put, append, create_head, entry

WAIT = 100


# -- other processes ------------------------------------------------------------------------------------------------

WRITER = """
import sys
from perdure.platform.failpoints import Site
from perdure.store import open_store
from perdure.store.base import Statement, UnitOfWork
class Put(UnitOfWork):
    site = Site.WRITE
    def __init__(self, key): self.key = key
    def script(self): yield [Statement("put_meta", (self.key, b"v"))]
store = open_store(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    store.submit(Put(line.strip()))
    print("done", flush=True)
"""


RECOVERING = """
import fcntl, os, sys, time
# As SQLite does while it recovers the log of a dead process: it is there (128), and has the locks to write (120),
# to check point (121) and to recover (122); the index of the log is not usable yet.
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
fcntl.lockf(file, fcntl.LOCK_SH, 1, 128)
fcntl.lockf(file, fcntl.LOCK_EX, 3, 120)
os.pwrite(file, bytes(32768), 0)
print("recovering", flush=True)
sys.stdin.readline()
"""


def test_opening_waits_while_another_process_recovers_the_log(store_url: str) -> None:
    path = store_url.removeprefix("sqlite:///")
    dying = child.start(WRITER, store_url)
    assert dying.stdin is not None and dying.stdout is not None
    assert dying.stdout.readline() == "ready\n"
    print("kept", file=dying.stdin, flush=True)
    assert dying.stdout.readline() == "done\n"
    child.end(dying)
    other = child.start(RECOVERING, path + "-shm")
    assert other.stdin is not None and other.stdout is not None
    assert other.stdout.readline() == "recovering\n"
    with pytest.raises(apsw.BusyError):  # it is busy indeed, for somebody without patience
        apsw.Connection(path).execute("SELECT 1 FROM meta").fetchall()
    end_of_recovery = threading.Timer(0.3, child.end, [other])
    end_of_recovery.start()
    store = open_store(store_url)
    assert store.read("get_meta", ("kept",)) == [(b"v",)]
    store.submit(Put("more"))
    end_of_recovery.join()
    store.close()


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
    identities = {one.communicate()[0] for one in children}
    assert [one.returncode for one in children] == [0] * 5
    assert len(identities) == 1


def test_a_child_of_fork_may_not_use_the_store_and_does_not_keep_its_turn(store: Any) -> None:
    """The parent dies in the middle of a commit while a child lives: others must not wait for the child."""
    descriptor = store._turnstile._fd
    reader, writer = os.pipe()

    def use_it() -> None:
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

    assert run_in_child(use_it) == 0
    os.close(writer)
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

pytestmark = pytest.mark.stores("sqlite")


def test_a_backup_under_load_is_a_moment_of_the_store(store: Any, store_url: str, tmp_path: Path) -> None:
    writers = [child.start(BUSY, store_url) for _ in range(2)]
    stop = threading.Event()
    head = create_head(store)

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
        read_events(copy.identity, stream, copy.read("journal_of", (stream, 0)))
    assert all(found.get(stream, 0) >= seq for stream, seq in first.items())
    assert all(last.get(stream, 0) >= seq for stream, seq in found.items())
    assert found[pairs] % 2 == 0, "half a commit was copied"
    assert [difference for difference in check(copy) if difference.key[0] != pairs] == []
    copy.close()
