"""Runs inside the tested program: records where it has been, and disturbs it where ordered.

Places are the failpoints of Perdure and the lines of the program's own files. Without a crash test, none of this is
loaded.
"""

from __future__ import annotations

import dis
import inspect
import os
import signal
import sys
import threading
from collections import Counter
from contextlib import ExitStack
from types import FrameType
from typing import Any

import msgspec

from perdure.journal import leases
from perdure.kernel.scope import current_frame
from perdure.platform import failpoints
from perdure.store import is_postgres
from perdure.store.base import list_open_stores
from perdure.testing.crashtest.messages import (
    HEART_SECONDS,
    LEASE_MS,
    Disturbance,
    LaunchOrder,
    ProgramEvent,
    manner_of,
    strip_action,
)

SEEN_MAX = 20_000
"""Limit of records in a trail. Of a longer program, only the beginning is recorded."""

TIMES_PER_LINE = 3
"""How often a line in a loop counts as a place."""

REST_SECONDS_MAX = 2.0
"""How long to wait for commits of other threads before the process is stopped."""

CALLERS_MAX = 8
LOST_ANSWER = "perdure crashtest: the effect has happened, but its response is lost"

CHANGING = frozenset(
    "time.time time.time_ns time.monotonic time.perf_counter datetime.now datetime.utcnow datetime.today date.today "
    "Random.random Random.getrandbits posix.urandom posix.getpid".split()
)
"""Built-in functions that return something else at every start."""

CHANGING_MODULES = frozenset({"random", "uuid", "secrets"})

RACES = {
    "concurrent.futures._base": frozenset({"wait", "as_completed", "done"}),
    "asyncio.tasks": frozenset({"wait", "as_completed"}),
}
"""Functions whose result depends on which task is first."""

LIVE = {
    "perdure.api.sync.state": "agent.state",
    "perdure.api.aio.state": "agent.state",
    "perdure.api.sync.checkpoints": "agent.checkpoint",
    "perdure.api.aio.checkpoints": "agent.checkpoint",
    "perdure.api.sync.artifacts": "agent.artifacts",
    "perdure.api.aio.artifacts": "agent.artifacts",
}
READS = frozenset({"get", "items", "version", "restore", "list", "load"})
"""Methods that read current values, which a resumed run may find changed."""

WORLD = frozenset(
    "pathlib.exists pathlib.is_file pathlib.is_dir pathlib.read_text pathlib.read_bytes pathlib.iterdir pathlib.glob "
    "genericpath.exists genericpath.isfile genericpath.isdir genericpath.getsize posix.stat posix.listdir "
    "posix.scandir io.open".split()
)
"""Functions that read files, which the run may have changed itself."""


