"""Watches the files of an open SQLite store, so that no acknowledged commit is lost unnoticed."""

from __future__ import annotations

import mmap
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import apsw
import msgspec

from perdure.errors import StorageFull, StoreFenced, StoreRolledBack, StoreUnavailable
from perdure.records.stores import EntriesLost, LostEntries
from perdure.store.base import LOST, Statement
from perdure.store.sqlite.file_guard import (
    INDEX_BYTES,
    FileGuard,
    GuardState,
    OpenStoreFiles,
    count_backfilled,
    guard,
    has_log,
    is_settled,
    is_without_log,
)
from perdure.store.sqlite.fork_safety import disconnect_collected
from perdure.store.sqlite.mark import (
    SUFFIX,
    DurabilityMark,
    MarkEntry,
    ReadQuery,
    describe_loss,
    has_all_heads,
    is_marked,
    losses,
)

_GONE = GuardState.GONE
FreshReader = Callable[[], AbstractContextManager[ReadQuery]]

ADOPTIONS = "adoptions"
"""The meta key that counts how often losses of the store were accepted."""


def refuse_bad_files(path: str) -> None:
    """Refuse files that SQLite would open, but must not."""
    _refuse_links(path)
    _refuse_old_log(path)
    _refuse_full_disk(path)


def _refuse_links(path: str) -> None:
    """Refuse a file with hard links: each name would have a log of its own, with commits that the other lacks."""
    try:
        links = os.stat(path).st_nlink
    except FileNotFoundError:
        return
    if links > 1:
        raise StoreUnavailable(
            f"{path} has {links} hard links; each name would get its own write-ahead log, with only part of the data",
            hint=f"remove the others (`find . -samefile {shlex.quote(path)}` lists them), or use a copy of the file",
        )


def _refuse_old_log(path: str) -> None:
    """Refuse a backup next to the log of the store that it replaced: SQLite would apply that log and damage it."""
    if is_without_log(path):
        sides = " ".join(shlex.quote(path + suffix) for suffix in ("-wal", "-shm"))
        raise StoreUnavailable(
            f"{path} is a backup, but {path}-wal is the log of the store that it replaced; nothing was changed",
            hint=f"stop every program that uses the store, run `rm -f {sides}`, then `perdure adopt`",
        )


def refuse_lost_database(path: str) -> None:
    """Refuse to create a store next to the mark of a lost one: it would repeat the lost store's effects."""
    if not (os.path.exists(path) and os.path.getsize(path)) and is_marked(path):
        name = shlex.quote(path)
        raise StoreUnavailable(
            f"{path} is missing, but {path}{SUFFIX} records acknowledged commits; no new store was created",
            hint=f"restore it (from a backup: then run `perdure adopt`), or start over with `rm {name}-*`",
        )


def _refuse_full_disk(path: str) -> None:
    """Refuse a full file system with small blocks, where SQLite would die of SIGBUS while creating the log's index.

    SQLite allocates one block per page but maps whole pages, whose other blocks cannot be written then.
    """
    disk = os.statvfs(os.path.dirname(path))
    if disk.f_bsize >= mmap.PAGESIZE or disk.f_bavail * disk.f_frsize >= INDEX_BYTES:
        return
    try:
        allocated = os.stat(os.path.realpath(path) + "-shm").st_blocks * 512 >= INDEX_BYTES
    except FileNotFoundError:
        allocated = False
    if not allocated:
        raise _no_space(path)


def _no_space(path: str) -> StorageFull:
    return StorageFull(
        f"not enough disk space to open {path}", hint="free some space and try again; nothing was changed"
    )


