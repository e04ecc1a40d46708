"""Making a SQLite file smaller, beside others who use it.

A file that we have made gives empty pages back a thousand at a time, in transactions as short as any other. One of an
older version has to be written anew once, during which nobody else can write: that is done only when it is small.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import StoreBusy
from ..failpoints import Moment, Site, reach
from ..limits import LOCK_SECONDS_MAX, VACUUM_BYTES_MAX
from .base import Script, Statement, Unit
from .forking import disconnect, within
from .sqlite_file import connect, patiently, translate
from .turnstile import Turnstile

if TYPE_CHECKING:
    import apsw

    from .base import Store

Progress = Callable[[int, int], None]

_INCREMENTAL = 2
LOG_MILLISECONDS = 1000
"""How long others may have to wait while the log is folded into the file; if readers need it longer, it stays."""


def shrink(store: Store, path: str, durability: str, progress: Progress | None) -> None:
    """Give empty pages back to the file system, and make the log empty."""
    with translate(path):
        connection = within(lambda: patiently(lambda: connect(path, durability, None)))
        try:
            if int(str(within(lambda: connection.pragma("auto_vacuum")))) == _INCREMENTAL:
                _release(store, progress)
            elif os.path.getsize(path) <= VACUUM_BYTES_MAX and store.read("store_bytes")[0][1]:
                _in_turn(path, lambda: _write_anew(connection))
            _in_turn(path, lambda: _empty_log(connection))
        finally:
            disconnect(connection)


def _empty_log(connection: apsw.Connection) -> None:
    connection.set_busy_timeout(LOG_MILLISECONDS)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _release(store: Store, progress: Progress | None) -> None:
    [(_, empty)] = store.read("store_bytes")
    left = empty
    while left:
        store.submit(_Release(store))
        before, [(_, left)] = left, store.read("store_bytes")
        if progress is not None:
            progress(empty - left, empty)
        if left >= before:
            return  # somebody frees as quickly as we give back


class _Release(Unit[None]):
    site = Site.SHRINK

    def __init__(self, store: Store) -> None:
        self._at = str(store.clock.wall_ms()).encode()

    def script(self) -> Script[None]:
        # A transaction that changes no row is not committed.
        yield [Statement("release_pages"), Statement("note_meta", ("shrunk", self._at))]


def _write_anew(connection: apsw.Connection) -> None:
    reach(Site.SHRINK, Moment.BEFORE)
    connection.pragma("auto_vacuum", "incremental")  # from the next time on it is quicker
    connection.execute("VACUUM").fetchall()


def _in_turn(path: str, work: Callable[[], None]) -> None:
    """In the turn of a writer: then none has to be waited for, and those who come stand in the queue."""
    turn = Turnstile(path + ".lock")
    try:
        if not turn.enter(LOCK_SECONDS_MAX):
            raise StoreBusy
        try:
            within(work)
        finally:
            turn.leave()
    finally:
        turn.close()
