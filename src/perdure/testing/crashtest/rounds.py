"""Runs the rounds of a crash test: each has its own folder and store, in which a program is killed and restarted."""

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

from perdure.errors import PerdureError
from perdure.store import is_postgres, versions_of
from perdure.store.postgres.url import parse
from perdure.store.sqlite.file import APPLICATION_ID
from perdure.testing.crashtest.messages import (
    LEASE_MS,
    CrashtestProblem,
    Disturbance,
    LaunchOrder,
    ProgramEvent,
    manner_of,
    strip_action,
)
from perdure.testing.crashtest.outside import OutsideWorld, find_added_lines
from perdure.testing.crashtest.people import AnsweredWaits, ScriptedAnswers
from perdure.testing.crashtest.places import CrashPoint, places_of
from perdure.testing.crashtest.processes import SLICE_SECONDS, ForkServerClient, ProgramProcess, fork_server_of
from perdure.testing.crashtest.snapshot import (
    StoreSnapshot,
    has_interrupted,
    has_waiting_doubt,
    looks_like_sqlite,
    stores_in,
    take_snapshot,
)

LEFT_OUT = frozenset(
    ".git .hg .venv venv node_modules __pycache__ .mypy_cache .ruff_cache .pytest_cache .tox .perdure".split()
)
"""Folders that a tested program does not need, or must not find."""

FILES_MAX = 5_000
BYTES_MAX = 200_000_000
"""Limits of a folder that is copied for every round."""

MEMORY_BYTES_MIN = 2_000_000_000
"""Free space that a memory file system must have before it is used."""

STARTS_MAX = 3
"""Restarts after the last kill: a program that has not ended well by then does not survive."""

GROWN_BYTES_MAX = 1_000_000
OUTPUT_CHARACTERS_MAX = 4_000
KILLED = -9
PAUSED = -19
ANSWERED_SECONDS = 0.05
"""The polling interval for questions, if there are answers."""
DATABASE = "crashtest.db"
SCRATCH = "perdure-crashtest-"
"""The prefix of the folder of all rounds, which may be inside the folder that is copied."""


class ProgramStart(msgspec.Struct, frozen=True):
    """One start of the program, and how it ended."""

    code: int
    seconds: float
    hung: bool = False
    asked: bool = False
    """Whether it waits for a person to settle an effect."""
    output: str = ""


class CrashRound(msgspec.Struct, frozen=True):
    """The program disturbed at some places, restarted until it ended, and what it left."""

    places: tuple[str, ...]
    starts: tuple[ProgramStart, ...]
    reached: bool
    """Whether it reached all places."""
    snapshot: StoreSnapshot
    outside: tuple[str, ...]
    """The new lines in the outside world."""
    trail: tuple[ProgramEvent, ...]
    """The trail of the start that recorded one: of an undisturbed round, else the first restart after the kills."""
    folder: str
    instant: CrashPoint | None = None
    """Where it was at a random instant."""
    before: int = 0
    """How many lines were outside at the beginning."""
    grown: tuple[str, ...] = ()
    """Files that an undisturbed program has made longer: candidates for --count-effects."""

    @property
    def last(self) -> ProgramStart:
        return self.starts[-1]