class CrashProbe:
    """Counts, records and disturbs, as ordered."""

    def __init__(self, order: LaunchOrder) -> None:
        self._order = order
        self._manner = manner_of(order.place)
        self._where = strip_action(order.place)
        self._folder = os.path.join(os.path.realpath(order.folder), "")
        self._names: dict[str, str] = {}
        self._times: Counter[str] = Counter()
        self._calls: set[ProgramEvent] = set()
        self._last = ProgramEvent("line", "")
        self._size = 0
        self._left = SEEN_MAX
        self._trail = os.open(order.trail, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600) if order.trail else -1

    def begin(self) -> None:
        """Start in this thread and all threads that it starts."""
        self._size = self._measure_watched()
        self._set_times()
        failpoints.arm(self._point)
        if self._order.thorough or self._where.startswith(("line:", "raise:")):
            threading.settrace(self._trace)
            sys.settrace(self._trace)
        if self._order.thorough:
            threading.setprofile(self._profile)
            sys.setprofile(self._profile)

    def _set_times(self) -> None:
        """Shorten leases and heartbeats, so that the test does not wait for them."""
        if self._manner == Disturbance.STOP:
            vars(leases).update(LEASE_MS=LEASE_MS, HEARTBEAT_SECONDS=LEASE_MS / 4000)
        elif self._order.beating or self._manner == Disturbance.BEAT:
            vars(leases).update(HEARTBEAT_SECONDS=HEART_SECONDS)

    def _point(self, site: failpoints.Site, moment: failpoints.CommitMoment) -> None:
        self._look_outside()
        name = f"{site}:{moment}"
        frame: FrameType | None = sys._getframe()
        while frame is not None and not self._find_own_file(frame):
            frame = frame.f_back
        last = msgspec.structs.replace(self._last, what="point", name=name)
        self._note(self._make_event("point", name, frame) if frame else last)
        self._reach(name)

    def _reach(self, name: str) -> None:
        if self._is_here(name):
            if self._manner == Disturbance.FULL:
                raise _disk_full(self._order.environment.get("PERDURE_URL", ""))
            with ExitStack() as resting:
                if self._manner == Disturbance.STOP:
                    # Another thread may be inside a commit: stopped there, it would hold the write lock.
                    for store in list_open_stores():
                        resting.enter_context(store.quiesce(REST_SECONDS_MAX))
                    # Signal this very thread: a signal to the process may reach another one, and this one would
                    # continue for a while.
                    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
                else:
                    os.kill(os.getpid(), SIGNALS[self._manner])

    def _is_here(self, name: str) -> bool:
        """Return whether this is the ordered place."""
        self._times[name] += 1
        if f"{name}#{self._times[name]}" != self._where:
            return False
        os.close(os.open(self._order.reached, os.O_CREAT | os.O_WRONLY, 0o600))
        return True

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self._line if self._find_own_file(frame) else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        self._look_outside()
        if event == "line":
            name = f"{self._find_own_file(frame)}:{frame.f_lineno}"
            self._last = self._make_event("line", name, frame)
            if self._times[f"line:{name}"] < TIMES_PER_LINE:
                self._note(self._last)
            self._reach(f"line:{name}")
        elif event == "return":
            self._record_return(frame)
        return self._line

    def _record_return(self, frame: FrameType) -> None:
        """Record the end of an effect's body: its response may get lost."""
        scope = current_frame()
        if (
            scope is None
            or scope.inside != "effect"
            or (frame.f_back is not None and self._find_own_file(frame.f_back))
        ):
            return
        if not _has_ended(frame):
            return
        name = f"raise:{frame.f_code.co_name}"
        self._note(self._make_event("return", name, frame))
        if self._is_here(name):
            raise ConnectionError(LOST_ANSWER)  # raised inside the program, at this place

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        caller = frame if event == "c_call" else frame.f_back if event == "call" else None
        if caller is None or not self._find_own_file(caller):
            return
        name = _builtin(arg) if event == "c_call" else _name_of_call(frame)
        if name:
            seen = msgspec.structs.replace(self._make_event("call", name, caller), callers=self._callers(caller))
            if seen not in self._calls:
                self._calls.add(seen)
                self._note(seen)

    def _find_own_file(self, frame: FrameType) -> str:
        """Return the program's file that contains this code, relative to its folder; empty for other code."""
        path = frame.f_code.co_filename
        name = self._names.get(path)
        if name is None:
            real = os.path.realpath(path) if os.path.isabs(path) else ""  # "<string>" is not a file
            own = real.startswith(self._folder) and f"{os.sep}site-packages{os.sep}" not in real
            name = self._names[path] = real[len(self._folder) :] if own else ""
        return name

    def _make_event(self, what: str, name: str, frame: FrameType) -> ProgramEvent:
        at = f"{self._find_own_file(frame)}:{frame.f_lineno}"
        return ProgramEvent(what, name, at, self._find_enclosing_call(frame), frame.f_code.co_name)

    def _callers(self, frame: FrameType) -> tuple[tuple[str, str], ...]:
        found: list[tuple[str, str]] = []
        while len(found) < CALLERS_MAX and frame.f_back is not None and self._find_own_file(frame.f_back):
            frame = frame.f_back
            found.append((f"{self._find_own_file(frame)}:{frame.f_lineno}", frame.f_code.co_name))
        return tuple(found)

    def _find_enclosing_call(self, frame: FrameType) -> str:
        scope = current_frame()
        if scope is None:
            return ""
        if not scope.inside:
            return "run"
        while frame.f_back is not None and self._find_own_file(frame.f_back):
            frame = frame.f_back
        return f"{scope.inside} {frame.f_code.co_name}"

    def _look_outside(self) -> None:
        """Record growth of the watched file: the program's previous line has caused it."""
        if self._order.watched and (size := self._measure_watched()) != self._size:
            self._size = size
            self._note(msgspec.structs.replace(self._last, what="grew", name=str(size)))

    def _measure_watched(self) -> int:
        try:
            return os.stat(self._order.watched).st_size if self._order.watched else 0
        except FileNotFoundError:
            return 0

    def _note(self, seen: ProgramEvent) -> None:
        if self._trail >= 0 and self._left > 0 and (self._order.thorough or seen.what == "point"):
            self._left -= 1
            os.write(self._trail, msgspec.json.encode(seen) + b"\n")


SIGNALS = {
    Disturbance.KILL: signal.SIGKILL,
    Disturbance.BEAT: signal.SIGKILL,
    Disturbance.TERM: signal.SIGTERM,
    Disturbance.INTERRUPT: signal.SIGINT,
}


def _disk_full(url: str) -> Exception:
    """Return the error that the driver of the store would raise."""
    told = "perdure crashtest: the disk is full"
    if is_postgres(url):
        from perdure.store.postgres.errors import ServerError

        return ServerError("53100", told, 0)
    import apsw

    return apsw.FullError(told)


def _has_ended(frame: FrameType) -> bool:
    """Return whether a function has ended: coroutines and generators also reach a `return` event when they pause."""
    if not frame.f_code.co_flags & (inspect.CO_COROUTINE | inspect.CO_GENERATOR):
        return True
    return dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith("RETURN")


def _builtin(function: Any) -> str:
    qualified = getattr(function, "__qualname__", "")
    name = qualified if "." in qualified else f"{getattr(function, '__module__', '')}.{qualified}"
    return name if name in CHANGING or name in WORLD else ""


def _name_of_call(frame: FrameType) -> str:
    module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
    if module in CHANGING_MODULES and not name.startswith("_"):
        return f"{module}.{name}"
    if name in RACES.get(module, ()):
        return f"Future.{name}" if name == "done" else name
    if module in LIVE:
        return f"{LIVE[module]}.{name}" if name in READS else ""
    looked = f"{module.partition('.')[0]}.{name}"  # pathlib is a package in newer versions
    return looked if looked in WORLD else ""
