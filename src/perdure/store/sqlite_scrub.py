"""Leaving nothing of what was erased: not in the log of a SQLite file, nor in the gaps of its pages.

SQLite overwrites what it deletes, as it is told to. But what it moves from one page to another may stay where it was:
seldom, and often in a file of an older version. Only writing the file anew takes that away. So the bytes of the file
are looked through for what was erased. That comes after the commit, and whoever is to do it may be killed before: the
commit itself leaves a note that it is owed, and whoever comes next does it in his place. He does not know what was
erased, and writes the file anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import apsw
import msgspec

from ..errors import StoreBusy
from ..failpoints import Site
from ..limits import LOCK_SECONDS_MAX, VACUUM_BYTES_MAX
from ..process import Holder, proven_dead, this_process
from .base import Rows, Script, Statement, Unit
from .forking import connected, disconnect, within
from .sqlite_file import connect, patiently, translate
from .sqlite_mark import forget_marked
from .sqlite_shrink import IN_USE, give_back, in_turn
from .sqlite_shrink import shrink as made_smaller

if TYPE_CHECKING:
    from .base import Store

OWED = "scrub "
"""How the keys of such notes begin, among the facts of the store."""

LATER, ASKED = b"later", b"asked"
"""Instead of who is at it: nobody is any more. Who comes next may try, or only who is asked to write the file anew."""

TOO_LARGE = (
    "what was erased may still stand in the free space of the file, which is too large to be written anew unasked: "
    "`perdure gc --vacuum` does it, while nobody else can write"
)
WAITED = "another process keeps the write lock, so that the log is kept; run `perdure gc` later"
FILE_PIECE_BYTES = 1 << 22
_numbers = count()


def owing(token: str) -> Statement:
    """The note of a commit that this process is going to scrub after."""
    return Statement("put_meta", (OWED + token, msgspec.msgpack.encode(this_process())))


def left_behind(rows: Rows, *, asked: bool = False) -> list[str]:
    """Of all notes, those of who has died or given up; also those that wait until somebody is `asked`, or not."""
    return [key for key, who in rows if who == LATER or (who == ASKED and asked) or _is_gone(who, ours=asked)]


def _is_gone(who: bytes, *, ours: bool) -> bool:
    """Whether somebody is not at it any more: he is dead, or he is this process, which has come to something else."""
    if who == ASKED:
        return False
    try:
        holder = msgspec.msgpack.decode(who, type=Holder)
    except msgspec.MsgspecError:
        return True  # no process of ours has written that
    return proven_dead(holder) or (ours and holder == this_process())


def scrub(
    store: Store, path: str, durability: str, texts: Sequence[bytes], token: str, seconds: float = LOCK_SECONDS_MAX
) -> str:
    """Do what was promised with a token, and what others have left behind. Returns what could not be done.

    `texts` are looked for in the bytes of the file; it is written anew if one is there.
    """
    left = left_behind(store.read("facts_like", (OWED,)))
    with translate(path):
        connection = within(lambda: patiently(lambda: connect(path, durability, None)))
        try:
            note = _scrubbed(connection, path, texts, seconds, anew=bool(left))
        except StoreBusy:
            return WAITED  # the note stays as it is
        finally:
            disconnect(connection)
    owed = [*left, *([OWED + token] if token else [])]
    if owed:
        store.submit(Settle(owed, None if not note else LATER if note == IN_USE else ASKED))
    return note


def _scrubbed(connection: apsw.Connection, path: str, texts: Sequence[bytes], seconds: float, *, anew: bool) -> str:
    """Empty the log, which brings the file up to date; then look at that."""
    note = in_turn(path, partial(_empty_log, connection, texts, anew), seconds)
    if note or not (anew or is_in_file(path, texts)):
        return note
    if os.path.getsize(path) > VACUUM_BYTES_MAX:
        return TOO_LARGE
    return in_turn(path, partial(give_back, connection, True), seconds)


def _empty_log(connection: apsw.Connection, texts: Sequence[bytes], anew: bool) -> str:
    forget_marked(connection.filename, texts, everything=anew)
    return give_back(connection, False)


def shrink(store: Store, path: str, durability: str, *, whole: bool) -> str:
    """Make the file smaller; and if somebody has left something behind, write it anew as far as that is quick."""
    left = left_behind(store.read("facts_like", (OWED,)), asked=True)
    note, anew = made_smaller(store, path, durability, whole=whole, owed=bool(left))
    if left and anew:
        store.submit(Settle(left, None))
    return TOO_LARGE if left and not anew and not note else note


class Settle(Unit[None]):
    """What was owed is done; or it is not, and is left to somebody else. Done twice, it is the same as done once."""

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
    """Whether one of some texts stands in the bytes of a file."""
    wanted = [text for text in texts if text]
    longest, before = max(map(len, wanted), default=0), b""
    for piece in _pieces(path) if wanted else ():
        window = before + piece
        if any(text in window for text in wanted):
            return True
        before = window[-longest:]
    return False


def _pieces(path: str) -> Iterator[bytes]:
    """Read a file that this process has open: closing a descriptor of it would drop all locks of the process on it, and
    another process could take the log away under our hands. SQLite knows how to close one, and so opens it for us.
    """
    system = _Bytes(f"perdure-bytes-{next(_numbers)}")
    connection = within(lambda: connected(path, system.name, apsw.SQLITE_OPEN_READWRITE))
    try:
        file = system.opened
        assert file is not None, "a connection opens its file at once"
        for at in range(0, within(file.xFileSize), FILE_PIECE_BYTES):
            yield within(file.xRead, FILE_PIECE_BYTES, at)
    finally:
        disconnect(connection)
        system.unregister()


class _Bytes(apsw.VFS):
    """The file system as it is, which tells what it has opened."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.opened: apsw.VFSFile | None = None
        super().__init__(name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        self.opened = apsw.VFSFile("", name, flags)
        return self.opened
