"""Opens SQLite files: checks their location, settings and schema, and translates errors."""

from __future__ import annotations

import os
import secrets
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar, TypeVarTuple

import apsw

from perdure.errors import StorageFull, StoreBusy, StoreFenced, StoreReadOnly, StoreUnavailable
from perdure.platform.failpoints import CommitMoment, Site, reach
from perdure.platform.files import make_folder
from perdure.store import sql
from perdure.store.address import DATABASE_NAME
from perdure.store.schema_version import StoreVersions
from perdure.store.sqlite.fork_safety import call_outside_fork, disconnect, open_connection, stay_inside
from perdure.store.sqlite.read_only import ReadOnlyMode, readable
from perdure.store.sqlite.schema_guard import harden, refuse_altered, refuse_unpublished
from perdure.store.sqlite.work_limits import StatementBounds, endless_content_error, unwatch
from perdure.values.clock import Clock
from perdure.values.limits import LOCK_SECONDS_MAX

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

APPLICATION_ID = 0x50445245
"""In the header of every file, to recognize databases of other programs."""

MAGIC = b"SQLite format 3\x00"
"""The first bytes of every database that is not empty."""

SYNCHRONOUS = {"full": 2, "process": 1}
"""FULL syncs at every commit; NORMAL only at checkpoints, so a power cut may lose commits."""

OVERWRITES = 2
"""2 overwrites deleted data in pages that are written anyway, at no cost; 1 also in pages that become empty, which must
be written for that."""

BUSY_MILLISECONDS = 10_000
SQLITE_VERSION_MIN = (3, 51, 3)
"""Before it, a checkpoint racing a writer could corrupt a WAL database."""

NETWORK_FILE_SYSTEMS = frozenset(
    "nfs nfs4 cifs smb3 smbfs afs ceph glusterfs lustre 9p fuse.sshfs fuse.s3fs fuse.gcsfuse fuse.glusterfs".split()
)


def connect(path: str, durability: str, vfs: str | None) -> apsw.Connection:
    """Open a connection and verify all settings that durability depends on; close it with `disconnect`."""
    return call_outside_fork(lambda: _configure(open_connection(path, vfs), path, durability, vfs))


def connect_to_read(reading: ReadOnlyMode) -> apsw.Connection:
    """Open a connection to a read-only store; close it with `disconnect`."""

    def connection() -> apsw.Connection:
        found = _configure(open_connection(reading.name, None, reading.flags), reading.path, "full", None, wal=False)
        found.pragma("query_only", 1)
        return found

    return call_outside_fork(connection)


def _configure(
    connection: apsw.Connection, path: str, durability: str, vfs: str | None, *, wal: bool = True
) -> apsw.Connection:
    try:
        harden(connection)
        bounds = StatementBounds(path)
        bounds.watch(connection)  # SQLite reads statistics with the schema; forged ones may be endless
        connection.set_busy_timeout(BUSY_MILLISECONDS)
        # Plans must not depend on bound values: otherwise every range search is prepared again, at 4 microseconds.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        if vfs is not None:
            # A VFS written in Python has no shared memory.
            _pragma(connection, "locking_mode", "exclusive")
        _refuse_what_is_not_ours(connection, path)
        bounds.refuse_if_over()
        if wal and path != ":memory:":
            _pragma(connection, "journal_mode", "wal")
        _pragma(connection, "synchronous", SYNCHRONOUS[durability])
        # Always, not only for erasure: otherwise a third of the data that moved between pages earlier would remain.
        _pragma(connection, "secure_delete", OVERWRITES, "fast")
        unwatch(connection)
    except BaseException:
        disconnect(connection)  # releases its locks
        raise
    return connection


def retry_busy(work: Callable[[*Ts], T], *args: *Ts) -> T:
    """Retry while SQLite reports busy without waiting, as during log recovery or the last connection's checkpoint."""
    deadline = 0.0
    while True:
        try:
            return work(*args)
        except apsw.BusyError:
            now = time.monotonic()
            deadline = deadline or now + LOCK_SECONDS_MAX
            if now >= deadline:
                raise
            time.sleep(0.005)


