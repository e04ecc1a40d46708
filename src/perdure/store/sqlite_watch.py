"""Watches the files of an open SQLite store: nothing acknowledged gets lost unnoticed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import apsw
import msgspec

from ..errors import StorageFull, StoreFenced, StoreRolledBack, StoreUnavailable
from ..house_records import Lost
from .base import LOST, Statement
from .forking import disconnect_collected
from .sqlite_mark import SUFFIX, Entry, LostEntries, Mark, Read, all_there, in_words, is_marked, losses
from .sqlite_presence import Guard, Presence, Sight, backfilled, guard, has_log, is_settled

Fresh = Callable[[], AbstractContextManager[Read]]

ADOPTIONS = "adoptions"
"""The fact about a store that counts how often its losses were accepted."""


PAGE_BYTES, INDEX_BYTES = 4096, 32_768
"""Of memory, and of the first piece of a `-shm` file."""


def refuse_bad_files(path: str) -> None:
    """What must not be opened, although SQLite would."""
    _refuse_links(path)
    _refuse_full_disk(path)


def _refuse_links(path: str) -> None:
    """A file with two names would have two logs: what is committed under one name is missing under the other."""
    try:
        links = os.stat(path).st_nlink
    except FileNotFoundError:
        return
    if links > 1:
        raise StoreUnavailable(
            f"{path} has {links} names (hard links), and a log under each of them could hold half of the store",
            hint=f"remove the others (`find . -samefile {shlex.quote(path)}` names them), or use a copy of the file",
        )


def refuse_lost_database(path: str) -> None:
    """A new store beside the mark of another one would do again what that one has done."""
    if not (os.path.exists(path) and os.path.getsize(path)) and is_marked(path):
        name = shlex.quote(path)
        raise StoreUnavailable(
            f"{path} is gone, and {path}{SUFFIX} says that work in it was acknowledged; nothing was made",
            hint=f"put the file back (from a backup: then run `perdure adopt`), or begin anew with `rm {name}-*`",
        )


def _refuse_full_disk(path: str) -> None:
    """On a full file system with small blocks, SQLite dies of SIGBUS when it makes the index of its log.

    It allocates one block of each page, and maps whole pages: the others cannot be written then.
    """
    disk = os.statvfs(os.path.dirname(path))
    if disk.f_bsize >= PAGE_BYTES or disk.f_bavail * disk.f_frsize >= 4 * INDEX_BYTES:
        return
    try:
        made = os.stat(os.path.realpath(path) + "-shm").st_size >= INDEX_BYTES
    except FileNotFoundError:
        made = False
    if not made:
        raise StorageFull(f"no space is left to open {path}", hint="free some space and try again; nothing was changed")


class Watch:
    """The files of one open store."""

    def __init__(self, path: str, mark: Mark) -> None:
        self.mark = mark
        self._path = path
        self._presence = Presence(path)
        self._guard: Guard | None = guard(path)
        self._backfilled = self._see_backfilled()

    def _see_backfilled(self) -> int:
        index = self._guard.index if self._guard is not None else None
        return backfilled(index) if index is not None else 0

    @property
    def _file(self) -> int | None:
        return self._guard.file if self._guard is not None else None

    def settle(self, writer: apsw.Connection) -> None:
        """Bring a new store into its file. A store that is only in its log is gone without it, identity and all."""
        if self._file is None or not is_settled(self._file):
            writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def rolled_back(self, read: Read) -> StoreRolledBack | None:
        """Whether the journal ends before the mark, and what is missing. Quick when it does not."""
        if all_there(read, self.mark.newest()):
            return None
        found = self.losses(read)
        return StoreRolledBack(in_words(self._path, found)) if found else None

    def losses(self, read: Read) -> tuple[LostEntries, ...]:
        """Everything that the mark knows of, and that the journal has not."""
        return losses(read, self.mark.all())

    def adoption(self, read: Read, doubts: Mapping[str, bytes]) -> list[Statement]:
        """Nothing in the mark counts any more, and each run will know what it has lost when it is opened."""
        facts = {ADOPTIONS: self.mark.adopted().to_bytes(8, "big")}
        for one in self.losses(read):
            if one.name:
                facts[LOST + one.name] = msgspec.msgpack.encode(_merged(one.lost, doubts.get(one.name)))
        return [
            statement
            for key, value in facts.items()
            for statement in (Statement("drop_meta", (key,)), Statement("put_meta", (key, value)))
        ]

    def after_commit(self, writer: apsw.Connection, entries: Sequence[Entry], fresh: Fresh) -> bool:
        """Before a commit is acknowledged. True: everything is in the database, and the store must open it anew."""
        sight = self._presence.look()
        if sight is Sight.GONE:
            self._save(writer)
        elif sight is Sight.WRITTEN:
            self._compare(fresh)
        if entries:
            self.mark.write(entries)
        return sight is Sight.GONE

    def _save(self, writer: apsw.Connection) -> None:
        """The log has lost its name: write it into the database, if that is ours alone."""
        lost = self._presence.lost()
        if not self._may_save():
            raise StoreFenced(
                f"{self._path}: {lost} while this process had it open, so that nobody would find the last commit; it "
                "was not acknowledged",
                hint="stop every program that uses the store, put the right files back (`perdure verify` looks at "
                "them), and start again",
            )
        unsaved = StoreFenced(f"{self._path}: {lost} while this process had it open, and could not be saved")
        try:
            [(busy, frames, moved)] = writer.execute("PRAGMA wal_checkpoint(FULL)").fetchall()
        except apsw.Error as error:
            raise unsaved from error
        if busy or frames != moved or not self._may_save():
            raise unsaved

    def _may_save(self) -> bool:
        return self._presence.can_be_saved(guarded=self._guard is not None)

    def _compare(self, fresh: Fresh) -> None:
        """Somebody has written to the database: a checkpoint leaves everything there, a copy over it does not."""
        before, self._backfilled = self._backfilled, self._see_backfilled()
        logged = self._file is None or has_log(self._file)
        if logged and (before != self._backfilled > 0 or self._is_sound(fresh)):
            return  # a checkpoint says so itself, unless it was interrupted
        raise StoreFenced(
            f"{self._path}: another database was copied over it while this process had it open; the last commit was "
            "not acknowledged",
            hint="stop every program that uses the store, put the right files back (`perdure verify` looks at them), "
            "and start again",
        )

    def _is_sound(self, fresh: Fresh) -> bool:
        try:
            with fresh() as read:
                return all_there(read, self.mark.probes())
        except apsw.BusyError:
            return True  # nobody knows
        except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError):
            return False

    def before_close(self) -> bool:
        """Whether SQLite may clear up as the last one: write the log into the database, and delete it."""
        if self._presence.look() is Sight.GONE and not self._may_save():
            return False
        if self._guard is not None:
            self._guard.loosen()
        return True

    def release(self) -> None:
        """After the connections are closed."""
        if self._guard is not None:
            self._guard.release()
            self._guard = None
        self.mark.close()

    def renew(self) -> None:
        """The store has opened its files anew: they may be others."""
        self._presence = Presence(self._path)
        self._guard = guard(self._path)
        self._backfilled = self._see_backfilled()


def _merged(lost: Lost, before: bytes | None) -> Lost:
    """With what the run had lost before, and has not been opened since."""
    if before is None:
        return lost
    old = msgspec.msgpack.decode(before, type=Lost)
    intents = (*old.intents, *lost.intents)
    return Lost(min(old.first, lost.first), max(old.last, lost.last), intents, old.complete and lost.complete)


def release_collected(opened: list[apsw.Connection], watches: list[Watch]) -> None:
    """Give back the files of a store that nobody has closed."""
    disconnect_collected(opened)
    for watch in watches:
        watch.release()
