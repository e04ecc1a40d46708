"""Making a SQLite file smaller, beside others who use it.

Empty pages are used again by what is written next. To give them back, the file is written anew: readers go on, but
nobody else can write meanwhile. So that is done where it takes a moment and is worth it, or when somebody asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import apsw

from ..errors import StoreBusy
from ..failpoints import Moment, Site, reach
from ..limits import LOCK_SECONDS_MAX, VACUUM_BYTES_MAX, VACUUM_SHARE_MIN
from .forking import disconnect, within
from .sqlite_file import connect, patiently, translate
from .turnstile import Turnstile

if TYPE_CHECKING:
    from .base import Store

LOG_MILLISECONDS = 1000
"""How long others may have to wait while the log is folded into the file; if readers need it longer, it stays."""

FILE_PIECE_BYTES = 1 << 22

BREATH_OPERATIONS = 100_000
"""Of SQLite's machine: after so many of them Python may have a word, and Ctrl-C is heard."""


def shrink(store: Store, path: str, durability: str, *, whole: bool) -> str:
    """Give empty pages back to the file system, and make the log empty. Returns why some were not given back."""
    size, empty = store.read("store_bytes")[0]
    left = size - empty
    worth_it = empty >= size * VACUUM_SHARE_MIN
    anew = bool(empty) and (whole or (worth_it and left <= VACUUM_BYTES_MAX))
    with translate(path):
        connection = within(lambda: patiently(lambda: connect(path, durability, None)))
        try:
            full = not _in_turn(path, lambda: _give_back(connection, anew))
        finally:
            disconnect(connection)
    told = f"{empty / 1e6:,.1f} MB of the file are empty, and are used again; "
    if full:
        return f"{told}there is no room to write the other {left / 1e6:,.1f} MB anew"
    if empty and worth_it and not anew:
        return (
            f"{told}`perdure gc --vacuum` gives them back, and writes the other {left / 1e6:,.1f} MB anew, while "
            f"nobody else can write"
        )
    return ""


def scrub(path: str, durability: str, texts: Sequence[bytes]) -> str:
    """Leave nothing of what was erased: not in the log, nor in the gaps of pages that SQLite has moved rows out of.

    Returns what could not be done. `texts` are looked for in the bytes of the file; it is written anew if one is there.
    """
    with translate(path):
        connection = within(lambda: patiently(lambda: connect(path, durability, None)))
        try:
            if not _in_turn(path, lambda: _log_emptied(connection)):
                return "somebody reads the store, so that its log is kept; forget it again, or run `perdure gc` later"
            if not is_in_file(path, texts) or os.path.getsize(path) > VACUUM_BYTES_MAX:
                return ""
            _in_turn(path, lambda: _give_back(connection, True))
        finally:
            disconnect(connection)
    return ""


def _log_emptied(connection: apsw.Connection) -> bool:
    connection.set_busy_timeout(LOG_MILLISECONDS)
    [(busy, _, _)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return not busy


def is_in_file(path: str, texts: Sequence[bytes]) -> bool:
    """Whether one of some texts stands in the bytes of a file."""
    longest, before = max(map(len, texts), default=0), b""
    with open(path, "rb") as file:
        while longest and (piece := file.read(FILE_PIECE_BYTES)):
            window = before + piece
            if any(text in window for text in texts if text):
                return True
            before = window[-longest:]
    return False


def _give_back(connection: apsw.Connection, anew: bool) -> bool:
    """False when there is no room for it."""
    if anew and not _write_anew(connection):
        return False
    connection.set_busy_timeout(LOG_MILLISECONDS)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    if anew:
        reach(Site.SHRINK, Moment.AFTER)
    return True


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


def _in_turn(path: str, work: Callable[[], bool]) -> bool:
    """In the turn of a writer: then none has to be waited for, and those who come stand in the queue."""
    turn = Turnstile(path + ".lock")
    try:
        if not turn.enter(LOCK_SECONDS_MAX):
            raise StoreBusy
        try:
            return within(work)
        finally:
            turn.leave()
    finally:
        turn.close()