def is_current(connection: apsw.Connection) -> bool:
    """Whether the schema is current; refuses a newer one. Needs no lock."""
    if tuple(map(int, apsw.sqlite_lib_version().split("."))) < SQLITE_VERSION_MIN:
        raise StoreUnavailable(
            f"SQLite {apsw.sqlite_lib_version()} may corrupt a database in WAL mode",
            hint="install a current apsw: pip install -U apsw",
        )
    newest, version = len(sql.migrations("sqlite")), _number(connection, "user_version")
    StoreVersions(version, version, newest, ()).refuse_newer()  # a file has no compatibility range
    return version == newest


def create_or_migrate(connection: apsw.Connection, clock: Clock) -> None:
    """Create or migrate the schema in one transaction."""
    if is_current(connection):
        return
    history = sql.migrations("sqlite")
    reach(Site.STORE_CREATE, CommitMoment.BEFORE)
    if _number(connection, "user_version"):
        connection.pragma("secure_delete", 1)  # overwrite whatever a migration removes, in whole pages too
    connection.execute("BEGIN IMMEDIATE")
    try:
        _migrate(connection, history[_number(connection, "user_version") :])
        reach(Site.STORE_CREATE, CommitMoment.WRITTEN)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    reach(Site.STORE_CREATE, CommitMoment.AFTER)


def schema_of(path: str) -> int:
    """Return the schema version of a file without changing it; refuse a file that is no store."""
    with translate(path), stay_inside(), readable(path) as (name, flags):
        connection = open_connection(name, flags=flags)
        try:
            harden(connection)
            connection.set_busy_timeout(BUSY_MILLISECONDS)
            if retry_busy(lambda: _number(connection, "application_id")) != APPLICATION_ID:
                raise StoreUnavailable(f"{path} is not a Perdure store", hint="name the store with --store")
            refuse_unpublished(connection, path)
            return _number(connection, "user_version")
        finally:
            disconnect(connection)


def _refuse_what_is_not_ours(connection: apsw.Connection, path: str) -> None:
    """Refuse anything but an empty file or an unaltered store."""
    # In one transaction: another process may be creating the store.
    connection.execute("BEGIN")
    try:
        if _number(connection, "application_id") == APPLICATION_ID:
            refuse_unpublished(connection, path)
            refuse_altered(connection, path, _number(connection, "user_version"))
        elif connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall():
            raise StoreUnavailable(f"{path} belongs to another program", hint="choose another file")
    finally:
        connection.execute("ROLLBACK")


def _migrate(connection: apsw.Connection, pending: tuple[str, ...]) -> None:
    for text in pending:
        connection.execute(text).fetchall()
        reach(Site.STORE_CREATE, CommitMoment.BEGUN)
    connection.pragma("application_id", APPLICATION_ID)
    connection.pragma("user_version", len(sql.migrations("sqlite")))
    put = sql.number_parameters(sql.load("sqlite")["put_meta"], "?")
    connection.execute(put, ("secret", secrets.token_bytes(32)))
    connection.execute(put, ("identity", secrets.token_bytes(16)))


def prepare_file(path: str, *, own_folder: bool = True) -> None:
    """Create an empty file that only its owner can read; SQLite would create a public one.

    A missing folder is created only if it is Perdure's own, so that a mistyped path creates no folders.
    """
    # A file with a turnstile may be open in this process, and closing any descriptor of it would drop SQLite's locks.
    if os.path.exists(path + ".lock") and os.path.isfile(path) and os.access(path, os.R_OK | os.W_OK):
        return
    refuse_place(path, own_folder=own_folder)
    try:
        make_folder(os.path.dirname(path))
        file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            first = os.read(file, len(MAGIC))
        finally:
            os.close(file)
    except OSError as error:
        raise StoreUnavailable(
            f"{path} cannot be opened: {error.strerror}", hint="pass a writable path: store='sqlite:///...'"
        ) from error
    if first.strip(b"\0") and first != MAGIC:  # all zeros: a power cut at creation, which SQLite repairs
        raise StoreUnavailable(f"{path} is not a database", hint="choose another file")


