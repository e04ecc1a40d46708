"""Starting processes, killing them, starting them again until they finish, and judging what is left."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from perdure.store import is_postgres
from perdure.store.postgres.url import parse
from tests.crash import stores
from tests.crash.waiting import wait_for
from tests.crash.world import World

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
PARALLEL = 3
"""Victims at a time: one more than the cores of CI, because each waits for the disk now and then."""

CHILD_SECONDS_MAX = 200.0
"""A victim that takes longer hangs."""

ATTEMPTS_MAX = 8
"""Starts until a run must have finished."""


def environment(**more: str) -> dict[str, str]:
    """What a child process sees."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    return {**kept, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "PERDURE_EMBEDDER": "words", **more}


class Child:
    """A process that the fork_server has made."""

    def __init__(self, output: Path) -> None:
        self.pid = 0
        self._output = output
        self._code: int | None = None
        self._started = threading.Event()
        self._ended = threading.Event()

    def wait(self, seconds: float = CHILD_SECONDS_MAX) -> int:
        """The exit code; negative for a signal, as subprocess has it."""
        if not self._ended.wait(seconds):
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)  # with its own children, one of which may hang
            self._ended.wait()
            raise AssertionError(f"process {self.pid} did not end within {seconds:g} s:\n{self.output()}")
        assert self._code is not None
        return self._code

    def send(self, number: int) -> None:
        """A signal; too late is fine."""
        if self.pid and not self._ended.is_set():  # 0 would be everybody who is with us
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def output(self) -> str:
        """What it has printed, standard error included."""
        return self._output.read_text() if self._output.exists() else ""

    def hear(self, fact: dict[str, Any]) -> None:
        """News from the fork_server."""
        if "pid" in fact:
            self.pid = fact["pid"]
            self._started.set()
        else:
            self._code = fact["code"]
            self._ended.set()

    def wait_for_pid(self) -> None:
        assert self._started.wait(CHILD_SECONDS_MAX), "the fork_server does not answer"


