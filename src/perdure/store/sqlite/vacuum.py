"""Shrinks a SQLite file while it is in use.

SQLite reuses empty pages. To return them to the file system, VACUUM rewrites the file: readers continue, but writers
wait. So that happens only if it is quick and worthwhile, or on request.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import apsw

from perdure.errors import StoreBusy
from perdure.platform.failpoints import CommitMoment, Site, reach
from perdure.store.sqlite.file import connect, retry_busy, translate
from perdure.store.sqlite.fork_safety import call_outside_fork, disconnect
from perdure.store.sqlite.turnstile import Turnstile
from perdure.values.limits import LOCK_SECONDS_MAX, VACUUM_BYTES_MAX, VACUUM_SHARE_MIN

if TYPE_CHECKING:
    from perdure.store.base import Store

T = TypeVar("T")

LOG_MILLISECONDS = 1000
"""How long others may wait for the checkpoint; if readers need the log for longer, it stays."""

BREATH_OPERATIONS = 100_000
"""Virtual machine steps after which SQLite calls back into Python, which handles Ctrl-C."""

FULL = "not enough disk space to rewrite the file"
IN_USE = "a process is reading the store, so its log was kept; forget again, or run `perdure gc` later"


def shrink(store: Store, path: str, durability: str, *, whole: bool, owed: bool) -> tuple[str, bool]:
    """Return empty pages to the file system and empty the log. With `owed`, a scrub needs the file rewritten.

    Returns why some pages were not freed, and whether the file was rewritten.
    """
    size, empty = store.read("store_bytes")[0]
    left = size - empty
    worth_it = empty >= size * VACUUM_SHARE_MIN and empty > 0
    # On request even without an empty page: the free space within pages may contain erased text.
    anew = whole or ((worth_it or owed) and left <= VACUUM_BYTES_MAX)
    with translate(path):
        connection = call_outside_fork(lambda: retry_busy(lambda: connect(path, durability, None)))
        try:
            note = call_in_write_turn(path, partial(truncate_log, connection, anew))
        finally:
            disconnect(connection)
    told = f"{empty / 1e6:,.1f} MB of the file are free and will be reused; "
    if note == FULL:
        return f"{told}not enough disk space to rewrite the other {left / 1e6:,.1f} MB", False
    if worth_it and not anew:
        told += f"`perdure gc --vacuum` frees them and rewrites the other {left / 1e6:,.1f} MB; meanwhile "
        return f"{told}no other process can write", False
    return "", anew and not note


def truncate_log(connection: apsw.Connection, anew: bool) -> str:
    """Empty the log into the file; with `anew`, rewrite the file before. Returns why that was not possible."""
    if anew and not _write_anew(connection):
        return FULL
    connection.set_busy_timeout(LOG_MILLISECONDS)
    [(busy, _, _)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    if anew:
        reach(Site.SHRINK, CommitMoment.AFTER)
    return IN_USE if busy else ""


def _write_anew(connection: apsw.Connection) -> bool:
    reach(Site.SHRINK, CommitMoment.BEFORE)
    # A file may have been created with auto_vacuum, which costs every step a third of a page.
    connection.pragma("auto_vacuum", "none")
    connection.set_progress_handler(lambda: False, BREATH_OPERATIONS)
    reach(Site.SHRINK, CommitMoment.BEGUN)
    try:
        connection.execute("VACUUM").fetchall()
    except apsw.FullError:
        return False
    reach(Site.SHRINK, CommitMoment.WRITTEN)
    return True


def call_in_write_turn(path: str, work: Callable[[], T], seconds: float = LOCK_SECONDS_MAX) -> T:
    """Call `work` in the turn of a writer, while other writers queue."""
    turn = Turnstile(path + ".lock")
    try:
        if not turn.enter(seconds):
            raise StoreBusy
        try:
            return call_outside_fork(work)
        finally:
            turn.leave()
    finally:
        turn.close()
