"""Opening a SQLite file: where it may be, how it is set up, which schema it has, what its errors mean."""

from __future__ import annotations

import os
import secrets
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar, TypeVarTuple

import apsw

from ..clock import Clock
from ..errors import StorageFull, StoreBusy, StoreFenced, StoreReadOnly, StoreUnavailable
from ..failpoints import Moment, Site, reach
from ..files import make_folder
from ..limits import LOCK_SECONDS_MAX
from . import sql
from .address import DATABASE_NAME
from .forking import connected, disconnect, inside, within
from .sqlite_bounds import Bounds, too_much, unwatch
from .sqlite_reading import Reading, readable
from .sqlite_schema import harden, refuse_altered
from .versions import Versions

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

APPLICATION_ID = 0x50445245
"""In the header of every file, so that another program's database is not taken for ours."""

MAGIC = b"SQLite format 3\x00"
"""How every database begins that is not empty."""

SYNCHRONOUS = {"full": 2, "process": 1}
"""FULL syncs at every commit; NORMAL only at checkpoints, which a power cut may undo."""

OVERWRITES = 2
"""What is deleted is overwritten within pages that are written anyway, which costs nothing; 1 is also in whole pages
that become empty, which have to be written for it."""

BUSY_MILLISECONDS = 10_000
SQLITE_VERSION_MIN = (3, 51, 3)
"""Before it, a checkpoint racing a writer could corrupt a WAL database."""

NETWORK_FILE_SYSTEMS = frozenset(
    "nfs nfs4 cifs smb3 smbfs afs ceph glusterfs lustre 9p fuse.sshfs fuse.s3fs fuse.gcsfuse fuse.glusterfs".split()
)


def connect(path: str, durability: str, vfs: str | None) -> apsw.Connection:
    """A connection with every setting that durability depends on set and read back; for `forking.disconnect`."""
    return within(lambda: _set_up(connected(path, vfs), path, durability, vfs))


def connect_to_read(reading: Reading) -> apsw.Connection:
    """A connection to a store that cannot be written here; for `forking.disconnect`."""

    def connection() -> apsw.Connection:
        found = _set_up(connected(reading.name, None, reading.flags), reading.path, "full", None, wal=False)
        found.pragma("query_only", 1)
        return found

    return within(connection)


def _set_up(
    connection: apsw.Connection, path: str, durability: str, vfs: str | None, *, wal: bool = True
) -> apsw.Connection:
    try:
        harden(connection)
        bounds = Bounds(path)
        bounds.watch(connection)  # with the schema SQLite reads statistics, which may be endless
        connection.set_busy_timeout(BUSY_MILLISECONDS)
        # Plans do not depend on what is bound: otherwise each search of a range is prepared anew, for 4 microseconds.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        if vfs is not None:
            # A VFS written in Python has no shared memory.
            _pragma(connection, "locking_mode", "exclusive")
        _refuse_what_is_not_ours(connection, path)
        bounds.refuse_if_over()
        if wal and path != ":memory:":
            _pragma(connection, "journal_mode", "wal")
        _pragma(connection, "synchronous", SYNCHRONOUS[durability])
        # Always, and not only where something is erased: a third of what was moved from page to page before would stay.
        _pragma(connection, "secure_delete", OVERWRITES, "fast")
        unwatch(connection)
    except BaseException:
        disconnect(connection)  # its locks would keep others out
        raise
    return connection


def patiently(work: Callable[[*Ts], T], *args: *Ts) -> T:
    """Do what SQLite may refuse as busy without waiting: while a process recovers the log of a dead one, or folds
    it into the file as the last to close.
    """
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
    """Whether the schema is the one of this version; a newer one is refused. Needs no lock."""
    if tuple(map(int, apsw.sqlite_lib_version().split("."))) < SQLITE_VERSION_MIN:
        raise StoreUnavailable(
            f"SQLite {apsw.sqlite_lib_version()} may corrupt a database in WAL mode",
            hint="install a current apsw: pip install -U apsw",
        )
    newest, version = len(sql.migrations("sqlite")), _number(connection, "user_version")
    Versions(version, version, newest, ()).refuse_newer()  # of a file there is one program at a time
    return version == newest


def create_or_migrate(connection: apsw.Connection, clock: Clock) -> None:
    """Bring the schema to this version, all of it in one transaction."""
    if is_current(connection):
        return
    history = sql.migrations("sqlite")
    reach(Site.STORE_CREATE, Moment.BEFORE)
    if _number(connection, "user_version"):
        connection.pragma("secure_delete", 1)  # what a migration takes away is overwritten, in whole pages too
    connection.execute("BEGIN IMMEDIATE")
    try:
        _migrate(connection, history[_number(connection, "user_version") :])
        reach(Site.STORE_CREATE, Moment.WRITTEN)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    reach(Site.STORE_CREATE, Moment.AFTER)


