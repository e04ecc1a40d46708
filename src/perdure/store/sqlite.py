"""The embedded store: one SQLite file in WAL mode, one writer connection per process, readers beside it."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, TypeVar

import apsw

from ..clock import Clock
from ..errors import PerdureError, StorageFull, StoreBusy, StoreFenced, StoreUnavailable
from ..failpoints import Moment, reach
from ..limits import LOCK_SECONDS_MAX
from . import sql
from .base import LOST, RowRefused, Rows, Statement, Unit
from .committer import Batch, Committer, Ticket
from .forking import disconnect, inside, keep, open_elsewhere, within
from .sqlite_bounds import Bounds
from .sqlite_copy import copy_pages
from .sqlite_file import (
    DRIVER_ERRORS,
    connect,
    create_or_migrate,
    is_current,
    patiently,
    prepare_file,
    refuse_unsafe_place,
    translate,
    translated,
)
from .sqlite_functions import teller
from .sqlite_mark import Entry, LostEntries, Mark, Read, remove_mark
from .sqlite_readers import TEXT, SqliteReaders
from .sqlite_reading import Reading
from .sqlite_scrub import OWED, left_behind, owing, scrub, shrink
from .sqlite_watch import ADOPTIONS, Watch, refuse_bad_files, release_collected
from .turnstile import Turnstile

T = TypeVar("T")

_RETURNS = {name for name, named in sql.load("sqlite").items() if named.returns}


MAKE_GOOD_SECONDS = 1.0
"""How long opening a store waits for its turn to finish an interrupted scrub; the next opener tries again."""


class SqliteStore(SqliteReaders):
    """A file. Two processes may use it at once; two stores of one process on one file are better shared."""

    def __init__(
        self,
        path: str,
        *,
        clock: Clock,
        durability: str = "full",
        vfs: str | None = None,
        wary: bool = False,
        reading: Reading | None = None,
    ) -> None:
        self.url = f"sqlite:///{path}"
        self.path = path
        self.clock = clock
        self.durability = durability
        self.fenced: StoreFenced | None = None
        # One in memory is seen by one connection; a VFS written in Python has no shared memory for a second one.
        self._one_connection = path == ":memory:" or vfs is not None
        self._vfs = vfs
        self._reading = reading
        self.read_only = reading.note if reading is not None else ""
        self._bounds = Bounds(path) if wary and path != ":memory:" else None
        """What a query may do, for who reads a file that others may have made."""
        self._committer = Committer(self._execute)
        if path != ":memory:":
            refuse_unsafe_place(path)
            refuse_bad_files(path)
        self._turnstile: Turnstile | None = None
        self._init_readers()
        self._watches: list[Watch] = []
        """One, if the store is a file; in a list, so that it can be released when the store was collected."""
        weakref.finalize(self, release_collected, self._opened, self._watches).atexit = False
        self._entries: list[Entry] = []
        """What the transaction at work has appended to the journal."""
        self._told: Rows = []
        """What the statement at work has told by `tell(...)`."""
        try:
            with translate(path):
                self._open_writer()
                # Not before: beside the file of another program we leave nothing.
                if not self._one_connection and reading is None:
                    self._turnstile = Turnstile(path + ".lock")
                # Who only looks does not wait for a turn to write, which a process that was stopped may never give.
                if not within(lambda: patiently(lambda: is_current(self._writer))):
                    self._refuse_old()
                    self._locked(patiently, lambda: create_or_migrate(self._writer, clock))
                self.secret = self._meta("secret")
                self.identity = self._meta("identity").hex()
                self.stale = bool(self._facts("stale"))
                self.unscrubbed = bool(left_behind(self._owed()))
                if not self._one_connection and reading is None:
                    self._watch_files()
        except BaseException:
            self._give_up()
            raise
        super().__init__()

    def _submit(self, unit: Unit[T]) -> T:
        return self._committer.submit(unit)

    async def _submit_async(self, unit: Unit[T]) -> T:
        return await self._committer.submit_async(unit)

    def backup(self, path: str, progress: Callable[[int, int], None] | None = None) -> int:
        self._must_be_open()
        prepare_file(os.path.abspath(path))  # a copy is as private as the original
        with translate(path), inside():
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
            source = self._connected()
            try:
                copy_pages(source, target, progress)
            finally:
                disconnect(source)
        target.execute("PRAGMA journal_mode = DELETE").fetchall()

    def owing(self, token: str) -> Sequence[Statement]:
        return () if self._one_connection else (owing(token),)

    def scrub(self, texts: Sequence[bytes] = (), token: str = "") -> str:
        return "" if self._one_connection else scrub(self, self.path, self.durability, texts, token)

    def make_good(self) -> None:
        if self.unscrubbed and not self.read_only and self.rolled_back is None:
            with suppress(StoreBusy, StorageFull):  # then the next one does it: the note stays
                scrub(self, self.path, self.durability, (), "", MAKE_GOOD_SECONDS)
        self.unscrubbed = False

    def _refuse_old(self) -> None:
        """Raise for a store of an older version that cannot be brought forward."""
        if self._reading is not None:
            raise self._reading.refused(", and has to be brought forward to this version first")

    def shrink(self, *, whole: bool = False) -> str:
        if self._reading is not None:
            raise self._reading.refused()
        return "" if self._one_connection else shrink(self, self.path, self.durability, whole=whole)

    def at_rest(self, seconds: float) -> AbstractContextManager[None]:
        return self._committer.at_rest(seconds)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._forked:
            return
        self._committer.close()
        if self._watches and (self.fenced or self.rolled_back or not self._watches[0].before_close()):
            self._leave_log()
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
        """Opening failed: leave no connection behind, whose locks would keep others out."""
        disconnect(*self._opened)
        for watch in self._watches:
            watch.release()
        if self._turnstile is not None:
            self._turnstile.close()
        if self._reading is not None:
            self._reading.close()

    # -- inside -----------------------------------------------------------------------------------------------

    def _execute(self, batch: Batch) -> None:
        """Commit a batch in one transaction; a unit that fails alone is undone alone."""
        try:
            self._locked(self._commit, batch)
        except DRIVER_ERRORS as error:
            raise translated(error, self.path, self._fence) from error

    def _commit(self, batch: Batch) -> None:
        if self._transact(batch) and self._watches:
            try:
                self._acknowledge(self._watches[0])
            except StoreFenced as error:
                self._fence(error)
                raise
            except BaseException as error:
                batch.ended = not isinstance(error, apsw.Error)  # an interrupt that came after the commit
                raise
        batch.ended = True

    def _acknowledge(self, watch: Watch) -> None:
        """Before anybody hears that a commit has landed: can it be found again, and does the mark know of it?"""
        if watch.after_commit(self._writer, self._entries, self._fresh):
            self._reopen(watch)

    def _transact(self, batch: Batch) -> bool:
        """Returns whether anything was committed."""
        writer, execute = self._writer, self._cursor.execute
        alone = len(batch) == 1
        changes = writer.total_changes()
        self._entries.clear()
        if any(ticket.unit.erases for ticket in batch):
            writer.pragma("secure_delete", 1)  # from now on, in this process: who erases once may erase again
        self._begin()
        committing = False
        try:
            reach(batch[0].unit.site, Moment.BEGUN)
            for ticket in batch:
                self._run(ticket, alone)
            if writer.total_changes() == changes or (alone and batch[0].error is not None):
                execute("ROLLBACK")  # nothing to keep: committing it would cost a sync all the same
            else:
                reach(batch[0].unit.site, Moment.WRITTEN)
                committing = True
                execute("COMMIT")
            return committing
        except BaseException as error:
            if writer.in_transaction:
                execute("ROLLBACK")
            elif committing and not isinstance(error, apsw.Error):
                batch.ended = True  # an interrupt that came after the commit
            raise

    def _begin(self) -> None:
        execute = self._cursor.execute
        if self._writer.in_transaction:
            execute("ROLLBACK")  # left by two interrupts in a row, the second of which hit the first's rollback
        try:
            # Where nothing can be written, units that only read still do, and SQLite refuses the others.
            execute("BEGIN" if self._reading is not None else "BEGIN IMMEDIATE")
        except apsw.BusyError:
            patiently(lambda: execute("BEGIN IMMEDIATE"))

    def _run(self, ticket: Ticket, alone: bool) -> None:
        before = len(self._entries)
        if not alone:
            self._cursor.execute("SAVEPOINT unit")
        try:
            script = ticket.unit.script()
            rows: list[Rows] = []
            try:
                statements = next(script)
                while True:
                    rows = [self._statement(statement) for statement in statements]
                    statements = script.send(rows)
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
        name, told = statement.name, self._told
        text = TEXT[name]
        if not text:
            return []
        told.clear()
        if self._bounds is not None:
            self._bounds.begin()
        try:
            cursor = self._cursor.execute(text, statement.args)
            rows = told.copy() if name not in _RETURNS else self._fetched(cursor)
        except apsw.ConstraintError as error:
            # Only a writer that is not alone can meet a row that it believed absent.
            if statement.must is None:
                raise RowRefused(f"{self.path} refused a row of {name}: {error}") from error
            raise statement.must() from error
        if statement.must is not None and (len(rows) if name in _RETURNS else self._writer.changes()) != 1:
            raise statement.must()
        if name == "append_event":
            self._entries.append(statement.args)
        return rows

    def _locked(self, work: Callable[..., object], *args: object) -> None:
        """Do work that writes, in the turn of this process."""
        if self._turnstile is None:
            within(self._alone, work, *args)
            return
        if not self._turnstile.enter(LOCK_SECONDS_MAX):
            raise StoreBusy
        try:
            within(work, *args)
        finally:
            self._turnstile.leave()

    def _alone(self, work: Callable[..., object], *args: object) -> None:
        with self._writer_lock:
            work(*args)

    def _fetched(self, cursor: apsw.Cursor) -> Rows:
        return cursor.fetchall() if self._bounds is None else list(self._bounds.counted(cursor))

    def _open_writer(self) -> None:
        self._writer = self._kept()
        self._writer.create_scalar_function("tell", teller(self._told), 1)
        self._cursor = self._writer.cursor()  # one for all commits: making it takes as long as an insert

    def _connections(self) -> list[apsw.Connection]:
        # The writer last: the last one to close folds the log into the file.
        watcher = [self._watcher] if self._watcher is not None else []
        return [*self._readers, *watcher, self._writer]

    def _meta(self, key: str) -> bytes:
        rows = self._facts(key)
        if not rows or not isinstance(rows[0][0], bytes):
            raise StoreUnavailable(f"{self.path} has lost its {key}", hint="restore it from a backup")
        return rows[0][0]

    def _facts(self, key: str) -> Rows:
        return within(lambda: self._writer.execute(TEXT["get_meta"], (key,)).fetchall())

    def _owed(self) -> Rows:
        return self._like(OWED)

    def _like(self, prefix: str) -> Rows:
        return self._by_writer("facts_like", (prefix,))

    def _fence(self, error: StoreFenced) -> None:
        self.fenced = error
        # The file may hold less than its cache pretends; leave the log for the next open to judge.
        self._leave_log()

    def _leave_log(self) -> None:
        with suppress(apsw.ConnectionClosedError):
            within(lambda: self._writer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1))

    # -- the files ----------------------------------------------------------------------------------------------

    def _watch_files(self) -> None:
        """Know the files again, and look whether all is there that was acknowledged."""
        adoptions = int.from_bytes(b"".join(row[0] for row in self._facts(ADOPTIONS)), "big")
        path, synced = self._writer.filename, self.durability == "full"
        if not os.path.exists(path + "-wal"):
            return  # it is only read
        mark = Mark(path, bytes.fromhex(self.identity), self.secret, adoptions, synced=synced)
        self._watches.append(Watch(path, mark))
        within(self._watches[0].settle, self._writer)
        self.doubts = {key.removeprefix(LOST): value for key, value in self._like(LOST)}
        self.rolled_back = self._watches[0].rolled_back(self._by_writer)

    def _by_writer(self, name: str, args: tuple[Any, ...]) -> Rows:
        return within(lambda: self._writer.execute(TEXT[name], args).fetchall())

    @contextmanager
    def _fresh(self) -> Iterator[Read]:
        """Reads with a connection that remembers no page of the file."""
        connection = connect(self.path, self.durability, self._vfs)
        try:
            yield lambda name, args: connection.execute(TEXT[name], args).fetchall()
        finally:
            disconnect(connection)

    def _reopen(self, watch: Watch) -> None:
        """The log had lost its name, and is in the database now: close every connection to it, then open the files."""
        with self._watch_lock, self._connecting:
            if not self._take_readers() or open_elsewhere(self._writer.filename, self._opened):
                raise StoreFenced(
                    f"the log of {self.path} was removed; all that was committed is saved, but the file is in use here",
                    hint="close the agent and open it again",
                )
            disconnect(*self._opened)
            watch.release()
            self._watcher = None
            self._opened.clear()
            try:
                self._open_writer()
                self._by_writer("get_meta", ("identity",))  # which opens the log
                watch.renew()
            except (apsw.Error, OSError) as error:
                raise StoreFenced(
                    f"{self.path} cannot be opened anew: {error}; all that was committed is in it"
                ) from error

    def _abandon(self) -> None:
        """In a forked child, where `forking` has seen to the connections."""
        super()._abandon()
        keep(self._cursor)
        for watch in self._watches:
            watch.release()
        if self._turnstile is not None:
            self._turnstile.abandon()
