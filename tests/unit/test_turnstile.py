"""The queue of processes before the write lock: everybody gets a turn, nobody waits for ever."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from perdure.store.sqlite.turnstile import Turnstile
from tests.unit import child

WAIT = 100


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "perdure.db.lock"


@pytest.fixture
def stranger(path: Path) -> Iterator[int]:
    """Somebody else's descriptor, which has the turn."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield descriptor
    os.close(descriptor)


def is_free(path: Path) -> bool:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def wait_until_free(path: Path) -> None:
    deadline = time.monotonic() + WAIT
    while not is_free(path):
        assert time.monotonic() < deadline, "the turn was never given back"
        time.sleep(0.005)


def test_in_and_out(path: Path) -> None:
    turnstile = Turnstile(str(path))
    for _ in range(3):
        assert turnstile.enter(0)
        assert not is_free(path)
        turnstile.leave()
        assert is_free(path)
    turnstile.close()


def test_a_turnstile_that_nobody_closes_gives_its_file_back(path: Path) -> None:
    turnstile = Turnstile(str(path))
    descriptor = turnstile._fd
    assert os.path.samestat(os.fstat(descriptor), path.stat())
    del turnstile
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_two_stores_of_one_process_exclude_each_other(path: Path) -> None:
    one, other = Turnstile(str(path)), Turnstile(str(path))
    assert one.enter(0)
    assert not other.enter(0.02)
    one.leave()
    assert other.enter(WAIT)
    other.leave()
    one.close()
    other.close()


def test_the_turn_comes_when_the_holder_leaves(path: Path, stranger: int) -> None:
    turnstile = Turnstile(str(path))
    threading.Timer(0.05, fcntl.flock, (stranger, fcntl.LOCK_UN)).start()
    assert turnstile.enter(WAIT)
    assert not is_free(path)
    turnstile.leave()
    turnstile.close()


def test_a_holder_that_never_leaves_is_given_up_and_later_all_is_well(path: Path, stranger: int) -> None:
    turnstile = Turnstile(str(path))
    for _ in range(3):
        assert not turnstile.enter(0.02)
    fcntl.flock(stranger, fcntl.LOCK_UN)
    # The waits that were given up get their turns now, and must hand them back at once.
    assert turnstile.enter(WAIT)
    turnstile.leave()
    wait_until_free(path)
    turnstile.close()


def test_a_turn_that_comes_too_late_is_not_kept(path: Path, stranger: int) -> None:
    turnstile = Turnstile(str(path))
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(5):
        assert not turnstile.enter(0.01)
    fcntl.flock(stranger, fcntl.LOCK_UN)
    wait_until_free(path)
    deadline = time.monotonic() + WAIT
    while len(os.listdir("/proc/self/fd")) > len(before):
        assert time.monotonic() < deadline, "descriptors of given up waits stay open"
        time.sleep(0.005)
    turnstile.close()


class Interrupt(BaseException):
    pass


class InterruptedEvent(threading.Event):
    """A wait into which a signal handler raises."""

    def wait(self, timeout: float | None = None) -> bool:
        raise Interrupt


def test_an_interrupted_wait_leaves_no_turn_behind(path: Path, stranger: int, monkeypatch: pytest.MonkeyPatch) -> None:
    turnstile = Turnstile(str(path))
    interrupting = SimpleNamespace(Event=InterruptedEvent, Lock=threading.Lock, Thread=threading.Thread)
    with monkeypatch.context() as patch:
        patch.setattr("perdure.store.sqlite.turnstile.threading", interrupting)
        with pytest.raises(Interrupt):
            turnstile.enter(WAIT)
    fcntl.flock(stranger, fcntl.LOCK_UN)
    wait_until_free(path)
    assert turnstile.enter(WAIT)
    turnstile.leave()
    turnstile.close()


WRITER = """
import sys, time
from perdure.store import open_store
from perdure.store.base import Statement, UnitOfWork
from perdure.platform.failpoints import Site
class Put(UnitOfWork):
    site = Site.WRITE
    def __init__(self, key): self.key = key
    def script(self): yield [Statement("put_meta", (self.key, b"v"))]
store = open_store("sqlite:///" + sys.argv[1])
print("ready", flush=True)
stop = float(sys.stdin.readline())
count = 0
while time.time() < stop:
    store.submit(Put(f"{sys.argv[2]}/{count}"))
    count += 1
print(count, flush=True)
"""


def test_no_writer_starves_beside_seven_others(tmp_path: Path) -> None:
    """How evenly the system gives them its cores is not ours: a twentieth of an even share must be there."""
    path = tmp_path / "perdure.db"
    writers = [child.start(WRITER, path, number) for number in range(8)]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        stop = time.time() + 1.5
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write(f"{stop}\n")
            writer.stdin.flush()
        counts = [int(writer.communicate()[0]) for writer in writers]
    finally:
        for writer in writers:
            if writer.poll() is None:
                child.end(writer)
    assert min(counts) >= 0.05 * sum(counts) / len(counts), counts