def schema_of(path: str) -> int:
    """The number of a file's schema; nothing is changed, and what is not ours is refused."""
    with translate(path), inside(), readable(path) as (name, flags):
        connection = connected(name, flags=flags)
        try:
            harden(connection)
            connection.set_busy_timeout(BUSY_MILLISECONDS)
            if patiently(lambda: _number(connection, "application_id")) != APPLICATION_ID:
                raise StoreUnavailable(f"{path} is no store of Perdure", hint="say which one with --store")
            return _number(connection, "user_version")
        finally:
            disconnect(connection)


def _refuse_what_is_not_ours(connection: apsw.Connection, path: str) -> None:
    """Anything but an empty file or a store as we made it; other programs number their schemas too."""
    # In one transaction: between two of them another process may create the store.
    connection.execute("BEGIN")
    try:
        if _number(connection, "application_id") == APPLICATION_ID:
            refuse_altered(connection, path, _number(connection, "user_version"))
        elif connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall():
            raise StoreUnavailable(f"{path} belongs to another program", hint="choose another file")
    finally:
        connection.execute("ROLLBACK")


def _migrate(connection: apsw.Connection, pending: tuple[str, ...]) -> None:
    for text in pending:
        connection.execute(text).fetchall()
        reach(Site.STORE_CREATE, Moment.BEGUN)
    connection.pragma("application_id", APPLICATION_ID)
    connection.pragma("user_version", len(sql.migrations("sqlite")))
    put = sql.numbered(sql.load("sqlite")["put_meta"], "?")
    connection.execute(put, ("secret", secrets.token_bytes(32)))
    connection.execute(put, ("identity", secrets.token_bytes(16)))


def prepare_file(path: str, *, own_folder: bool = True) -> None:
    """Make an empty file that only its owner can read, before SQLite would make a public one.

    A folder that is missing is made if it is our own; else a mistyped path would make folders all over the disk.
    """
    # A file with a turnstile may be open in this process, and closing any descriptor of a file drops all locks that
    # the process has on it. SQLite notices in some places that they are gone; better that they stay.
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
            f"{path} cannot be opened: {error.strerror}", hint="give a path that can be written, store='sqlite:///...'"
        ) from error
    if first.strip(b"\0") and first != MAGIC:  # only zeros: a power cut in its first moment, which SQLite mends
        raise StoreUnavailable(f"{path} is not a database", hint="choose another file")


def refuse_place(path: str, *, own_folder: bool) -> None:
    """Refuse a path where no store can be: below a folder that is missing, or where something else is."""
    folder = os.path.dirname(path)
    if not own_folder and not os.path.isdir(folder):
        asked = f"`perdure init --store {shlex.quote(path)}` makes it"
        literal = "variables like $HOME are not expanded, ~ is; " if "$" in path else ""
        raise StoreUnavailable(f"there is no folder {folder} for a store", hint=f"{literal}make it, or {asked}")
    if os.path.isdir(path):
        there = os.path.join(path, DATABASE_NAME)
        raise StoreUnavailable(f"{path} is a folder, and a store is a file", hint=f"give {shlex.quote(there)}")
    if os.path.exists(path) and not os.path.isfile(path):
        raise StoreUnavailable(f"{path} is not a regular file", hint="choose another file")


def refuse_unsafe_place(path: str) -> None:
    """File locks over a network are promises that nobody keeps: two writers would meet in one file."""
    kind = file_system_of(os.path.dirname(path))
    if kind in NETWORK_FILE_SYSTEMS:
        raise StoreUnavailable(
            f"{path} is on a network file system ({kind}), where SQLite's locks do not hold",
            hint="use a local disk, or postgresql:// for many machines",
        )


def file_system_of(folder: str, mounts: str = "/proc/self/mountinfo") -> str:
    """The type of the file system that a folder is on; empty where the system does not tell."""
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
"""What the driver raises: in a damaged file, text may have lost its encoding."""


@contextmanager
def translate(path: str) -> Iterator[None]:
    """Turn the driver's errors into ours."""
    try:
        yield
    except DRIVER_ERRORS as error:
        raise translated(error, path) from error


def translated(error: Exception, path: str, on_io_error: Callable[[StoreFenced], None] | None = None) -> Exception:
    """Our error for one of the driver's, in one place; what only a mistake of ours can cause is raised as it is."""
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
        return too_much(path)
    if isinstance(error, _UNUSABLE):
        hint = "`perdure doctor` looks closer; restore from a backup if it is damaged"
        return StoreUnavailable(f"{path} cannot be used: {error}", hint=hint)
    raise error


_UNUSABLE = (
    apsw.CantOpenError,
    apsw.NotADBError,
    apsw.CorruptError,
    apsw.ReadOnlyError,
    apsw.PermissionsError,
    apsw.SQLError,  # in a damaged file a table may have lost its name
    UnicodeDecodeError,
)


def _pragma(connection: apsw.Connection, name: str, value: str | int, said: str = "") -> None:
    """Set a pragma and read it back: SQLite ignores what it cannot do, without a word. Some values are `said` else."""
    connection.pragma(name, said or value)
    found = connection.pragma(name)
    if found != value:
        raise StoreUnavailable(f"SQLite would not set {name} to {value} (it is {found})")


def _number(connection: apsw.Connection, name: str) -> int:
    return int(str(connection.pragma(name)))