class StoreWatch:
    """The files of one open store."""

    def __init__(self, path: str, mark: DurabilityMark) -> None:
        self.mark = mark
        self._path = path
        self._guard: FileGuard | None = None
        self._backfilled = 0
        self.renew()

    def _see_backfilled(self) -> int:
        index = self._guard.index if self._guard is not None else None
        return count_backfilled(index) if index is not None else 0

    @property
    def _file(self) -> int | None:
        return self._guard.file if self._guard is not None else None

    def settle(self, writer: apsw.Connection) -> None:
        """Checkpoint a new store: while it is only in its log, losing the log loses even its identity."""
        if self._file is None or not is_settled(self._file):
            writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def find_rollback(self, read: ReadQuery) -> StoreRolledBack | None:
        """Return an error if the journal ends before the mark; quick if it does not."""
        if has_all_heads(read, self.mark.read_newest()):
            return None
        found = self.losses(read)
        return StoreRolledBack(describe_loss(self._path, found)) if found else None

    def losses(self, read: ReadQuery) -> tuple[LostEntries, ...]:
        """Return all entries that the mark has and the journal lacks."""
        return losses(read, self.mark.read_all())

    def adoption(self, read: ReadQuery, doubts: Mapping[str, bytes]) -> list[Statement]:
        """Statements that invalidate the mark and record for each run what it has lost."""
        facts = {ADOPTIONS: self.mark.compute_adoptions().to_bytes(8, "big")}
        for one in self.losses(read):
            if one.name:
                facts[LOST + one.name] = msgspec.msgpack.encode(_merge_losses(one.lost, doubts.get(one.name)))
        return [
            statement
            for key, value in facts.items()
            for statement in (Statement("drop_meta", (key,)), Statement("put_meta", (key, value)))
        ]

    def check_before_commit(self) -> None:
        """Check, inside a transaction, that this process writes where others read, and that the log has every frame.

        Processes with different indexes overwrite each other's frames. A checkpoint of a log that was cut short would
        damage the database.
        """
        if self._guard is None:
            return
        if not self._guard.has_index() and self._presence.is_index_replaced():
            raise StoreFenced(
                f"{self._path}: {self._presence.describe_loss()} while this process had it open; this commit was not "
                "made",
                hint="restart the program; `perdure verify` says whether anything is missing",
            )
        if self._guard.is_log_cut():
            raise StoreFenced(
                f"{self._path}: its write-ahead log was cut short while this process had it open, so acknowledged "
                "commits are lost; this one was not acknowledged",
                hint="stop every program that uses the store; then `perdure verify` says what is missing",
            )

    def check_after_commit(self, writer: apsw.Connection, entries: Sequence[MarkEntry], fresh: FreshReader) -> bool:
        """Check the files and write the mark before a commit is acknowledged; True if the store must be reopened."""
        sight = self._presence.check_files()
        if sight:
            if sight is GuardState.GONE:
                self._save(writer)
            else:
                self._compare(fresh)
        if entries:
            self.mark.write(entries)
        return sight is _GONE

    def _save(self, writer: apsw.Connection) -> None:
        """Checkpoint a log that was removed, if no other process uses the database."""
        lost = self._presence.describe_loss()
        if not self._may_save():
            raise StoreFenced(
                f"{self._path}: {lost} while this process had it open, so the last commit would be lost; it "
                "was not acknowledged",
                hint="stop every program that uses the store, restore the right files (`perdure verify` checks "
                "them), and start again",
            )
        unsaved = StoreFenced(f"{self._path}: {lost} while this process had it open; the data could not be saved")
        try:
            [(busy, frames, moved)] = writer.execute("PRAGMA wal_checkpoint(FULL)").fetchall()
        except apsw.Error as error:
            raise unsaved from error
        if busy or frames != moved or not self._may_save():
            raise unsaved

    def _may_save(self) -> bool:
        return self._presence.can_checkpoint(guarded=self._guard is not None)

    def _compare(self, fresh: FreshReader) -> None:
        """Find out whether a write to the database was a checkpoint or a copy over it."""
        before, self._backfilled = self._backfilled, self._see_backfilled()
        logged = self._file is None or has_log(self._file)
        if logged and (before != self._backfilled > 0 or self._is_sound(fresh)):
            return  # a checkpoint; an interrupted one does not update the count
        raise StoreFenced(
            f"{self._path}: another database was copied over it while this process had it open; the last commit was "
            "not acknowledged",
            hint="stop every program that uses the store, restore the right files (`perdure verify` checks them), "
            "and start again",
        )

    def _is_sound(self, fresh: FreshReader) -> bool:
        try:
            with fresh() as read:
                return has_all_heads(read, self.mark.probes())
        except apsw.BusyError:
            return True  # unknown
        except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError):
            return False

    def may_checkpoint_on_close(self) -> bool:
        """Whether SQLite may checkpoint and delete the log when it closes."""
        if self._presence.check_files() is GuardState.GONE and not self._may_save():
            return False
        if self._guard is not None:
            if self._guard.is_log_cut():
                return False
            self._guard.loosen()
        return True

    def release(self) -> None:
        """Release the files, after the connections are closed."""
        if self._guard is not None:
            self._guard.release()
            self._guard = None
        self.mark.close()

    def renew(self) -> None:
        """Watch the files of a reopened store, which may be others."""
        self._guard = guard(self._path)
        try:
            if self._guard is not None:
                self._guard.allocate_index()
        except OSError as error:
            self.release()
            raise _no_space(self._path) from error
        self._presence = OpenStoreFiles(self._path, self._file)
        self._backfilled = self._see_backfilled()


def _merge_losses(lost: EntriesLost, before: bytes | None) -> EntriesLost:
    """Merge a loss with an earlier one that the run has not handled yet."""
    if before is None:
        return lost
    old = msgspec.msgpack.decode(before, type=EntriesLost)
    intents = (*old.intents, *lost.intents)
    return EntriesLost(min(old.first, lost.first), max(old.last, lost.last), intents, old.complete and lost.complete)


def release_collected(opened: list[apsw.Connection], watches: list[StoreWatch]) -> None:
    """Release the files of a store that was garbage-collected without being closed."""

    def release() -> None:
        for watch in watches:
            watch.release()

    disconnect_collected(opened, release)
