"""What `perdure doctor` looks at. Each check takes a path or an open store and yields what it found."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

import apsw
import msgspec

from .. import keys
from ..engine import home_of
from ..errors import StoreUnavailable
from ..process import Holder, proven_dead
from ..records import Status
from ..runs import list_runs
from ..store.sqlite_file import NETWORK_FILE_SYSTEMS, SQLITE_VERSION_MIN, file_system_of
from ..store.turnstile import Turnstile
from .output import counted

if TYPE_CHECKING:
    from ..store.base import Store

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
    if os.access(path, os.W_OK) and os.access(folder, os.W_OK):
        yield Checked(Level.OK, "writable", path)
    else:
        text = f"{path} or its folder cannot be written by this user"
        yield Checked(
            Level.PROBLEM, "writable", text, f"give it to the user of your programs: chown USER {folder} {path}*"
        )


def _free_space(folder: str) -> Checked:
    free = shutil.disk_usage(folder).free
    text = f"{free // (1024 * 1024)} MB free"
    if free < FREE_BYTES_MIN:
        return Checked(Level.PROBLEM, "disk", text, "free some space: runs stop when it is used up")
    if free < FREE_BYTES_FEW:
        return Checked(Level.NOTE, "disk", text, "free some space soon")
    return Checked(Level.OK, "disk", text)


def permissions(path: str) -> Iterator[Checked]:
    """The store and the private keys are for their owner only."""
    bad = 0
    folder = path + ".keys"
    names = [folder, *(os.path.join(folder, name) for name in _entries(folder))]
    for name in (path, *(path + suffix for suffix in ("-wal", "-shm", ".lock")), *names):
        try:
            found = os.stat(name)
        except FileNotFoundError:
            continue
        mode = "700" if stat.S_ISDIR(found.st_mode) else "600"
        if found.st_mode & 0o077:
            bad += 1
            text = f"{name} can be used by others (mode {stat.S_IMODE(found.st_mode):o})"
            yield Checked(Level.PROBLEM, "permissions", text, f"chmod {mode} {name}")
        if found.st_uid != os.geteuid():
            yield Checked(Level.NOTE, "permissions", f"{name} belongs to user {found.st_uid}", "run as that user")
    if not bad:
        yield Checked(Level.OK, "permissions", "only the owner can read the store and its keys")


def _entries(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, PermissionError):
        return []


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
        text = f"WAL mode, {log // 1024} kB of log"
        if log > LOG_BYTES_MANY:
            fix = "end the process that keeps reading an old state of the store"
            yield Checked(Level.NOTE, "wal", text, fix)
        else:
            yield Checked(Level.OK, "wal", text)


def write_lock(path: str) -> Iterator[Checked]:
    """Whether writers get their turn."""
    if not os.path.exists(path + ".lock"):
        return
    turnstile = Turnstile(path + ".lock")
    try:
        if turnstile.enter(LOCK_PATIENCE_SECONDS):
            turnstile.leave()
            yield Checked(Level.OK, "write lock", "free")
        else:
            who = ", ".join(f"process {pid}{_state(pid)}" for pid in _lockers(path + ".lock")) or "a process"
            text = f"{who} has had the write lock for {LOCK_PATIENCE_SECONDS:.0f} s"
            yield Checked(Level.PROBLEM, "write lock", text, "let it go on (kill -CONT PID) or end it (kill PID)")
    finally:
        turnstile.close()


def _lockers(path: str) -> list[int]:
    """The processes that hold a lock on a file; /proc/locks names them by the file's number."""
    inode = os.stat(path).st_ino
    try:
        with open("/proc/locks", encoding="ascii") as file:
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


