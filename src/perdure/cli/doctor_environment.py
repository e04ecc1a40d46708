"""Checks of `perdure doctor` around a store: the library, the file, its file system. Each yields its results."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
from collections.abc import Iterator
from enum import StrEnum

import apsw
import msgspec

from perdure.cli.output import size
from perdure.store.sqlite.file import NETWORK_FILE_SYSTEMS, SQLITE_VERSION_MIN, file_system_of
from perdure.store.sqlite.read_only import is_writable
from perdure.store.sqlite.turnstile import Turnstile

FREE_BYTES_MIN = 64 * 1024 * 1024
FREE_BYTES_FEW = 1024 * 1024 * 1024
LOG_BYTES_MANY = 256 * 1024 * 1024
LOCK_PATIENCE_SECONDS = 2.0
"""A commit takes milliseconds: a process that holds the write lock this long is stopped or hangs."""

FORGETFUL = {"tmpfs": "is in memory: a reboot loses the store", "ramfs": "is in memory: a reboot loses the store"}


class CheckLevel(StrEnum):
    """The severity of a result."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


class CheckResult(msgspec.Struct, frozen=True):
    """One line of `perdure doctor`."""

    level: CheckLevel
    about: str
    text: str
    fix: str = ""


def library() -> Iterator[CheckResult]:
    """Check the SQLite version, and that no test setting is active."""
    version = apsw.sqlite_lib_version()
    if tuple(map(int, version.split("."))) < SQLITE_VERSION_MIN:
        yield CheckResult(
            CheckLevel.PROBLEM, "sqlite", f"SQLite {version} may corrupt a database", "pip install -U apsw"
        )
    else:
        yield CheckResult(CheckLevel.OK, "sqlite", f"SQLite {version}")
    if armed := os.environ.get("PERDURE_FAILPOINT"):
        text = f"PERDURE_FAILPOINT={armed} kills your programs on purpose"
        yield CheckResult(CheckLevel.PROBLEM, "environment", text, "unset PERDURE_FAILPOINT")


def place(path: str) -> Iterator[CheckResult]:
    """Check the file system, its free space and the permissions."""
    folder = os.path.dirname(path)
    kind = file_system_of(folder)
    if kind in NETWORK_FILE_SYSTEMS:
        text, fix = f"{kind} is a network file system: locks do not hold", "move the store to a local disk"
        yield CheckResult(CheckLevel.PROBLEM, "file system", text, fix)
    elif kind in FORGETFUL:
        yield CheckResult(CheckLevel.NOTE, "file system", f"{kind} {FORGETFUL[kind]}", "keep the store on a disk")
    else:
        yield CheckResult(CheckLevel.OK, "file system", kind or "unknown")
    yield _check_free_space(folder)
    yield _writable(path, folder)


def _writable(path: str, folder: str) -> CheckResult:
    if is_writable(path):
        return CheckResult(CheckLevel.OK, "writable", path)
    text = f"{path} is read-only here: commands can read it, but agents cannot use it"
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        return CheckResult(CheckLevel.NOTE, "writable", text, "to use it, copy it to a writable disk")
    return CheckResult(CheckLevel.NOTE, "writable", text, f"chown $(id -un) {shlex.quote(folder)} {shlex.quote(path)}*")


def _check_free_space(folder: str) -> CheckResult:
    free = shutil.disk_usage(folder).free
    text, fix = f"{size(free)} free", f"perdure gc; du -xh {shlex.quote(folder)} | sort -h | tail"
    if free < FREE_BYTES_MIN:
        return CheckResult(CheckLevel.PROBLEM, "disk", f"{text}: runs stop when the disk is full", fix)
    if free < FREE_BYTES_FEW:
        return CheckResult(CheckLevel.NOTE, "disk", f"only {text}", fix)
    return CheckResult(CheckLevel.OK, "disk", text)


def permissions(path: str) -> Iterator[CheckResult]:
    """Check that only the owner can access the store and the private keys."""
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
            yield CheckResult(CheckLevel.PROBLEM, "permissions", text, f"chmod {mode} {shlex.quote(name)}")
        if found.st_uid != os.geteuid():
            yield CheckResult(
                CheckLevel.NOTE, "permissions", f"{name} belongs to user {found.st_uid}", "run as that user"
            )
    if not bad:
        yield CheckResult(CheckLevel.OK, "permissions", "only the owner can read the store and its keys")


def _entries(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []  # missing or not readable


def header(path: str) -> Iterator[CheckResult]:
    """Check that the file header has WAL mode, and that the write-ahead log is not too large."""
    with open(path, "rb") as file:
        first = file.read(20)
    if first[:16] != b"SQLite format 3\x00":
        yield CheckResult(CheckLevel.PROBLEM, "file", f"{path} is not a SQLite file", "restore it from a backup")
    elif first[18:20] != b"\x02\x02":
        yield CheckResult(
            CheckLevel.NOTE,
            "wal",
            "not in WAL mode: it was copied and not used since",
            "none: opening it sets it",
        )
    else:
        log = os.path.getsize(path + "-wal") if os.path.exists(path + "-wal") else 0
        text = f"WAL mode, {size(os.path.getsize(path))}, and {size(log)} of log"
        if log > LOG_BYTES_MANY:
            pids = " ".join(map(str, _readers(path))) or f"$(fuser {shlex.quote(path)} 2>/dev/null)"
            text += ": a process holds an old read transaction open"
            yield CheckResult(CheckLevel.NOTE, "wal", text, f"ps -fp {pids}; then end the process that hangs")
        else:
            yield CheckResult(CheckLevel.OK, "wal", text)


def _readers(path: str) -> list[int]:
    """Return the processes that have a file open, as far as this user can see them."""
    found = []
    for pid in filter(str.isdigit, _entries("/proc")):
        folder = f"/proc/{pid}/fd"
        for name in _entries(folder):
            try:
                if os.readlink(f"{folder}/{name}") == path:
                    found.append(int(pid))
                    break
            except OSError:
                continue  # just closed
    return found


def write_lock(path: str) -> Iterator[CheckResult]:
    """Check that the write lock becomes free."""
    if not os.path.exists(path + ".lock") or not is_writable(path):
        return
    turnstile = Turnstile(path + ".lock")
    try:
        if turnstile.enter(LOCK_PATIENCE_SECONDS):
            turnstile.leave()
            yield CheckResult(CheckLevel.OK, "write lock", "free")
        else:
            who = ", ".join(f"process {pid}{_state(pid)}" for pid in _lockers(path + ".lock")) or "a process"
            text = f"{who} has held the write lock for {LOCK_PATIENCE_SECONDS:.0f} s"
            pids = " ".join(map(str, _lockers(path + ".lock"))) or "PID"
            yield CheckResult(
                CheckLevel.PROBLEM, "write lock", text, f"kill -CONT {pids}  # to continue it, or: kill {pids}"
            )
    finally:
        turnstile.close()


def _lockers(path: str) -> list[int]:
    """Return the processes that hold a lock on a file. /proc/locks identifies files by inode."""
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
