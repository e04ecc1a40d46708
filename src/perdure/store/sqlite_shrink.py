"""Making a SQLite file smaller, beside others who use it.

Empty pages are used again by what is written next. To give them back, the file is written anew: readers go on, but
nobody else can write meanwhile. So that is done where it takes a moment and is worth it, or when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import apsw

from ..errors import StoreBusy
from ..failpoints import Moment, Site, reach
from ..limits import LOCK_SECONDS_MAX, VACUUM_BYTES_MAX, VACUUM_SHARE_MIN
from .forking import disconnect, within
from .sqlite_file import connect, patiently, translate
from .turnstile import Turnstile

if TYPE_CHECKING:
    from .base import Store

T = TypeVar("T")

LOG_MILLISECONDS = 1000
"""How long others may have to wait while the log is folded into the file; if readers need it longer, it stays."""

BREATH_OPERATIONS = 100_000
"""Of SQLite's machine: after so many of them Python may have a word, and Ctrl-C is heard."""

FULL = "there is no room to write the file anew"
IN_USE = "somebody reads the store, so that its log is kept; forget it again, or run `perdure gc` later"


def shrink(store: Store, path: str, durability: str, *, whole: bool, owed: bool) -> tuple[str, bool]:
    """Give empty pages back to the file system, and make the log empty. `owed`: somebody had to write the file anew.

    Returns why some were not given back, and whether the file is a new one.
    """
    size, empty = store.read("store_bytes")[0]
    left = size - empty
    worth_it = empty >= size * VACUUM_SHARE_MIN and empty > 0
    # Asked for, it is done also when no page is empty: in the gaps of pages there may be what was erased.
    anew = whole or ((worth_it or owed) and left <= VACUUM_BYTES_MAX)
    with translate(path):
        connection = within(lambda: patiently(lambda: connect(path, durability, None)))
        try:
            note = in_turn(path, partial(give_back, connection, anew))
        finally:
            disconnect(connection)
    told = f"{empty / 1e6:,.1f} MB of the file are empty, and are used again; "
    if note == FULL:
        return f"{told}there is no room to write the other {left / 1e6:,.1f} MB anew", False
    if worth_it and not anew:
        told += f"`perdure gc --vacuum` gives them back, and writes the other {left / 1e6:,.1f} MB anew, while "
        return f"{told}nobody else can write", False
    return "", anew and not note


def give_back(connection: apsw.Connection, anew: bool) -> str:
    """Empty the log into the file, which is written anew before that, or not. Returns why that was not possible."""
    if anew and not _write_anew(connection):
        return FULL
    connection.set_busy_timeout(LOG_MILLISECONDS)
    [(busy, _, _)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    if anew:
        reach(Site.SHRINK, Moment.AFTER)
    return IN_USE if busy else ""


def _write_anew(connection: apsw.Connection) -> bool:
    reach(Site.SHRINK, Moment.BEFORE)
    # What a file may have been made with: it costs every step a third of a page.
    connection.pragma("auto_vacuum", "none")
    connection.set_progress_handler(lambda: False, BREATH_OPERATIONS)
    reach(Site.SHRINK, Moment.BEGUN)
    try:
        connection.execute("VACUUM").fetchall()
    except apsw.FullError:
        return False
    reach(Site.SHRINK, Moment.WRITTEN)
    return True


def in_turn(path: str, work: Callable[[], T], seconds: float = LOCK_SECONDS_MAX) -> T:
    """In the turn of a writer: then none has to be waited for, and those who come stand in the queue."""
    turn = Turnstile(path + ".lock")
    try:
        if not turn.enter(seconds):
            raise StoreBusy
        try:
            return within(work)
        finally:
            turn.leave()
    finally:
        turn.close()
