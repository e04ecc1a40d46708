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
from .orders import LEASE_MS, CrashtestProblem, Manner, Order, Seen, manner_of, where_of
from .outside import Outside, added
from .people import Heard, People
from .places import Place, places_of
from .snapshot import Snapshot, interrupted, looks_like_sqlite, stores_in, taken, waiting_in_doubt
from .starting import SLICE_SECONDS, Process, Zygote, zygote_of

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

GROWN_BYTES_MAX = 1_000_000
OUTPUT_CHARACTERS_MAX = 4_000
KILLED = -9
PAUSED = -19
ANSWERED_SECONDS = 0.05
"""How often somebody looks for questions, if there are answers."""
DATABASE = "crashtest.db"
SCRATCH = "perdure-crashtest-"
"""Begins the name of the folder of all rounds, which may lie in the folder that is copied."""


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
    instant: Place | None = None
    """Where it was when a random instant came."""
    before: int = 0
    """How many lines were there outside when it began."""
    grown: tuple[str, ...] = ()
    """Files that an undisturbed program has made longer: perhaps its world."""

    @property
    def last(self) -> Start:
        return self.starts[-1]


class Stage:
    """Makes rounds, each in a copy of the folder, and clears them away."""

    def __init__(
        self, program: str, arguments: tuple[str, ...], folder: Path, outside: Outside, store: str, people: People
    ) -> None:
        self.program = program
        self.outside = outside
        self.people = people
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

    def undisturbed(self, seconds_max: float, *, thorough: bool = False, beating: bool = False) -> Round:
        """Run it in peace."""
        return self._play((), Patience(None, seconds_max, seconds_max), thorough, beating)

    def round(self, places: tuple[str, ...], patience: Patience, *, thorough: bool = False) -> Round:
        """Disturb it at these places, one start each, and let it end."""
        return self._play(places, patience, thorough)

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

    def _play(self, places: tuple[str, ...], patience: Patience, thorough: bool, beating: bool = False) -> Round:
        folder = self._scratch / f"round-{next(self._numbers)}"
        shutil.copytree(self._template, folder, symlinks=True)
        environment = self._environment(folder)
        before = self.outside.lines(folder, environment)
        order = Order(
            id=0, program=self.program, arguments=self._arguments, folder=str(folder), environment=environment,
            output=f"{folder}.output", thorough=thorough, beating=beating,
        )  # fmt: skip
        starts, reached = self._starts(order, places, patience)
        made = Round(
            places, tuple(starts), reached == len(places), taken(self._stores(folder)),
            tuple(added(before, self.outside.lines(folder, environment))), _read(f"{folder}.trail"), str(folder),
            next(reversed(places_of(_read(f"{folder}.instant"))), None), len(before),
            () if places else self._grown(folder),
        )  # fmt: skip
        for left in ("trail", "instant", "output", "reached"):
            Path(f"{folder}.{left}").unlink(missing_ok=True)
        return made

    def _starts(self, order: Order, places: tuple[str, ...], patience: Patience) -> tuple[list[Start], int]:
        """Start it until it ends; how often it came to the place that it was told."""
        starts: list[Start] = []
        reached = 0
        paused: list[Process] = []
        heard: Heard = set()
        mark = Path(f"{order.folder}.reached")
        while not self._stopped.is_set():
            nth = len(starts)
            place = places[nth] if nth < len(places) else ""
            told = self._told(order, place, last=nth == len(places), reached=str(mark))
            zygote = self._zygotes[bool(nth) or (order.thorough and not places)]
            starts.append(self._start(told, zygote, patience, paused, heard))
            came = mark.exists() or (manner_of(place) == Manner.INSTANT and starts[-1].code == KILLED)
            reached += came and bool(place)
            mark.unlink(missing_ok=True)
            if self._is_over(starts, places, patience, Path(order.folder)):
                break
        for process in paused:
            process.go_on()
            if not process.wait(patience.seconds_max, lambda passed: self._stopped.is_set()):
                process.kill()
        return starts, reached

    def _told(self, order: Order, place: str, *, last: bool, reached: str) -> Order:
        """The order for one start: what is done to it, and what it has to note."""
        instant = manner_of(place) == Manner.INSTANT
        trail = f"{order.folder}.{'instant' if instant else 'trail'}" if instant or last else ""
        return msgspec.structs.replace(
            order, place=place, reached=reached, trail=trail, thorough=instant or (last and order.thorough),
            watched=self.outside.file_in(Path(order.folder)) if last and order.thorough else "",
        )  # fmt: skip

    def _start(self, order: Order, zygote: Zygote, patience: Patience, paused: list[Process], heard: Heard) -> Start:
        manner = manner_of(order.place)
        instant = float(where_of(order.place).rstrip("s")) if manner == Manner.INSTANT else None
        process = zygote.start(order)
        began = time.monotonic()
        asked = False

        def give_up(passed: float) -> bool:
            nonlocal asked
            if self.people:
                self.people.speak(self._stores(Path(order.folder)), heard)
            asked = passed > patience.before_looking and waiting_in_doubt(self._stores(Path(order.folder)))
            return asked or self._stopped.is_set()

        if manner == Manner.STOP and process.wait_until_stopped(patience.seconds_max):
            paused.append(process)
            self._stopped.wait(LEASE_MS / 1000 * 1.1)  # until its lease has run out
            return Start(PAUSED, time.monotonic() - began)
        every = ANSWERED_SECONDS if self.people else SLICE_SECONDS
        ended = process.wait(patience.seconds_max if instant is None else instant, give_up, every)
        if not ended:
            process.kill()
        hung = not ended and instant is None and not asked
        code = KILLED if process.code is None else process.code
        return Start(code, time.monotonic() - began, hung, asked, _tail(order.output))

    def _is_over(self, starts: list[Start], places: tuple[str, ...], patience: Patience, folder: Path) -> bool:
        last, nth = starts[-1], len(starts)
        if last.hung or last.asked:
            return True
        if nth <= len(places) and last.code in (KILLED, PAUSED):
            return False
        if last.code == patience.code or (patience.code is None and last.code >= 0):
            # A program may end well when it is told to end: then there is something left to do.
            told = nth <= len(places) and manner_of(places[nth - 1]) in (Manner.TERM, Manner.INTERRUPT)
            return not (told and interrupted(self._stores(folder)))
        return nth >= len(places) + STARTS_MAX

    def _grown(self, folder: Path) -> tuple[str, ...]:
        """Small files that are longer than in the beginning, or new."""
        stores = tuple(url.removeprefix("sqlite:///") for url in stores_in(folder))
        found = []
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if path.is_file() and not path.is_symlink() and not str(path).startswith(stores):
                before = self._template / name
                size = before.stat().st_size if before.is_file() else 0
                found += [name.as_posix()] if size < path.stat().st_size < GROWN_BYTES_MAX else []
        return tuple(found)

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
