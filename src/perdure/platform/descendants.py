"""Finds the living descendants of a process, which may outlive it.

A process that opens a run leaves two traces in its descendants. Executed programs inherit an environment variable,
which `/proc/PID/environ` shows. A fork without exec shows the environment with which its parent was started, but it
inherits the parent's open files, among them one that is named after the parent. That file is in memory only
(`memfd_create`), so nothing needs cleanup.

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

from perdure.platform.process import (
    PASSES_MAX,
    Holder,
    ProcessStat,
    boot_id,
    find_living_thread,
    identify_this_process,
    read_stat,
    strip_boot_prefix,
)
from perdure.values.limits import ANCESTORS_MAX
from perdure.values.locks import lock

ANCESTORS = "PERDURE_ANCESTORS"
COMMAND_CHARACTERS_MAX = 80
BLANK_SECONDS = 0.01
FIRST_FREE_DESCRIPTOR = 3

_traces: dict[str, int] = {}
"""Open files that forks inherit, by the mark of the process that opened them; open until the process ends."""
_lock = lock()


class Descendant(msgspec.Struct, frozen=True):
    """A living process; `pid` is 0 if it is unknown which one."""

    pid: int
    started: int
    command: str

    def __str__(self) -> str:
        return f"child process {self.pid} ({self.command})" if self.pid else self.command

    @property
    def advice(self) -> str:
        """Advice for a person on how to end it."""
        return f" (if it is not, end it with `kill {self.pid}`)" if self.pid else ""

    def has_ended(self) -> bool:
        """Whether the process has ended; False if unknown."""
        if not self.pid:
            return False
        seen = read_stat(f"/proc/{self.pid}")
        return seen is None or seen.started != self.started or find_living_thread(self.pid, seen) is None


def mark_descendants(holder: Holder) -> None:
    """Mark all processes that this one starts from now on as its descendants. `holder` is this process."""
    mark = mark_of(holder)
    inherited = os.environ.get(ANCESTORS, "")
    if mark not in inherited:
        # Keep the marks of outer processes: a child that is an agent itself still descends from them.
        marks = [*inherited.split(), mark]
        os.environ[ANCESTORS] = " ".join(marks[-ANCESTORS_MAX:])
    if mark not in _traces:
        with _lock:
            if mark not in _traces:
                _traces[mark] = _open_trace(mark)


def mark_of(holder: Holder) -> str:
    """Return a unique name of a process since this machine was booted."""
    namespace = holder.namespace.removeprefix("pid:[").removesuffix("]")
    return f"[{namespace}.{holder.pid}.{holder.started}]"


def find_living_descendant(holder: Holder, since_ms: int) -> Descendant | None:
    """Find a living descendant of `holder` that was started after `since_ms` of the boot clock.

    A caller that descends from the holder excludes itself and its own children, but not its ancestors, which it does
    not control. None is no proof where processes can hide: see "what is not promised".
    """
    if strip_boot_prefix(holder.boot) != boot_id() or holder.is_client:
        return None
    caller = identify_this_process()
    found = _DescendantSearch(holder, since_ms, caller).search_processes()
    if found is None and mark_of(holder) != mark_of(caller) and _lock_is_held(mark_of(holder)):
        return Descendant(0, 0, "a fork")
    return found


def _descends_from(holder: Holder) -> bool:
    """Whether this process is the holder or descends from it."""
    mark = mark_of(holder)
    return mark in os.environ.get(ANCESTORS, "") or mark in _traces


class _SearchResult(Enum):
    UNRELATED = auto()
    ENDED = auto()
    BLANK = auto()
    """It shows no environment, perhaps because it is executing a program right now."""


class _DescendantSearch:
    """Searches for processes with the traces of a holder."""

    def __init__(self, holder: Holder, since_ms: int, caller: Holder) -> None:
        self._holder = holder
        self._since_ms = since_ms
        self._caller = caller
        self._mark, own = mark_of(holder).encode(), mark_of(caller).encode()
        self._own = own if _descends_from(holder) and own != self._mark else b""
        """The mark of the caller's own children, which are excluded."""
        self._unrelated: set[int] = set()
        self._unclear: set[tuple[int, Descendant | _SearchResult]] = set()

    def search_processes(self) -> Descendant | None:
        """Return the oldest descendant.

        A process that ended after the list was read may have started one that is not in the list: then the list is read
        again. If every process of a list could be examined and none descends, there is none.
        """
        for _ in range(PASSES_MAX):
            try:
                pids = {int(name) for name in os.listdir("/proc") if name.isdigit()}
            except OSError:
                return None  # a system without /proc
            seen = {(pid, self._look_at(pid)) for pid in pids - self._unrelated}
            if found := [one for _, one in seen if isinstance(one, Descendant)]:
                return min(found, key=lambda one: (one.started, one.pid))
            # Unclear twice means unrelated: a zombie, or a process without an environment.
            unclear = {one for one in seen if one[1] is not _SearchResult.UNRELATED} - self._unclear
            if not unclear:
                return None
            self._unrelated |= {pid for pid, _ in seen - unclear}
            self._unclear |= unclear
            if any(one is _SearchResult.BLANK for _, one in unclear):
                time.sleep(BLANK_SECONDS)
        return Descendant(0, 0, "one of the processes that come and go too quickly to be looked at")

    def _look_at(self, pid: int) -> Descendant | _SearchResult:
        if pid == self._caller.pid:
            return _SearchResult.UNRELATED
        seen = read_stat(f"/proc/{pid}")
        if seen is None:
            return _SearchResult.ENDED
        if (seen.started + 1) * _TICK_MS <= self._since_ms:
            return _SearchResult.UNRELATED
        folder = find_living_thread(pid, seen)
        if folder is None:
            return _SearchResult.ENDED
        environment, traces = _environment(folder), _list_inherited_traces(folder)
        if self._own and (self._own in environment or self._own in traces):
            return _SearchResult.UNRELATED
        if self._mark in environment or self._mark in traces or self._shares_group(seen):
            return Descendant(pid, seen.started, _command(folder))
        return _SearchResult.UNRELATED if environment else _SearchResult.BLANK

    def _shares_group(self, seen: ProcessStat) -> bool:
        """Whether the holder leads the group or session of a process; only descendants join these.

        This is readable for processes of other users too.
        """
        here = self._holder.namespace == self._caller.namespace
        return here and self._holder.pid in (seen.group, seen.session)


def _environment(folder: str) -> bytes:
    """Return the environment of a process; not empty if it may not be read."""
    try:
        with open(f"{folder}/environ", "rb") as file:
            return file.read()
    except PermissionError:
        return b"?"
    except OSError:
        return b""


def _list_inherited_traces(folder: str) -> bytes:
    """Return the names of the traces that a process has open."""
    names = []
    with suppress(OSError):  # another user's process, or one that just ended
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
    """Open a file that forks inherit; -1 if this system has none."""
    try:
        opened = os.memfd_create(_TRACE + mark)
    except (AttributeError, OSError):
        return _open_locked(mark)
    if opened >= FIRST_FREE_DESCRIPTOR:
        return opened
    # Above the standard descriptors: a process without stdin would get the trace in its place.
    moved = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE_DESCRIPTOR)
    os.close(opened)
    return moved


def _open_locked(mark: str) -> int:
    """Open a file with a lock that lasts until this process and all its forks have ended."""
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
        os.unlink(path)  # no process can hold it any more
    except OSError:
        return True
    finally:
        os.close(opened)
    return False


def _open_own(path: str, more: int = 0) -> int:
    """Open a file in a folder that only this user can write; OSError for another folder."""
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
