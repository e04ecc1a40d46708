"""The embedded store: one SQLite file in WAL mode, with one writer connection per process and a pool of readers."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import apsw

from perdure.errors import PerdureError, StorageFull, StoreBusy, StoreFenced, StoreUnavailable
from perdure.platform import failpoints
from perdure.platform.failpoints import CommitMoment, reach
from perdure.records.stores import LostEntries
from perdure.store import sql
from perdure.store.base import LOST, RowRefused, Rows, Statement, UnitOfWork
from perdure.store.group_commit import CommitBatch, Committer, CommitTicket
from perdure.store.sqlite.backup import copy_pages
from perdure.store.sqlite.file import (
    DRIVER_ERRORS,
    connect,
    create_or_migrate,
    is_current,
    prepare_file,
    refuse_unsafe_place,
    retry_busy,
    translate,
    translate_error,
)
from perdure.store.sqlite.fork_safety import call_outside_fork, disconnect, is_open_elsewhere, keep_forever, stay_inside
from perdure.store.sqlite.functions import teller
from perdure.store.sqlite.mark import DurabilityMark, MarkEntry, ReadQuery, remove_mark
from perdure.store.sqlite.read_only import ReadOnlyMode
from perdure.store.sqlite.readers import TEXT, SqliteReaders
from perdure.store.sqlite.scrub import OWED, find_left_behind, scrub, scrub_note, shrink
from perdure.store.sqlite.turnstile import Turnstile
from perdure.store.sqlite.watch import ADOPTIONS, StoreWatch, refuse_bad_files, release_collected
from perdure.store.sqlite.work_limits import StatementBounds
from perdure.values.clock import Clock
from perdure.values.limits import LOCK_SECONDS_MAX

T = TypeVar("T")

_RETURNS = {name for name, named in sql.load("sqlite").items() if named.returns}


MAKE_GOOD_SECONDS = 1.0
"""How long opening a store waits for its turn to finish an interrupted scrub; the next opener tries again."""


class SqliteStore(SqliteReaders):
    """A store in a file. Several processes may use it; within one process, share one instance."""

    def __init__(
        self,
        path: str,
        *,
        clock: Clock,
        durability: str = "full",
        vfs: str | None = None,
        wary: bool = False,
        reading: ReadOnlyMode | None = None,
    ) -> None:
        self.url = f"sqlite:///{path}"
        self.path = path
        self.clock = clock
        self.durability = durability
        self.fenced: StoreFenced | None = None
        # A store in memory has one connection; a VFS written in Python has no shared memory for a second one.
        self._one_connection = path == ":memory:" or vfs is not None
        self._vfs = vfs
        self._reading = reading
        self.read_only = reading.note if reading is not None else ""
        # In a read-only store, units that only read still work, and SQLite refuses the others.
        self._begin = "BEGIN" if reading is not None else "BEGIN IMMEDIATE"
        self._bounds = StatementBounds(path) if wary and path != ":memory:" else None
        """Limits of the work per query, for files that others may have made."""
        self._committer = Committer(partial(self._write_in_turn, self._commit))
        if path != ":memory:":
            refuse_unsafe_place(path)
            refuse_bad_files(path)
        self._turnstile: Turnstile | None = None
        self._init_readers()
        self._watches: list[StoreWatch] = []
        """One if the store is a file; in a list, so that it can be released after the store was collected."""
        weakref.finalize(self, release_collected, self._opened, self._watches).atexit = False
        self._entries: list[MarkEntry] = []
        """Entries that the current transaction has appended."""
        self._told: Rows = []
        """Rows that the current statement has added with `tell(...)`."""
        try:
            with translate(path):
                self._open_writer()
                # Only now: leave no lock file next to another program's database.
                if not self._one_connection and reading is None:
                    self._turnstile = Turnstile(path + ".lock")
                # Readers take no write lock: a stopped process could hold it forever.
                if not call_outside_fork(lambda: retry_busy(lambda: is_current(self._writer))):
                    self._refuse_old()
                    self._write_in_turn(retry_busy, lambda: create_or_migrate(self._writer, clock))
                self.secret = self._meta("secret")
                self.identity = self._meta("identity").hex()
                self.stale = bool(self._facts("stale"))
                self.unscrubbed = bool(find_left_behind(self._read_pending_scrubs()))
                if not self._one_connection and reading is None:
                    self._watch_files()
        except BaseException:
            self._give_up()
            raise
        super().__init__()

    def _submit(self, unit: UnitOfWork[T]) -> T:
        return self._committer.submit(unit)

    async def _submit_async(self, unit: UnitOfWork[T]) -> T:
        return await self._committer.submit_async(unit)

    def backup(self, path: str, progress: Callable[[int, int], None] | None = None) -> int:
        self._check_open()
        prepare_file(os.path.abspath(path))  # a copy is as private as the original
        with translate(path), stay_inside():
            target = connect(path, "full", None)
            try:
                self._copy_to(target, progress)
            finally:
                disconnect(target)
        remove_mark(path)
        return os.path.getsize(path)

    def _copy_to(self, target: apsw.Connection, progress: Callable[[int, int], None] | None) -> None:
        if self._one_connection:
            with self._writer_lock:
                copy_pages(self._writer, target, progress)
        else:
            source = self._open_connection()
            try:
                copy_pages(source, target, progress)
            finally:
                disconnect(source)
        target.execute("PRAGMA journal_mode = DELETE").fetchall()

    def scrub_note(self, token: str) -> Sequence[Statement]:
        return () if self._one_connection else (scrub_note(token),)

    def scrub(self, texts: Sequence[bytes] = (), token: str = "") -> str:
        return "" if self._one_connection else scrub(self, self.path, self.durability, texts, token)

    def finish_scrub(self) -> None:
        if self.unscrubbed and not self.read_only and self.rolled_back is None:
            with suppress(StoreBusy, StorageFull):  # the note stays, and the next process tries again
                scrub(self, self.path, self.durability, (), "", MAKE_GOOD_SECONDS)
        self.unscrubbed = False

    def _refuse_old(self) -> None:
        """Refuse a read-only store of an older version, which cannot be migrated."""
        if self._reading is not None:
            raise self._reading.refusal_error(", and must be migrated to this version first")

    def shrink(self, *, whole: bool = False) -> str:
        if self._reading is not None:
            raise self._reading.refusal_error()
        return "" if self._one_connection else shrink(self, self.path, self.durability, whole=whole)

    def quiesce(self, seconds: float) -> AbstractContextManager[None]:
        return self._committer.quiesce(seconds)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._forked:
            return
        self._committer.close()
        if self._watches and (self.fenced or self.rolled_back or not self._watches[0].may_checkpoint_on_close()):
            self._leave_log()
        with self._watch_lock:  # another thread may be polling for changes
            disconnect(*self._connections())
        for watch in self._watches:
            watch.release()
        self._watches.clear()
        if self._turnstile is not None:
            self._turnstile.close()
        if self._reading is not None:
            self._reading.close()

    def losses(self) -> tuple[LostEntries, ...]:
        return self._watches[0].losses(self.read) if self._watches else ()

    def adoption(self) -> Sequence[Statement]:
        return self._watches[0].adoption(self.read, self.doubts) if self._watches else ()

    def _give_up(self) -> None:
        """Release everything after opening failed."""
        disconnect(*self._opened)
        for watch in self._watches:
            watch.release()
        if self._turnstile is not None:
            self._turnstile.close()
        if self._reading is not None:
            self._reading.close()

    # -- inside -----------------------------------------------------------------------------------------------

    def _commit(self, batch: CommitBatch) -> None:
        """Commit a batch in one transaction; a unit that fails is rolled back alone."""
        committed = False
        try:
            committed = self._transact(batch)
            if committed and self._watches:
                watch = self._watches[0]
                # Check the files and write the mark, before the commit is acknowledged.
                if watch.check_after_commit(self._writer, self._entries, self._fresh):
                    self._reopen(watch)
        except StoreFenced as error:
            self._fence(error)
            raise
        except BaseException as error:
            if committed:
                batch.ended = not isinstance(error, apsw.Error)  # an interrupt that came after the commit
            if isinstance(error, DRIVER_ERRORS):
                raise translate_error(error, self.path, self._fence) from error
            raise
        batch.ended = True

    def _transact(self, batch: CommitBatch) -> bool:
        """Run the batch in a transaction; return whether anything was committed."""
        writer, execute = self._writer, self._cursor.execute
        alone = len(batch) == 1
        changes = writer.total_changes()
        self._entries.clear()
        if writer.in_transaction:
            execute("ROLLBACK")  # left open by an interrupt during the rollback of another
        try:
            execute(self._begin)
        except apsw.BusyError:
            retry_busy(lambda: execute(self._begin))
        committing = False
        try:
            if self._watches:
                self._watches[0].check_before_commit()
            if failpoints.hook is not None:
                reach(batch[0].unit.site, CommitMoment.BEGUN)
            for ticket in batch:
                self._run_ticket(ticket, alone)
            unchanged = not self._entries and writer.total_changes() == changes
            if unchanged or (alone and batch[0].error is not None):
                execute("ROLLBACK")  # nothing changed: a commit would still cost a sync
            else:
                if failpoints.hook is not None:
                    reach(batch[0].unit.site, CommitMoment.WRITTEN)
                committing = True
                execute("COMMIT")
            return committing
        except BaseException as error:
            if writer.in_transaction:
                execute("ROLLBACK")
            elif committing and not isinstance(error, apsw.Error):
                batch.ended = True  # an interrupt that came after the commit
            raise

    def _run_ticket(self, ticket: CommitTicket, alone: bool) -> None:
        unit, before = ticket.unit, len(self._entries)
        if unit.erases:
            self._writer.pragma("secure_delete", 1)  # stays on: a process that erases once may erase again
        if not alone:
            self._cursor.execute("SAVEPOINT unit")
        try:
            script = unit.script()
            try:
                statements = next(script)
                while True:
                    statements = script.send(list(map(self._statement, statements)))
            except StopIteration as stop:
                ticket.result = stop.value
        except PerdureError as error:
            ticket.error = error
            del self._entries[before:]
            if not alone:
                self._cursor.execute("ROLLBACK TO unit")
        if not alone:
            self._cursor.execute("RELEASE unit")

    def _statement(self, statement: Statement) -> Rows:
        name, must = statement.name, statement.must
        text = TEXT[name]
        if not text:
            return []
        if self._told:
            self._told.clear()
        if self._bounds is not None:
            self._bounds.begin()
        try:
            cursor = self._cursor.execute(text, statement.args)
            if name in _RETURNS:
                rows = self._fetch_rows(cursor)
                changed = len(rows)
            else:
                rows = self._told.copy()
                changed = self._writer.changes()
        except apsw.ConstraintError as error:
            # Another process has inserted the row meanwhile.
            if must is None:
                raise RowRefused(f"{self.path} refused a row of {name}: {error}") from error
            raise must() from error
        if must is not None and changed != 1:
            raise must()
        if name == "append_entry":
            self._entries.append(statement.args)
        return rows

    def _write_in_turn(self, work: Callable[..., object], *args: object) -> None:
        """Call `work`, which writes, in the turn of this process."""
        turnstile = self._turnstile
        if turnstile is None:
            call_outside_fork(self._write_alone, work, *args)
            return
        if not turnstile.enter(LOCK_SECONDS_MAX):
            raise StoreBusy
        try:
            call_outside_fork(work, *args)
        finally:
            turnstile.leave()

    def _write_alone(self, work: Callable[..., object], *args: object) -> None:
        with self._writer_lock:
            work(*args)

    def _fetch_rows(self, cursor: apsw.Cursor) -> Rows:
        return cursor.fetchall() if self._bounds is None else list(self._bounds.count_rows(cursor))

    def _open_writer(self) -> None:
        self._writer = self._take_reader()
        self._writer.create_scalar_function("tell", teller(self._told), 1)
        self._cursor = self._writer.cursor()  # one for all commits: creating one takes as long as an insert

    def _connections(self) -> list[apsw.Connection]:
        # The writer last: the last connection to close checkpoints the log.
        watcher = [self._watcher] if self._watcher is not None else []
        return [*self._readers, *watcher, self._writer]

    def _meta(self, key: str) -> bytes:
        rows = self._facts(key)
        if not rows or not isinstance(rows[0][0], bytes):
            raise StoreUnavailable(f"{self.path} has lost its {key}", hint="restore it from a backup")
        return rows[0][0]

    def _facts(self, key: str) -> Rows:
        return call_outside_fork(lambda: self._writer.execute(TEXT["get_meta"], (key,)).fetchall())

    def _read_pending_scrubs(self) -> Rows:
        return self._like(OWED)

    def _like(self, prefix: str) -> Rows:
        return self._read_by_writer("meta_with_prefix", (prefix,))

    def _fence(self, error: StoreFenced) -> None:
        self.fenced = error
        # The file may have less than the cache: leave the log for the next open.
        self._leave_log()

    def _leave_log(self) -> None:
        with suppress(apsw.ConnectionClosedError):
            call_outside_fork(lambda: self._writer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1))

    # -- the files ----------------------------------------------------------------------------------------------

    def _watch_files(self) -> None:
        """Start watching the files, and check that all acknowledged entries exist."""
        adoptions = int.from_bytes(b"".join(row[0] for row in self._facts(ADOPTIONS)), "big")
        path, synced = self._writer.filename, self.durability == "full"
        if not os.path.exists(path + "-wal"):
            return  # read-only
        mark = DurabilityMark(path, bytes.fromhex(self.identity), self.content_key, adoptions, synced=synced)
        self._watches.append(StoreWatch(path, mark))
        call_outside_fork(self._watches[0].settle, self._writer)
        self.doubts = {key.removeprefix(LOST): value for key, value in self._like(LOST)}
        self.rolled_back = self._watches[0].find_rollback(self._read_by_writer)

    def _read_by_writer(self, name: str, args: tuple[Any, ...]) -> Rows:
        return call_outside_fork(lambda: self._writer.execute(TEXT[name], args).fetchall())

    @contextmanager
    def _fresh(self) -> Iterator[ReadQuery]:
        """Provide reads through a new connection, which has no cached pages."""
        connection = connect(self.path, self.durability, self._vfs)
        try:
            yield lambda name, args: connection.execute(TEXT[name], args).fetchall()
        finally:
            disconnect(connection)

    def _reopen(self, watch: StoreWatch) -> None:
        """Close all connections and open the files again, after a removed log was saved into the database."""
        with self._watch_lock, self._connecting:
            if not self._take_readers() or is_open_elsewhere(self._writer.filename, self._opened):
                raise StoreFenced(
                    f"the log of {self.path} was removed; every commit is saved, but this process must reopen the file",
                    hint="close the agent and open it again",
                )
            disconnect(*self._opened)
            watch.release()
            self._watcher = None
            self._opened.clear()
            try:
                self._open_writer()
                self._read_by_writer("get_meta", ("identity",))  # opens the log
                watch.renew()
            except (apsw.Error, OSError) as error:
                raise StoreFenced(f"{self.path} cannot be reopened: {error}; it contains every commit") from error

    def _abandon(self) -> None:
        """In a forked child, where `fork_safety` has handled the connections."""
        super()._abandon()
        keep_forever(self._cursor)
        for watch in self._watches:
            watch.release()
        if self._turnstile is not None:
            self._turnstile.abandon()
