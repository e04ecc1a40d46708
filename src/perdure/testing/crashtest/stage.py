"""The stage of a crash test: a folder and a store for every round, in which a program is killed and started again."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import threading
import time
import uuid
from pathlib import Path

import msgspec

from ...errors import PerdureError
from ...store import is_postgres, versions_of
from ...store.postgres_url import parse
from ...store.sqlite_file import APPLICATION_ID
from .orders import Order, Seen
from .outside import Outside, added
from .snapshot import Snapshot, looks_like_sqlite, stores_in, taken, waiting_in_doubt
from .starting import Zygote, zygote_of

LEFT_OUT = frozenset(
    ".git .hg .venv venv node_modules __pycache__ .mypy_cache .ruff_cache .pytest_cache .tox .perdure".split()
)
"""Folders that a program under test does not need, or must not find."""

FILES_MAX = 5_000
BYTES_MAX = 200_000_000
"""Of a folder that is copied for every round."""

MEMORY_BYTES_MIN = 2_000_000_000
"""Free in a file system in memory, before it is used."""

STARTS_MAX = 3
"""After the last kill: a program that does not end well by then does not survive."""

OUTPUT_CHARACTERS_MAX = 4_000
KILLED = -9
DATABASE = "crashtest.db"
SCRATCH = "perdure-crashtest-"
"""Begins the name of the folder of all rounds, which may lie in the folder that is copied."""


class CrashtestProblem(PerdureError):
    """The crash test itself cannot be done."""

    code = "PD601"


class Start(msgspec.Struct, frozen=True):
    """One start of the program, and how it ended."""

    code: int
    seconds: float
    hung: bool = False
    asked: bool = False
    """It waits until a person says what became of an effect."""
    output: str = ""


class Round(msgspec.Struct, frozen=True):
    """The program killed at some places, started until it ended, and what it left."""

    places: tuple[str, ...]
    starts: tuple[Start, ...]
    reached: bool
    """Whether it came to all places, and died there."""
    snapshot: Snapshot
    outside: tuple[str, ...]
    """The lines that are new in the outside world."""
    trail: tuple[Seen, ...]
    """Of the start that had to note one: the only one of an undisturbed round, else the first after the kills."""
    folder: str

    @property
    def last(self) -> Start:
        return self.starts[-1]


class Stage:
    """Makes rounds, each in a copy of the folder, and clears them away."""

    def __init__(self, program: str, arguments: tuple[str, ...], folder: Path, outside: Outside, store: str) -> None:
        self.program = program
        self.outside = outside
        self._arguments = arguments
        self._store = store
        self._scratch = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=_quick_disk())).resolve()
        self._template = self._scratch / "template"
        self._numbers = itertools.count(1)
        self._token = uuid.uuid4().hex[:8]
        self._stopped = threading.Event()
        self._kept: set[str] = set()
        _copy(folder, self._template)
        # Two, so that a set of texts has another order when the program is started again, as in real life.
        self._zygotes = (zygote_of(1), zygote_of(2))

    def stop(self) -> None:
        """No more starts; rounds that are under way end early, and say nothing."""
        self._stopped.set()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def close(self) -> None:
        """Leave nothing behind but what was kept."""
        shutil.rmtree(self._template, ignore_errors=True)
        for left in list(self._scratch.iterdir()):
            if left.is_file():
                left.unlink()
            elif str(left).removesuffix(".keys") not in self._kept:
                self._clear(left)
        if not self._kept:
            self._scratch.rmdir()

    def keep(self, done: Round) -> None:
        """Somebody wants to look at it."""
        self._kept.add(done.folder)

    def undisturbed(self, seconds_max: float, thorough: bool) -> Round:
        """Run it in peace."""
        return self._play((), Patience(None, seconds_max, seconds_max), thorough)

    def round(self, places: tuple[str, ...], patience: Patience) -> Round:
        """Kill it at these places, one start each, and let it end."""
        return self._play(places, patience, thorough=False)

    def clear(self, done: Round) -> None:
        """Nobody needs its folder any more."""
        self._clear(Path(done.folder))

    def _clear(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(f"{folder}.keys", ignore_errors=True)
        if is_postgres(self._store):
            _drop(self._url(folder))

    def source_line(self, at: str) -> str:
        """The text of `agent.py:12`."""
        name, _, number = at.rpartition(":")
        try:
            lines = (self._template / name).read_text("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return lines[int(number) - 1].strip() if 0 < int(number or 0) <= len(lines) else ""

    def source(self, name: str) -> str:
        """The text of a file of the program's."""
        try:
            return (self._template / name).read_text("utf-8", "replace")
        except OSError:
            return ""

    def _play(self, places: tuple[str, ...], patience: Patience, thorough: bool) -> Round:
        folder = self._scratch / f"round-{next(self._numbers)}"
        shutil.copytree(self._template, folder, symlinks=True)
        environment = self._environment(folder)
        before = self.outside.lines(folder, environment)
        trail = f"{folder}.trail"
        starts: list[Start] = []
        while not self._stopped.is_set():
            nth = len(starts)
            order = Order(
                id=0, program=self.program, arguments=self._arguments, folder=str(folder), environment=environment,
                output=f"{folder}.output", place=places[nth] if nth < len(places) else "",
                trail=trail if nth == len(places) else "", thorough=thorough,
                watched=self.outside.file_in(folder) if thorough else "",
            )  # fmt: skip
            starts.append(self._start(order, self._zygotes[bool(nth) or thorough], patience))
            if self._is_over(starts, places, patience):
                break
        died = [start.code == KILLED or is_raise(name) for start, name in zip(starts, places, strict=False)]
        made = Round(
            places, tuple(starts), len(died) == len(places) and all(died), taken(self._stores(folder)),
            tuple(added(before, self.outside.lines(folder, environment))), _read(trail), str(folder),
        )  # fmt: skip
        for left in (trail, f"{folder}.output"):
            Path(left).unlink(missing_ok=True)
        return made

    def _start(self, order: Order, zygote: Zygote, patience: Patience) -> Start:
        instant = float(order.place[6:-1]) if order.place.startswith("after:") else None
        process = zygote.start(order)
        began = time.monotonic()
        asked = False

        def give_up(passed: float) -> bool:
            nonlocal asked
            asked = passed > patience.before_looking and waiting_in_doubt(self._stores(Path(order.folder)))
            return asked or self._stopped.is_set()

        ended = process.wait(patience.seconds_max if instant is None else instant, give_up)
        if not ended:
            process.kill()
        hung = not ended and instant is None and not asked
        code = KILLED if process.code is None else process.code
        return Start(code, time.monotonic() - began, hung, asked, _tail(order.output))

    def _is_over(self, starts: list[Start], places: tuple[str, ...], patience: Patience) -> bool:
        last = starts[-1]
        if last.hung or last.asked:
            return True
        if len(starts) <= len(places) and last.code == KILLED:
            return False
        if last.code == patience.code or (patience.code is None and last.code >= 0):
            return True
        return len(starts) >= len(places) + STARTS_MAX

    def _environment(self, folder: Path) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
        ours = {"PERDURE_URL": self._url(folder), "PERDURE_KEYS": f"{folder}.keys"}
        return {**kept, **ours, "PYTHONDONTWRITEBYTECODE": "1"}

    def _url(self, folder: Path) -> str:
        if not is_postgres(self._store):
            return f"sqlite:///{folder / DATABASE}"
        mark = "&" if "?" in self._store else "?"
        return f"{self._store}{mark}schema=crashtest_{self._token}_{folder.name.removeprefix('round-')}"

    def _stores(self, folder: Path) -> list[str]:
        served = [self._url(folder)] if is_postgres(self._store) and _is_there(self._url(folder)) else []
        return stores_in(folder) + served


