"""A user's program in pieces: agents, an outside world that counts, and processes that die for real."""

from __future__ import annotations

import gc
import os
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from perdure import Agent, AsyncAgent
from perdure.journal import rebuild
from perdure.journal.verify import verify
from perdure.platform import failpoints
from perdure.platform.failpoints import CommitMoment, Site
from perdure.server.addresses import tenant_url
from perdure.store import is_remote
from perdure.store.postgres.url import is_postgres, parse
from perdure.store.remote.address import parse_address
from perdure.values.clock import SYSTEM_CLOCK, SystemClock

IN_SOAK = os.environ.get("PERDURE_HYPOTHESIS") == "soak"
"""Whether `make soak` runs: it takes all cases. Users have this file without tests/budget.py."""

PATIENCE = 100.0
"""Seconds. Nothing but a failing test waits that long."""


class World:
    """The outside: a file that effects append to, which no crash of ours can undo."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "world.txt"

    def do(self, what: str) -> None:
        """Something happens, once more."""
        with self.path.open("a") as file:
            file.write(what + "\n")
            file.flush()
            os.fsync(file.fileno())

    def count(self, what: str) -> int:
        """How often it has happened."""
        return self.read_all().count(what)

    def read_all(self) -> list[str]:
        """Everything, in order."""
        return self.path.read_text().splitlines() if self.path.exists() else []


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A new outside world."""
    return World(tmp_path)


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    """An empty store in a file, for what has nothing to do with the kind of store."""
    return f"sqlite:///{tmp_path / 'home.db'}"


def die() -> None:
    """End this process as a power cut would: no handler, no cleanup."""
    os.kill(os.getpid(), signal.SIGKILL)


def run_in_child(program: Callable[[], object]) -> int:
    """Run a program in a process of its own, that shares nothing but files; returns its wait status."""
    [status] = run_in_children(1, program)
    return status


def run_in_children(count: int, program: Callable[[], object]) -> list[int]:
    """Run a program in several processes side by side; returns their wait statuses."""
    with run_children(*[program] * count) as pids:
        return [os.waitpid(pid, 0)[1] for pid in pids]


@contextmanager
def run_children(*programs: Callable[[], object]) -> Iterator[list[int]]:
    """Run each program in a child process. Those that still run at the end of the block are killed."""
    pids: list[int] = []
    try:
        pids.extend(fork_program(program) for program in programs)
        yield pids
    finally:
        for pid in pids:
            with suppress(ProcessLookupError, ChildProcessError):  # it has been waited for
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def fork_program(program: Callable[[], object]) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the heartbeat thread does not matter to this child
        pid = os.fork()
    if pid == 0:
        gc.freeze()  # else the first collection in the child copies every page that it shares with its parent
        try:
            program()
        except BaseException:  # told on stderr and by the exit code; nothing of pytest may run in the child
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return pid


def kill_at(program: Callable[[], object], site: Site, moment: CommitMoment, nth: int = 1) -> None:
    """Run a program in a child that is killed at a failpoint."""

    def doomed() -> None:
        failpoints.arm(failpoints.kill_at(f"{site}:{moment}#{nth}"))
        program()

    status = run_in_child(doomed)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, f"it did not reach {site}:{moment}#{nth}"


def kill_on_other_host(store_url: str, program: Callable[[], object]) -> None:
    """Run a program that kills itself on a host that nobody can look at. Then its lease expires."""

    def elsewhere() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("perdure.platform.process._namespace", lambda pid: "pid:[elsewhere]")
            program()

    assert run_in_child(elsewhere) == signal.SIGKILL
    expire_leases(store_url)


def find_behind(store_url: str) -> str:
    """The store that a server on this machine has for a tenant. The suite is told in BEHIND_REMOTE_STORE."""
    served = os.environ.get("BEHIND_REMOTE_STORE")
    if not served:
        pytest.skip("nobody reaches the tables behind a server")
    return tenant_url(served, parse_address(store_url).tenant)


class Behind:
    """The tables of a store behind its back, as another program would change them. Values are bound by `?`."""

    def __init__(self, store_url: str) -> None:
        if is_remote(store_url):
            store_url = find_behind(store_url)
        self._postgres = is_postgres(store_url)
        if self._postgres:
            place = parse(store_url)
            self._connection: Any = psycopg.connect(place.target, autocommit=True)
            self.execute("SELECT set_config('search_path', ?, false)", (place.schema,))
        else:
            self._connection = apsw.Connection(store_url.removeprefix("sqlite:///"))

    def __enter__(self) -> Behind:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def execute(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """One statement; its rows."""
        if not self._postgres:
            return list(self._connection.execute(query, values))
        cursor = self._connection.execute(query.replace("?", "%s"), values)
        return list(cursor.fetchall()) if cursor.description else []

    def entry(self, stream: int, seq: int) -> tuple[str, tuple[int, ...]]:
        """The condition that is true of one entry of the journal, and its values."""
        if self._postgres:
            return "stream = ? AND seq = ?", (stream, seq)
        return "id = ?", ((stream << 32) | seq,)

    def move(self, stream: int, source: int, target: int) -> None:
        """Give an entry another number."""
        where, which = self.entry(stream, source)
        what, new = ("seq = ?", (target,)) if self._postgres else ("id = ?", ((stream << 32) | target,))
        self.execute(f"UPDATE journal SET {what} WHERE {where}", (*new, *which))


class WallClock:
    """The wall clock of this process, which a test sets ahead instead of sleeping."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def advance(self, seconds: float) -> None:
        self.ahead_ms += int(seconds * 1000)

    def now(self) -> datetime:
        return datetime.fromtimestamp(SYSTEM_CLOCK.wall_ms() / 1000, UTC)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    """Stores of this process, and of its forks, follow the clock."""
    clock, right = WallClock(), SystemClock.wall_ms
    monkeypatch.setattr(SystemClock, "wall_ms", lambda self: right(self) + clock.ahead_ms)
    return clock


def wait_until(ready: Callable[[], object]) -> None:
    """Wait for something that another thread or process does."""
    patience = time.monotonic() + PATIENCE
    while not ready():
        assert time.monotonic() < patience, "waited in vain"
        time.sleep(0.002)


def lose_lease(store_url: str, run_id: str) -> None:
    """Somebody else has the run now, and has written nothing yet."""
    with Behind(store_url) as store:
        store.execute(
            "UPDATE leases SET fence = fence + 1 WHERE stream = (SELECT stream FROM runs WHERE id = ?)", (run_id,)
        )


def expire_leases(store_url: str) -> None:
    """All leases have run out: their holders have not been heard of for long."""
    with Behind(store_url) as store:
        store.execute("UPDATE holders SET deadline = 0")


def agent_at(store_url: str, name: str = "tester") -> Agent:
    """An agent of this process."""
    return Agent(name, store=store_url)


def check_views(where: str | Agent | AsyncAgent) -> None:
    """The views of a store are what its journal says, and the journal is whole."""
    if isinstance(where, str):
        with closing(agent_at(where)) as agent:
            check_views(agent)
        return
    assert rebuild.check(where._engine.store) == []
    assert [one for one in verify(where._engine.store).findings if one.severity == "damage"] == []
