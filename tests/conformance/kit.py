"""A user's program in pieces: agents, an outside world that counts, and processes that die for real."""

from __future__ import annotations

import gc
import os
import signal
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from perdure import Agent, failpoints
from perdure.failpoints import Moment, Site
from perdure.store.postgres_url import is_postgres, parse


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
        return self.all().count(what)

    def all(self) -> list[str]:
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


def in_child(program: Callable[[], object]) -> int:
    """Run a program in a process of its own, that shares nothing but files; returns its wait status."""
    [status] = in_children(1, program)
    return status


def in_children(count: int, program: Callable[[], object]) -> list[int]:
    """The same in several processes side by side."""
    pids = [forked(program) for _ in range(count)]
    return [os.waitpid(pid, 0)[1] for pid in pids]


def forked(program: Callable[[], object]) -> int:
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


def killed_at(program: Callable[[], object], site: Site, moment: Moment, nth: int = 1) -> None:
    """Run a program in a child that is killed at a failpoint."""

    def doomed() -> None:
        failpoints.arm(failpoints.kill_at(f"{site}:{moment}#{nth}"))
        program()

    status = in_child(doomed)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, f"it did not reach {site}:{moment}#{nth}"


class Behind:
    """The tables of a store behind its back, as another program would change them. Values are bound by `?`."""

    def __init__(self, store_url: str) -> None:
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
        self.execute(f"UPDATE events SET {what} WHERE {where}", (*new, *which))


def lose_lease(store_url: str, run_id: str) -> None:
    """Somebody else has the run now, and has written nothing yet."""
    with Behind(store_url) as store:
        store.execute(
            "UPDATE leases SET fence = fence + 1 WHERE stream = (SELECT stream FROM runs WHERE id = ?)", (run_id,)
        )


def agent_at(store_url: str, name: str = "tester") -> Agent:
    """An agent of this process."""
    return Agent(name, store=store_url)
