"""What `perdure doctor` looks at around a store: the library, the file, its place. Each check yields what it found."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
from collections.abc import Iterator
from enum import StrEnum

import apsw
import msgspec

from ..store.sqlite_file import NETWORK_FILE_SYSTEMS, SQLITE_VERSION_MIN, file_system_of
from ..store.sqlite_reading import is_writable
from ..store.turnstile import Turnstile
from .output import size

FREE_BYTES_MIN = 64 * 1024 * 1024
FREE_BYTES_FEW = 1024 * 1024 * 1024
LOG_BYTES_MANY = 256 * 1024 * 1024
LOCK_PATIENCE_SECONDS = 2.0
"""A commit takes milliseconds: who has the write lock for that long is stopped, or hangs."""

FORGETFUL = {"tmpfs": "is in memory, and gone after a restart", "ramfs": "is in memory, and gone after a restart"}


class Level(StrEnum):
    """How a check went."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


class Checked(msgspec.Struct, frozen=True):
    """One line of `perdure doctor`."""

    level: Level
    about: str
    text: str
    fix: str = ""


def library() -> Iterator[Checked]:
    """The SQLite that we have, and settings that belong into tests."""
    version = apsw.sqlite_lib_version()
    if tuple(map(int, version.split("."))) < SQLITE_VERSION_MIN:
        yield Checked(Level.PROBLEM, "sqlite", f"SQLite {version} may corrupt a database", "pip install -U apsw")
    else:
        yield Checked(Level.OK, "sqlite", f"SQLite {version}")
    if armed := os.environ.get("PERDURE_FAILPOINT"):
        text = f"PERDURE_FAILPOINT={armed} kills your programs on purpose"
        yield Checked(Level.PROBLEM, "environment", text, "unset PERDURE_FAILPOINT")


def place(path: str) -> Iterator[Checked]:
    """Where the file is: the file system, the space on it, who may do what."""
    folder = os.path.dirname(path)
    kind = file_system_of(folder)
    if kind in NETWORK_FILE_SYSTEMS:
        text, fix = f"{kind} is a network file system: locks do not hold", "move the store to a local disk"
        yield Checked(Level.PROBLEM, "file system", text, fix)
    elif kind in FORGETFUL:
        yield Checked(Level.NOTE, "file system", f"{kind} {FORGETFUL[kind]}", "keep the store on a disk")
    else:
        yield Checked(Level.OK, "file system", kind or "unknown")
    yield _free_space(folder)
    yield _writable(path, folder)


def _writable(path: str, folder: str) -> Checked:
    if is_writable(path):
        return Checked(Level.OK, "writable", path)
    text = f"{path} is read-only here: it can be looked at, and no agent can use it"
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        return Checked(Level.NOTE, "writable", text, "copy it to a disk that can be written, to use it")
    return Checked(Level.NOTE, "writable", text, f"chown $(id -un) {shlex.quote(folder)} {shlex.quote(path)}*")


def _free_space(folder: str) -> Checked:
    free = shutil.disk_usage(folder).free
    text, fix = f"{size(free)} free", f"perdure gc; du -xh {shlex.quote(folder)} | sort -h | tail"
    if free < FREE_BYTES_MIN:
        return Checked(Level.PROBLEM, "disk", f"{text}: runs stop when it is used up", fix)
    if free < FREE_BYTES_FEW:
        return Checked(Level.NOTE, "disk", f"only {text}", fix)
    return Checked(Level.OK, "disk", text)


def permissions(path: str) -> Iterator[Checked]:
    """The store and the private keys are for their owner only."""
    bad = 0
    folder = path + ".keys"
    names = [folder, *(os.path.join(folder, name) for name in _entries(folder))]
    for name in (path, *(path + suffix for suffix in ("-wal", "-shm", "-mark", ".lock")), *names):
        try:
            found = os.stat(name)
        except FileNotFoundError:
            continue
        mode = "700" if stat.S_ISDIR(found.st_mode) else "600"
        if found.st_mode & 0o077:
            bad += 1
            text = f"{name} can be used by others (mode {stat.S_IMODE(found.st_mode):o})"
            yield Checked(Level.PROBLEM, "permissions", text, f"chmod {mode} {shlex.quote(name)}")
        if found.st_uid != os.geteuid():
            yield Checked(Level.NOTE, "permissions", f"{name} belongs to user {found.st_uid}", "run as that user")
    if not bad:
        yield Checked(Level.OK, "permissions", "only the owner can read the store and its keys")


def _entries(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []  # not there, or not for us


def header(path: str) -> Iterator[Checked]:
    """The first bytes of the file say whether it is in WAL mode; the log beside it should not grow for ever."""
    with open(path, "rb") as file:
        first = file.read(20)
    if first[:16] != b"SQLite format 3\x00":
        yield Checked(Level.PROBLEM, "file", f"{path} is not a SQLite file", "restore it from a backup")
    elif first[18:20] != b"\x02\x02":
        yield Checked(
            Level.NOTE, "wal", "not in WAL mode: it was copied, and not used since", "nothing; opening it sets it"
        )
    else:
        log = os.path.getsize(path + "-wal") if os.path.exists(path + "-wal") else 0
        text = f"WAL mode, {size(os.path.getsize(path))}, and {size(log)} of log"
        if log > LOG_BYTES_MANY:
            pids = " ".join(map(str, _readers(path))) or f"$(fuser {shlex.quote(path)} 2>/dev/null)"
            text += ": a process keeps reading an old state of the store"
            yield Checked(Level.NOTE, "wal", text, f"ps -fp {pids}; then end the one that hangs")
        else:
            yield Checked(Level.OK, "wal", text)


def _readers(path: str) -> list[int]:
    """The processes that have a file open, as far as this user may see."""
    found = []
    for pid in filter(str.isdigit, _entries("/proc")):
        folder = f"/proc/{pid}/fd"
        for name in _entries(folder):
            try:
                if os.readlink(f"{folder}/{name}") == path:
                    found.append(int(pid))
                    break
            except OSError:
                continue  # closed meanwhile
    return found


def write_lock(path: str) -> Iterator[Checked]:
    """Whether writers get their turn."""
    if not os.path.exists(path + ".lock") or not is_writable(path):
        return
    turnstile = Turnstile(path + ".lock")
    try:
        if turnstile.enter(LOCK_PATIENCE_SECONDS):
            turnstile.leave()
            yield Checked(Level.OK, "write lock", "free")
        else:
            who = ", ".join(f"process {pid}{_state(pid)}" for pid in _lockers(path + ".lock")) or "a process"
            text = f"{who} has had the write lock for {LOCK_PATIENCE_SECONDS:.0f} s"
            pids = " ".join(map(str, _lockers(path + ".lock"))) or "PID"
            yield Checked(Level.PROBLEM, "write lock", text, f"kill -CONT {pids}  # to let it go on, or: kill {pids}")
    finally:
        turnstile.close()


def _lockers(path: str) -> list[int]:
    """The processes that hold a lock on a file; /proc/locks names them by the file's number."""
    inode = os.stat(path).st_ino
    try:
        with open("/proc/locks", encoding="utf-8") as file:
            lines = [line.split() for line in file if "->" not in line]
    except OSError:
        return []
    return [int(fields[4]) for fields in lines if fields[5].rpartition(":")[2] == str(inode) and fields[4] != "-1"]


def _state(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state = file.read().rpartition(b")")[2].split()[0]
    except OSError:
        return ""
    return " (stopped)" if state in (b"T", b"t") else ""