def home(store: Store, path: str, options: str) -> Iterator[Checked]:
    """Whether this is the file that was used last time."""
    rows = store.read("last_home")
    if rows and rows[0] != home_of(path):
        text = "the store was last used on another host or as another file"
        fix = f"make sure that the other copy is not in use, then `perdure adopt{options}`"
        yield Checked(Level.PROBLEM, "home", text, fix)
    else:
        yield Checked(Level.OK, "home", "this is the file that was last used")


def holders(store: Store) -> Iterator[Checked]:
    """Processes that have runs open, and dead ones that left some behind."""
    alive = 0
    for _, boot, namespace, pid, started, host, _, left, leases in store.read(
        "holders_at_work", (store.clock.boot_ms(),)
    ):
        holder = Holder(boot, namespace, pid, started, host)
        if proven_dead(holder, store.one_host):
            text = f"{holder} is gone and left {counted(leases, 'run')} open"
            yield Checked(Level.NOTE, "holders", text, "nothing; whoever resumes its runs takes them over at once")
        elif left <= 0:
            text = f"{holder} has not renewed its lease for {-left // 1000 + 1} s"
            yield Checked(Level.NOTE, "holders", text, "see whether it is stopped or hangs")
        else:
            alive += 1
    yield Checked(Level.OK, "holders", f"{counted(alive, 'process', 'processes')} at work")


def runs(store: Store, options: str) -> Iterator[Checked]:
    """Runs that nobody goes on with; `options` lead a printed command to this store."""
    found = list_runs(store)
    for run in found:
        if run.status == Status.CRASHED:
            text = f"{run.id} of {run.agent} crashed: its process is gone"
            yield Checked(Level.PROBLEM, "runs", text, "start its program again: it goes on where it was")
        elif run.status == Status.WAITING:
            fix = f"perdure show {shlex.quote(run.id)} --agent {shlex.quote(run.agent)}{options}"
            yield Checked(Level.NOTE, "runs", f"{run.id} of {run.agent} waits for an answer", fix)
    yield Checked(Level.OK, "runs", counted(len(found), "run"))


def server(store: Store) -> Iterator[Checked]:
    """Whether a server keeps what it has acknowledged, and what we may do there."""
    from ..store.postgres import PostgresStore

    if not isinstance(store, PostgresStore):
        return
    it = store.server()
    yield Checked(Level.OK, "server", f"PostgreSQL {it.version}{', through a pooler' if it.pooled else ''}")
    for name, on in (("fsync", it.fsync), ("full_page_writes", it.full_page_writes)):
        if not on:
            text = f"{name} is off: what was acknowledged may be lost or damaged when the power fails"
            yield Checked(Level.PROBLEM, "durability", text, f"ALTER SYSTEM SET {name} = on, and reload the server")
    waits = f", and waits for {it.standbys}" if it.standbys else ""
    yield Checked(Level.OK, "durability", f"synchronous_commit is {it.synchronous_commit}{waits}")
    if not it.may_migrate:
        text = "this role may use the schema and not change it"
        yield Checked(Level.NOTE, "role", text, "run the first program of a new version as the owner of the schema")


def signing(store: Store) -> Iterator[Checked]:
    """Whether the agents' keys are here: without them what they do stays unsigned."""
    folder = keys.folder_of(store)
    for name, _, public_key, _ in store.read("all_agents"):
        try:
            key = keys.find(name, folder, None)
        except (ValueError, OSError, StoreUnavailable) as error:
            text = f"the key of {name} cannot be read: {error}"
            yield Checked(Level.PROBLEM, "keys", text, "restore the key file from a backup")
            continue
        if key is None:
            text = f"the key of {name} is not here: its runs stay unsigned"
            yield Checked(Level.NOTE, "keys", text, f"put its key file into {folder}/, or set PERDURE_KEY")
        elif key.public_key != public_key:
            text = f"the key at hand is not the one of {name}"
            yield Checked(Level.PROBLEM, "keys", text, "restore the key file from a backup, or unset PERDURE_KEY")
        else:
            yield Checked(Level.OK, "keys", f"{name} signs with its key")
