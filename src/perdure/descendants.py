"""Processes that another process has started, itself or through others, and that may outlive it.

A process that opens a run leaves two traces in all that descends from it. Programs inherit an environment variable
when they are executed, and `/proc/PID/environ` shows it. A fork that executes nothing shows the environment of its
parent's own start, but has the parent's files open: among them one that is named after the parent. It lives in memory
only (`memfd_create`), so nothing has to be cleared away, and its owner and start time are those of the fork.

Without `memfd_create` the forks inherit a lock on a small file. It tells that a fork lives, but not which one.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from contextlib import suppress
from enum import Enum, auto

import msgspec

from .limits import ANCESTORS_MAX
from .locks import lock
from .process import PASSES_MAX, Holder, Stat, at_home, boot_id, living_thread, read_stat, this_process

ANCESTORS = "PERDURE_ANCESTORS"
COMMAND_CHARACTERS_MAX = 80
BLANK_SECONDS = 0.01
FIRST_FREE_DESCRIPTOR = 3

_traces: dict[str, int] = {}
"""Open files that forks inherit, by the mark of the process that opened them. They stay open until the process ends."""
_lock = lock()


class Descendant(msgspec.Struct, frozen=True):
    """A process that lives; `pid` is 0 when it cannot be told which one."""

    pid: int
    started: int
    command: str

    def __str__(self) -> str:
        return f"child process {self.pid} ({self.command})" if self.pid else self.command

    @property
    def advice(self) -> str:
        """What a person can do about it."""
        return f" (if it is not, end it with `kill {self.pid}`)" if self.pid else ""

    def ended(self) -> bool:
        """False also when that cannot be told."""
        if not self.pid:
            return False
        seen = read_stat(f"/proc/{self.pid}")
        return seen is None or seen.started != self.started or living_thread(self.pid, seen) is None


def mark_descendants(holder: Holder) -> None:
    """From now on, every process that this one starts can be told to descend from it. `holder` is this process."""
    mark = mark_of(holder)
    inherited = os.environ.get(ANCESTORS, "")
    if mark not in inherited:
        # Those of outer processes stay: a child that is an agent itself still descends from them.
        marks = [*inherited.split(), mark]
        os.environ[ANCESTORS] = " ".join(marks[-ANCESTORS_MAX:])
    if mark not in _traces:
        with _lock:
            if mark not in _traces:
                _traces[mark] = _open_trace(mark)


def mark_of(holder: Holder) -> str:
    """A word that names a process among all that have run since this machine was booted."""
    namespace = holder.namespace.removeprefix("pid:[").removesuffix("]")
    return f"[{namespace}.{holder.pid}.{holder.started}]"


def living_descendant(holder: Holder, since_ms: int) -> Descendant | None:
    """A process that descends from `holder`, was started after `since_ms` of the boot clock, and still lives.

    A caller that descends from the holder counts neither itself nor what it has started. It counts its own ancestors:
    what they do next is not in its hands. None is no proof where processes hide: see "what is not promised".
    """
    if at_home(holder.boot) != boot_id():
        return None
    caller = this_process()
    found = _Search(holder, since_ms, caller).in_processes()
    if found is None and mark_of(holder) != mark_of(caller) and _lock_is_held(mark_of(holder)):
        return Descendant(0, 0, "a fork")
    return found


def _descends_from(holder: Holder) -> bool:
    """Whether this process does, or is it."""
    mark = mark_of(holder)
    return mark in os.environ.get(ANCESTORS, "") or mark in _traces


class _Seen(Enum):
    UNRELATED = auto()
    ENDED = auto()
    BLANK = auto()
    """It shows no environment: perhaps it is just executing a program, and has its new one in a moment."""


class _Search:
    """For processes that carry the traces of one."""

    def __init__(self, holder: Holder, since_ms: int, caller: Holder) -> None:
        self._holder = holder
        self._since_ms = since_ms
        self._caller = caller
        self._mark, own = mark_of(holder).encode(), mark_of(caller).encode()
        self._own = own if _descends_from(holder) and own != self._mark else b""
        """What has this mark descends from the holder through us, and does what we tell it."""
        self._unrelated: set[int] = set()
        self._unclear: set[tuple[int, Descendant | _Seen]] = set()

    def in_processes(self) -> Descendant | None:
        """The oldest one.

        One that ended after the list was read may have started another one, which is not in the list: then the list is
        read again. If every process of a list could be looked at, and none descends, then none was there to start one.
        """
        for _ in range(PASSES_MAX):
            try:
                pids = {int(name) for name in os.listdir("/proc") if name.isdigit()}
            except OSError:
                return None  # a system without /proc
            seen = {(pid, self._look_at(pid)) for pid in pids - self._unrelated}
            if found := [one for _, one in seen if isinstance(one, Descendant)]:
                return min(found, key=lambda one: (one.started, one.pid))
            # Unclear twice is unrelated: a corpse that nobody collects, or a process without an environment.
            unclear = {one for one in seen if one[1] is not _Seen.UNRELATED} - self._unclear
            if not unclear:
                return None
            self._unrelated |= {pid for pid, _ in seen - unclear}
            self._unclear |= unclear
            if any(one is _Seen.BLANK for _, one in unclear):
                time.sleep(BLANK_SECONDS)
        return Descendant(0, 0, "one of the processes that come and go too quickly to be looked at")

    def _look_at(self, pid: int) -> Descendant | _Seen:
        if pid == self._caller.pid:
            return _Seen.UNRELATED
        seen = read_stat(f"/proc/{pid}")
        if seen is None:
            return _Seen.ENDED
        if (seen.started + 1) * _TICK_MS <= self._since_ms:
            return _Seen.UNRELATED
        folder = living_thread(pid, seen)
        if folder is None:
            return _Seen.ENDED
        environment, traces = _environment(folder), _inherited_traces(folder)
        if self._own and (self._own in environment or self._own in traces):
            return _Seen.UNRELATED
        if self._mark in environment or self._mark in traces or self._shares_group(seen):
            return Descendant(pid, seen.started, _command(folder))
        return _Seen.UNRELATED if environment else _Seen.BLANK

    def _shares_group(self, seen: Stat) -> bool:
        """Whether the holder leads the group or session of a process, which only its descendants come into.

        Everybody may read this, also of the processes of other users.
        """
        here = self._holder.namespace == self._caller.namespace
        return here and self._holder.pid in (seen.group, seen.session)


def _environment(folder: str) -> bytes:
    """What a process was executed with; something that is not empty if it may not be read."""
    try:
        with open(f"{folder}/environ", "rb") as file:
            return file.read()
    except PermissionError:
        return b"?"
    except OSError:
        return b""


def _inherited_traces(folder: str) -> bytes:
    """The names of the traces that a process has open."""
    names = []
    with suppress(OSError):  # of another user, or it has just ended
        for number in os.listdir(f"{folder}/fd"):
            with suppress(OSError):
                names.append(os.readlink(f"{folder}/fd/{number}"))
    return "\n".join(name for name in names if name.startswith(f"/memfd:{_TRACE}")).encode()


def _command(folder: str) -> str:
    try:
        with open(f"{folder}/cmdline", "rb") as file:
            words = file.read().replace(b"\0", b" ").decode(errors="replace").split()
    except OSError:
        words = []
    text = "".join(one if one.isprintable() else "?" for one in " ".join(words)) or "?"
    return text if len(text) <= COMMAND_CHARACTERS_MAX else f"{text[:COMMAND_CHARACTERS_MAX]}..."


def _open_trace(mark: str) -> int:
    """An open file that forks inherit; -1 when there is none on this system."""
    try:
        opened = os.memfd_create(_TRACE + mark)
    except (AttributeError, OSError):
        return _open_locked(mark)
    if opened >= FIRST_FREE_DESCRIPTOR:
        return opened
    # A process without stdin would put something else in its place.
    moved = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE_DESCRIPTOR)
    os.close(opened)
    return moved


def _open_locked(mark: str) -> int:
    """A file with a lock that lasts until this process and all of its forks have ended."""
    path = _lock_path(mark)
    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        opened = _open_own(path, os.O_CREAT)
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return -1
    return opened


def _lock_is_held(mark: str) -> bool:
    path = _lock_path(mark)
    try:
        opened = _open_own(path)
    except OSError:
        return False
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)  # all are gone who could hold it
    except OSError:
        return True
    finally:
        os.close(opened)
    return False


def _open_own(path: str, more: int = 0) -> int:
    """Open a file in a folder that nobody else can write to; OSError when it is not such a folder."""
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        seen = os.fstat(folder)
        if seen.st_uid != os.geteuid() or stat.S_IMODE(seen.st_mode) & 0o077:
            raise PermissionError(f"{os.path.dirname(path)} is not private to this user")
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | more
        return os.open(os.path.basename(path), flags, 0o600, dir_fd=folder)
    finally:
        os.close(folder)


def _lock_path(mark: str) -> str:
    import tempfile  # rarely needed

    return os.path.join(tempfile.gettempdir(), f"perdure-{os.geteuid()}", mark)


_TRACE = "perdure"
_TICK_MS = 1000 // os.sysconf("SC_CLK_TCK")