class ForkServer:
    """The other end of fork_server.py."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.fork_server"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environment(),
        )  # fmt: skip
        self._numbers = itertools.count()
        self._children: dict[int, Child] = {}
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def start(self, call: str, folder: Path, env: dict[str, str] | None = None, **arguments: Any) -> Child:
        """Call `module:function(folder, ...)` in a new process; what it prints goes to a file there."""
        number = next(self._numbers)
        output = folder / f"output-{number}.txt"
        child = self._children[number] = Child(output)
        order = {
            "id": number,
            "call": call,
            "arguments": {"folder": str(folder), **arguments},
            # A home of its own: keys of a store on a server are kept there.
            "env": environment(**{"HOME": str(folder), "TMPDIR": str(folder), **(env or {})}),
            "output": str(output),
        }
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
        child.wait_for_pid()
        return child

    def run(self, call: str, folder: Path, env: dict[str, str] | None = None, **arguments: Any) -> int:
        """The same, until it ends; a Python error in the child is one here."""
        child = self.start(call, folder, env, **arguments)
        code = child.wait()
        assert code != 1, f"{call} failed:\n{child.output()}"
        return code

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(CHILD_SECONDS_MAX)
        self._reader.join()
        self._process.stdout.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            fact = json.loads(line)
            self._children[fact["id"]].hear(fact)
            if "code" in fact:
                del self._children[fact["id"]]


@dataclass(frozen=True)
class Undisturbed:
    """The run as it is when nobody kills anything: what every other one must come to."""

    outcome: dict[str, Any]
    effects: Counter[str]
    reached: list[str]
    """Each failpoint in order, as `site:moment`."""

    def places(self) -> list[str]:
        """Every failpoint as `PERDURE_FAILPOINT` names it: with the number of the time that it is reached."""
        seen: Counter[str] = Counter()
        named = []
        for place in self.reached:
            seen[place] += 1
            named.append(f"{place}#{seen[place]}")
        return named


class Scene:
    """A folder in memory with an outside world and a store, here or on a server, and the victim that lives there."""

    def __init__(self, fork_server: ForkServer, folder: Path, program: str, colour: str = "sync") -> None:
        self.fork_server = fork_server
        self.folder = folder
        self.world = World(folder)
        self._program = f"tests.crash.{program}"
        self._arguments = {"colour": colour}

    def start(self, env: dict[str, str] | None = None) -> Child:
        return self.fork_server.start(self._program, self.folder, env, **self._arguments)

    def once(self, env: dict[str, str] | None = None) -> int:
        return self.fork_server.run(self._program, self.folder, env, **self._arguments)

    def finish(self) -> None:
        """Start it until it ends by itself."""
        for _ in range(ATTEMPTS_MAX):
            if self.once() == 0:
                return
        raise AssertionError(f"the run has not finished after {ATTEMPTS_MAX} starts")

    def wait_for_lines(self, count: int, *children: Child) -> None:
        """Until the world has seen that much, or all the children have ended."""
        wait_for(lambda: len(self.world.lines()) >= count or all(child.ended for child in children), "some work")

    def outcome(self) -> dict[str, Any]:
        """What the victim has left when it finished."""
        found: dict[str, Any] = json.loads((self.folder / "outcome.json").read_text())
        return found

    def play_undisturbed(self) -> Undisturbed:
        """Run it once in peace and remember everything."""
        assert self.once({"CRASH_COUNT": "1"}) == 0
        listed = self.folder / "reached.txt"
        return Undisturbed(self.outcome(), self.world.effects(), listed.read_text().split())

    def judge(self, expected: Undisturbed) -> list[str]:
        """All that differs from the undisturbed run and every broken promise; a scene without fault is cleared away."""
        found = self.world.broken_promises()
        outcome = self.outcome()
        for name, value in expected.outcome.items():
            if outcome.get(name) != value:
                found.append(f"{name} is {outcome.get(name)!r}, not {value!r}")
        effects = self.world.effects()
        for name in sorted(effects.keys() | expected.effects.keys()):
            if effects[name] != expected.effects[name]:
                found.append(f"effect {name} happened {effects[name]} times, not {expected.effects[name]}")
        if not found:
            self.clear()
        return found

    def clear(self) -> None:
        """Nobody needs it any more."""
        drop_store(stores.store_of(self.folder))
        shutil.rmtree(self.folder)


def drop_store(url: str) -> None:
    """Clear a store away that is not in its folder: a thousand schemas fill a file system in memory."""
    if is_postgres(url):
        place = parse(url)
        with psycopg.connect(place.target, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(place.schema)))


class Stage:
    """Makes scenes and clears them away. Their stores are files, unless `new_store` gives the URLs of others."""

    def __init__(self, fork_server: ForkServer, new_store: Callable[[Path], str] | None = None) -> None:
        self.fork_server = fork_server
        self._new_store = new_store
        self.kind = "sqlite" if new_store is None else "postgres"
        self._folder = Path(tempfile.mkdtemp(prefix="perdure-crash-"))
        self._numbers = itertools.count()

    def folder(self) -> Path:
        """A new empty one."""
        folder = self._folder / str(next(self._numbers))
        folder.mkdir()
        if self._new_store is not None:
            stores.settle(folder, self._new_store(folder))
        return folder

    def scene(self, program: str, colour: str = "sync") -> Scene:
        return Scene(self.fork_server, self.folder(), program, colour)

    def clear(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def open_stage() -> Iterator[Stage]:
    """A stage with SQLite stores and a fork server of its own."""
    fork_server = ForkServer()
    stage = Stage(fork_server)
    try:
        yield stage
    finally:
        stage.clear()
        fork_server.close()


def run_cases(work: Callable[[T], list[str]], cases: Iterable[T], at_a_time: int = PARALLEL) -> list[str]:
    """Do all cases; the complaints of each, with the case in front."""
    listed = list(cases)
    with ThreadPoolExecutor(at_a_time) as pool:
        results = list(pool.map(lambda case: _run_guarded(work, case), listed))
    return [f"{case}: {text}" for case, texts in zip(listed, results, strict=True) for text in texts]


def repeat_cases(
    case: Callable[[int], list[str]], rounds: int, enough: Callable[[], bool], at_a_time: int = PARALLEL
) -> list[str]:
    """Play cases by their seeds, and more of them until enough have met what they are about: a busy machine is late."""
    complaints: list[str] = []
    for first in itertools.count(0, rounds):
        complaints = run_cases(case, range(first, first + rounds), at_a_time)
        if complaints or enough():
            break
    return complaints


def _run_guarded(work: Callable[[T], list[str]], case: T) -> list[str]:
    try:
        return work(case)
    except AssertionError as error:
        return [str(error)]


def spread(cases: list[T], count: int) -> list[T]:
    """`count` of them, evenly: the same ones each time, and all when there are fewer."""
    if len(cases) <= count:
        return cases
    return [cases[index * len(cases) // count] for index in range(count)]
