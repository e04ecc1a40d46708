"""Removes erased text from the log of a SQLite file and from the free space of its pages.

SQLite overwrites what it deletes (`secure_delete`), but data that it moves between pages may leave a copy. Only
rewriting the file (VACUUM) removes that, so the scrub searches the bytes of the file for the erased text. The scrub
follows the commit, and the process may be killed in between. So the commit leaves a note, and the next process does the
scrub. It does not know the erased text, and rewrites the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import apsw
import msgspec

from perdure.errors import StoreBusy
from perdure.platform.failpoints import Site
from perdure.platform.process import Holder, identify_this_process, proven_dead
from perdure.store.base import Rows, Script, Statement, UnitOfWork
from perdure.store.sqlite.file import connect, retry_busy, translate
from perdure.store.sqlite.fork_safety import call_outside_fork, disconnect, open_connection
from perdure.store.sqlite.mark import forget_marked
from perdure.store.sqlite.vacuum import IN_USE, call_in_write_turn, truncate_log
from perdure.store.sqlite.vacuum import shrink as made_smaller
from perdure.values.limits import LOCK_SECONDS_MAX, VACUUM_BYTES_MAX

if TYPE_CHECKING:
    from perdure.store.base import Store

OWED = "scrub "
"""The prefix of the meta keys of these notes."""

LATER, ASKED = b"later", b"asked"
"""Values of a note without a process: the next process scrubs (LATER), or only an explicit vacuum does (ASKED)."""

TOO_LARGE = (
    "erased text may remain in the free space of the file, which is too large to rewrite without asking: "
    "`perdure gc --vacuum` rewrites it, while writers wait"
)
WAITED = "another process holds the write lock, so the log was kept; run `perdure gc` later"
FILE_PIECE_BYTES = 1 << 22
SEARCHED_MAX = 256
"""Rewriting a file is quicker than searching it for more texts than this."""
_numbers = count()


def scrub_note(token: str) -> Statement:
    """The note that this process will scrub after the commit."""
    return Statement("put_meta", (OWED + token, msgspec.msgpack.encode(identify_this_process())))


def find_left_behind(rows: Rows, *, asked: bool = False) -> list[str]:
    """Return the notes of processes that died or gave up; with `asked`, also those that wait for an explicit vacuum."""
    return [key for key, who in rows if who == LATER or (who == ASKED and asked) or _is_gone(who, ours=asked)]


def _is_gone(who: bytes, *, ours: bool) -> bool:
    """Whether the process of a note no longer scrubs: it is dead, or with `ours` it is this one."""
    if who == ASKED:
        return False
    try:
        holder = msgspec.msgpack.decode(who, type=Holder)
    except msgspec.MsgspecError:
        return True  # not written by Perdure
    return proven_dead(holder) or (ours and holder == identify_this_process())


def scrub(
    store: Store, path: str, durability: str, texts: Sequence[bytes], token: str, seconds: float = LOCK_SECONDS_MAX
) -> str:
    """Do the scrub of a token, and those that other processes left behind. Returns what could not be done.

    The file is rewritten if its bytes contain one of `texts`.
    """
    left = find_left_behind(store.read("meta_with_prefix", (OWED,)))
    with translate(path):
        connection = call_outside_fork(lambda: retry_busy(lambda: connect(path, durability, None)))
        try:
            note = _scrub_file(connection, path, texts, seconds, anew=bool(left))
        except StoreBusy:
            return WAITED  # the note stays
        finally:
            disconnect(connection)
    owed = [*left, *([OWED + token] if token else [])]
    if owed:
        store.submit(SettleScrub(owed, None if not note else LATER if note == IN_USE else ASKED))
    return note


def _scrub_file(connection: apsw.Connection, path: str, texts: Sequence[bytes], seconds: float, *, anew: bool) -> str:
    """Checkpoint and empty the log, then search the file and rewrite it if needed."""
    note = call_in_write_turn(path, partial(_empty_log, connection, texts, anew), seconds)
    if note or not (anew or len(texts) > SEARCHED_MAX or is_in_file(path, texts)):
        return note
    if os.path.getsize(path) > VACUUM_BYTES_MAX:
        return TOO_LARGE
    return call_in_write_turn(path, partial(truncate_log, connection, True), seconds)


def _empty_log(connection: apsw.Connection, texts: Sequence[bytes], anew: bool) -> str:
    forget_marked(connection.filename, texts, everything=anew)
    return truncate_log(connection, False)


def shrink(store: Store, path: str, durability: str, *, whole: bool) -> str:
    """Shrink the file; if scrubs were left behind, rewrite it if that is quick."""
    left = find_left_behind(store.read("meta_with_prefix", (OWED,)), asked=True)
    note, anew = made_smaller(store, path, durability, whole=whole, owed=bool(left))
    if left and anew:
        store.submit(SettleScrub(left, None))
    return TOO_LARGE if left and not anew and not note else note


class SettleScrub(UnitOfWork[None]):
    """Removes the notes of finished scrubs, or replaces them by `left`. Idempotent."""

    site = Site.SHRINK

    def __init__(self, keys: Sequence[str], left: bytes | None) -> None:
        self._keys = keys
        self._left = left

    def script(self) -> Script[None]:
        yield [Statement("drop_meta", (key,)) for key in self._keys]
        if self._left is not None:
            yield [Statement("put_meta", (key, self._left)) for key in self._keys]


# -- the bytes of the file --------------------------------------------------------------------------------------------


def is_in_file(path: str, texts: Sequence[bytes]) -> bool:
    """Whether the bytes of a file contain one of the texts."""
    wanted = [text for text in texts if text]
    longest, before = max(map(len, wanted), default=0), b""
    for piece in _pieces(path) if wanted else ():
        window = before + piece
        if any(text in window for text in wanted):
            return True
        before = window[-longest:]
    return False


def _pieces(path: str) -> Iterator[bytes]:
    """Read a file that this process has open.

    Closing a descriptor of our own would drop all locks of the process, and another process could delete the log.
    SQLite defers such a close, so it opens the file.
    """
    system = _TrackingVFS(f"perdure-bytes-{next(_numbers)}")
    connection = call_outside_fork(lambda: open_connection(path, system.name, apsw.SQLITE_OPEN_READWRITE))
    try:
        file = system.opened
        assert file is not None, "a connection opens its file at once"
        for at in range(0, call_outside_fork(file.xFileSize), FILE_PIECE_BYTES):
            yield call_outside_fork(file.xRead, FILE_PIECE_BYTES, at)
    finally:
        disconnect(connection)
        system.unregister()


class _TrackingVFS(apsw.VFS):
    """The default VFS, which remembers the file that it opened."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.opened: apsw.VFSFile | None = None
        super().__init__(name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        self.opened = apsw.VFSFile("", name, flags)
        return self.opened