def refuse_place(path: str, *, own_folder: bool) -> None:
    """Refuse a path in a missing folder, or of something that is not a regular file."""
    folder = os.path.dirname(path)
    if not own_folder and not os.path.isdir(folder):
        asked = f"`perdure init --store {shlex.quote(path)}` creates it"
        literal = "variables like $HOME are not expanded, ~ is; " if "$" in path else ""
        raise StoreUnavailable(f"the folder {folder} does not exist", hint=f"{literal}create it, or {asked}")
    if os.path.isdir(path):
        there = os.path.join(path, DATABASE_NAME)
        raise StoreUnavailable(f"{path} is a folder; a store is a file", hint=f"give {shlex.quote(there)}")
    if os.path.exists(path) and not os.path.isfile(path):
        raise StoreUnavailable(f"{path} is not a regular file", hint="choose another file")


def refuse_unsafe_place(path: str) -> None:
    """Refuse a network file system: file locks are unreliable there, and two writers would corrupt the file."""
    kind = file_system_of(os.path.dirname(path))
    if kind in NETWORK_FILE_SYSTEMS:
        raise StoreUnavailable(
            f"{path} is on a network file system ({kind}), where SQLite's file locks are unreliable",
            hint="use a local disk, or postgresql:// for many machines",
        )


def file_system_of(folder: str, mounts: str = "/proc/self/mountinfo") -> str:
    """Return the type of a folder's file system; empty if unknown."""
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
            lines = [line.split() for line in file]
    except OSError:
        return ""
    best, kind = "", ""
    for fields in lines:
        point = fields[4].replace("\\040", " ")
        inside = folder == point or folder.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[fields.index("-") + 1]
    return kind


DRIVER_ERRORS = (apsw.Error, UnicodeDecodeError)
"""Errors of the driver; text in a damaged file may be invalid UTF-8."""


@contextmanager
def translate(path: str) -> Iterator[None]:
    """Turn the driver's errors into ours."""
    try:
        yield
    except DRIVER_ERRORS as error:
        raise translate_error(error, path) from error


def translate_error(error: Exception, path: str, on_io_error: Callable[[StoreFenced], None] | None = None) -> Exception:
    """Return the Perdure error for a driver error; an error that only a bug can cause is raised unchanged."""
    if isinstance(error, apsw.FullError):
        return StorageFull()
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreBusy()
    if isinstance(error, apsw.IOError):
        fenced = StoreFenced(f"{path}: {error}")
        if on_io_error is not None:
            on_io_error(fenced)
        return fenced
    if isinstance(error, apsw.ReadOnlyError) and getattr(error, "extendedresult", 0) != apsw.SQLITE_READONLY_DBMOVED:
        return StoreReadOnly(f"{path} is read-only here; nothing was written")
    if isinstance(error, apsw.InterruptError):
        return endless_content_error(path)
    if isinstance(error, _UNUSABLE):
        hint = "run `perdure doctor` for details; restore from a backup if it is damaged"
        return StoreUnavailable(f"{path} cannot be used: {error}", hint=hint)
    raise error


_UNUSABLE = (
    apsw.CantOpenError,
    apsw.NotADBError,
    apsw.CorruptError,
    apsw.ReadOnlyError,
    apsw.PermissionsError,
    apsw.SQLError,  # in a damaged file a table may be missing
    UnicodeDecodeError,
)


def _pragma(connection: apsw.Connection, name: str, value: str | int, said: str = "") -> None:
    """Set a pragma and read it back, because SQLite ignores invalid ones; `said` is a value's name if it has one."""
    connection.pragma(name, said or value)
    found = connection.pragma(name)
    if found != value:
        raise StoreUnavailable(f"SQLite refused to set {name} to {value} (it is {found})")


def _number(connection: apsw.Connection, name: str) -> int:
    return int(str(connection.pragma(name)))