class CrashStage:
    """Runs rounds, each in a copy of the folder, and cleans up."""

    def __init__(
        self,
        program: str,
        arguments: tuple[str, ...],
        folder: Path,
        outside: OutsideWorld,
        store: str,
        people: ScriptedAnswers,
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
        # Two seeds, so that sets of text have another order after a restart, as in reality.
        self._fork_servers = (fork_server_of(1), fork_server_of(2))

    def stop(self) -> None:
        """Start no more programs. Rounds in progress end early, without a verdict."""
        self._stopped.set()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def close(self) -> None:
        """Remove everything except what was kept."""
        shutil.rmtree(self._template, ignore_errors=True)
        for left in list(self._scratch.iterdir()):
            if left.is_file():
                left.unlink()
            elif str(left).removesuffix(".keys") not in self._kept:
                self._clear(left)
        if not self._kept:
            self._scratch.rmdir()

    def keep(self, done: CrashRound) -> None:
        """Keep the folder of a round."""
        self._kept.add(done.folder)

    def run_undisturbed(self, seconds_max: float, *, thorough: bool = False, beating: bool = False) -> CrashRound:
        """Run the program undisturbed."""
        return self._play((), RoundTimeouts(None, seconds_max, seconds_max), thorough, beating)

    def round(self, places: tuple[str, ...], patience: RoundTimeouts, *, thorough: bool = False) -> CrashRound:
        """Disturb the program at these places, one per start, and let it end."""
        return self._play(places, patience, thorough)

    def clear(self, done: CrashRound) -> None:
        """Remove the folder of a round."""
        self._clear(Path(done.folder))

    def _clear(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(f"{folder}.keys", ignore_errors=True)
        if is_postgres(self._store):
            _drop(self._url(folder))

    def source_line(self, at: str) -> str:
        """Return the source text of `agent.py:12`."""
        name, _, number = at.rpartition(":")
        try:
            lines = (self._template / name).read_text("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return lines[int(number) - 1].strip() if 0 < int(number or 0) <= len(lines) else ""

    def source(self, name: str) -> str:
        """Return the source text of a file of the program."""
        try:
            return (self._template / name).read_text("utf-8", "replace")
        except OSError:
            return ""

    def _play(
        self, places: tuple[str, ...], patience: RoundTimeouts, thorough: bool, beating: bool = False
    ) -> CrashRound:
        folder = self._scratch / f"round-{next(self._numbers)}"
        shutil.copytree(self._template, folder, symlinks=True)
        environment = self._environment(folder)
        before = self.outside.lines(folder, environment)
        order = LaunchOrder(
            id=0, program=self.program, arguments=self._arguments, folder=str(folder), environment=environment,
            output=f"{folder}.output", thorough=thorough, beating=beating,
        )  # fmt: skip
        starts, reached = self._starts(order, places, patience)
        made = CrashRound(
            places, tuple(starts), reached == len(places), take_snapshot(self._stores(folder)),
            tuple(find_added_lines(before, self.outside.lines(folder, environment))),
            _read_trail(f"{folder}.trail"), str(folder),
            next(reversed(places_of(_read_trail(f"{folder}.instant"))), None), len(before),
            () if places else self._find_grown_files(folder),
        )  # fmt: skip
        for left in ("trail", "instant", "output", "reached"):
            Path(f"{folder}.{left}").unlink(missing_ok=True)
        return made

    def _starts(
        self, order: LaunchOrder, places: tuple[str, ...], patience: RoundTimeouts
    ) -> tuple[list[ProgramStart], int]:
        """Start the program until it ends. Returns the starts, and how often it reached its place."""
        starts: list[ProgramStart] = []
        reached = 0
        paused: list[ProgramProcess] = []
        heard: AnsweredWaits = set()
        mark = Path(f"{order.folder}.reached")
        while not self._stopped.is_set():
            nth = len(starts)
            place = places[nth] if nth < len(places) else ""
            told = self._order_for(order, place, last=nth == len(places), reached=str(mark))
            fork_server = self._fork_servers[bool(nth) or (order.thorough and not places)]
            starts.append(self._start(told, fork_server, patience, paused, heard))
            came = mark.exists() or (manner_of(place) == Disturbance.INSTANT and starts[-1].code == KILLED)
            reached += came and bool(place)
            mark.unlink(missing_ok=True)
            if self._is_over(starts, places, patience, Path(order.folder)):
                break
        for process in paused:
            process.resume()
            if not process.wait(patience.seconds_max, lambda passed: self._stopped.is_set()):
                process.kill()
        return starts, reached

    def _order_for(self, order: LaunchOrder, place: str, *, last: bool, reached: str) -> LaunchOrder:
        """Return the order for one start: how it is disturbed, and what it records."""
        instant = manner_of(place) == Disturbance.INSTANT
        trail = f"{order.folder}.{'instant' if instant else 'trail'}" if instant or last else ""
        return msgspec.structs.replace(
            order, place=place, reached=reached, trail=trail, thorough=instant or (last and order.thorough),
            watched=self.outside.file_in(Path(order.folder)) if last and order.thorough else "",
        )  # fmt: skip

    def _start(
        self,
        order: LaunchOrder,
        fork_server: ForkServerClient,
        patience: RoundTimeouts,
        paused: list[ProgramProcess],
        heard: AnsweredWaits,
    ) -> ProgramStart:
        manner = manner_of(order.place)
        instant = float(strip_action(order.place).rstrip("s")) if manner == Disturbance.INSTANT else None
        process = fork_server.start(order)
        began = time.monotonic()
        asked = False

        def give_up(passed: float) -> bool:
            nonlocal asked
            if self.people:
                self.people.answer_all(self._stores(Path(order.folder)), heard)
            asked = passed > patience.before_looking and has_waiting_doubt(self._stores(Path(order.folder)))
            return asked or self._stopped.is_set()

        if manner == Disturbance.STOP and process.wait_until_stopped(patience.seconds_max):
            paused.append(process)
            self._stopped.wait(LEASE_MS / 1000 * 1.1)  # until its lease has expired
            return ProgramStart(PAUSED, time.monotonic() - began)
        every = ANSWERED_SECONDS if self.people else SLICE_SECONDS
        ended = process.wait(patience.seconds_max if instant is None else instant, give_up, every)
        if not ended:
            process.kill()
        hung = not ended and instant is None and not asked
        code = KILLED if process.code is None else process.code
        return ProgramStart(code, time.monotonic() - began, hung, asked, _tail(order.output))

    def _is_over(
        self, starts: list[ProgramStart], places: tuple[str, ...], patience: RoundTimeouts, folder: Path
    ) -> bool:
        last, nth = starts[-1], len(starts)
        if last.hung or last.asked:
            return True
        if nth <= len(places) and last.code in (KILLED, PAUSED):
            return False
        if last.code == patience.code or (patience.code is None and last.code >= 0):
            # A program may end well when told to end, with work left to do.
            told = nth <= len(places) and manner_of(places[nth - 1]) in (Disturbance.TERM, Disturbance.INTERRUPT)
            return not (told and has_interrupted(self._stores(folder)))
        return nth >= len(places) + STARTS_MAX

    def _find_grown_files(self, folder: Path) -> tuple[str, ...]:
        """Return small files that are new or longer than in the beginning."""
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


class RoundTimeouts(msgspec.Struct, frozen=True):
    """How long to wait."""

    code: int | None
    """The exit code of an undisturbed start; None while it is unknown."""
    seconds_max: float
    """After this time a start counts as hung."""
    before_looking: float
    """After this time, check whether it waits for a person."""


def _quick_disk() -> str | None:
    """Return a memory file system if there is one.

    Data that survives SIGKILL is in the page cache, and fsync is faster.
    """
    memory = Path("/dev") / "shm"
    roomy = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > MEMORY_BYTES_MIN
    return str(memory) if roomy and "TMPDIR" not in os.environ else None


def _read_trail(trail: str) -> tuple[ProgramEvent, ...]:
    try:
        lines = Path(trail).read_bytes().splitlines()
    except FileNotFoundError:
        return ()
    return tuple(msgspec.json.decode(line, type=ProgramEvent) for line in lines)


def _tail(path: str) -> str:
    """Return the end of the program's output."""
    try:
        return Path(path).read_text("utf-8", "replace")[-OUTPUT_CHARACTERS_MAX:]
    except FileNotFoundError:
        return ""


def _copy(source: Path, target: Path) -> None:
    """Copy the folder without stores: earlier runs must not count."""
    files = size = 0

    def select_left_out(top: str, names: list[str]) -> list[str]:
        nonlocal files, size
        stores = [name for name in names if _is_our_file(os.path.join(top, name))]
        out = [name for name in names if name in LEFT_OUT or name.startswith((SCRATCH, *stores))]
        kept = [os.path.join(top, name) for name in names if name not in out]
        files += len(kept)
        size += sum(os.lstat(path).st_size for path in kept)
        if files > FILES_MAX or size > BYTES_MAX:
            raise CrashtestProblem(
                f"{source} is too large to copy for every round",
                hint="name the folder that the program needs with --folder, or start in a smaller one",
            )
        return out

    try:
        shutil.copytree(source, target, symlinks=True, ignore=select_left_out)
    except BaseException:
        shutil.rmtree(target.parent, ignore_errors=True)
        raise


def _is_our_file(path: str) -> bool:
    """Return whether a file is a store, or may be one whose first page is still in its WAL."""
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
    """Drop the schema of a round."""
    import psycopg

    place = parse(url)
    with psycopg.connect(place.target) as connection:
        connection.execute("SELECT set_config('perdure.schema', %s, true)", (place.schema,))
        connection.execute(_DROP)