def is_raise(place: str) -> bool:
    """Whether nobody is killed there, and an effect raises."""
    return place.startswith("raise:")


class Patience(msgspec.Struct, frozen=True):
    """How long to wait for what."""

    code: int | None
    """The exit code of an undisturbed start; None while nobody knows it."""
    seconds_max: float
    """After that a start hangs."""
    before_looking: float
    """After that somebody looks whether it waits for a person."""


def _quick_disk() -> str | None:
    """What survives SIGKILL is in the page cache: a file system in memory is as good, and has quick fsyncs."""
    memory = Path("/dev") / "shm"
    roomy = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > MEMORY_BYTES_MIN
    return str(memory) if roomy and "TMPDIR" not in os.environ else None


def _read(trail: str) -> tuple[Seen, ...]:
    try:
        lines = Path(trail).read_bytes().splitlines()
    except FileNotFoundError:
        return ()
    return tuple(msgspec.json.decode(line, type=Seen) for line in lines)


def _tail(path: str) -> str:
    """What the program has printed last."""
    try:
        return Path(path).read_text("utf-8", "replace")[-OUTPUT_CHARACTERS_MAX:]
    except FileNotFoundError:
        return ""


def _copy(source: Path, target: Path) -> None:
    """The folder without stores: what earlier runs have done must not count."""
    files = size = 0

    def left_out(top: str, names: list[str]) -> list[str]:
        nonlocal files, size
        stores = [name for name in names if _is_our_file(os.path.join(top, name))]
        out = [name for name in names if name in LEFT_OUT or name.startswith((SCRATCH, *stores))]
        kept = [os.path.join(top, name) for name in names if name not in out]
        files += len(kept)
        size += sum(os.lstat(path).st_size for path in kept)
        if files > FILES_MAX or size > BYTES_MAX:
            raise CrashtestProblem(
                f"{source} is too large to be copied for every round",
                hint="say which folder the program needs with --folder, or start it in a smaller one",
            )
        return out

    try:
        shutil.copytree(source, target, symlinks=True, ignore=left_out)
    except BaseException:
        shutil.rmtree(target.parent, ignore_errors=True)
        raise


def _is_our_file(path: str) -> bool:
    """Whether it is a store, or may be one whose first page is still in its log."""
    if not looks_like_sqlite(path):
        return False
    with open(path, "rb") as file:
        number = int.from_bytes(file.read(72)[68:], "big")
    return number == APPLICATION_ID or (number == 0 and os.path.exists(f"{path}-wal"))


def _is_there(url: str) -> bool:
    try:
        versions_of(url)
    except PerdureError:
        return False
    return True


_DROP = """
DO $$ BEGIN
  EXECUTE format('DROP SCHEMA IF EXISTS %I CASCADE', current_setting('perdure.schema'));
END $$
"""


def _drop(url: str) -> None:
    """The schema of a round, which nobody else knows."""
    import psycopg

    place = parse(url)
    with psycopg.connect(place.target) as connection:
        connection.execute("SELECT set_config('perdure.schema', %s, true)", (place.schema,))
        connection.execute(_DROP)
