"""SQLite and os.fork(): a fork waits until no thread is inside SQLite, and its child starts with a clean one.

A child inherits SQLite's memory as it is. A mutex that another thread of the parent held stays locked for ever: the
child would hang when it opens a file. And SQLite's list of open files says that the process holds locks on them, which
only the parent does: the child would take none of its own, and the parent, closing as the last one that it knows of,
would remove the log that the child goes on writing to.

So every thread that goes in says so, and a thread that forks keeps new ones out and waits for the rest. In the child
nothing is at work then, and the parent's connections can be closed, which changes no file. If somebody did not come
out in time, or the thread that forks is in the middle of a commit itself, the connections stay as they are, and the
child may not open a file.

No lock is taken on the way in. A thread adds itself first and then looks whether somebody forks; who forks adds itself
first and then looks who is inside: one of the two sees the other.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import TypeVar, TypeVarTuple

import apsw

from ..errors import StoreForked
from ..limits import FORK_SECONDS_MAX

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

POLL_SECONDS = 0.0005
_READ_WRITE_CREATE = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE

_inside: set[int] = set()
"""Threads that are in SQLite, or in the middle of a transaction."""
_forkers: set[int] = set()
"""Threads that are about to fork, or are at it."""
_quiet: dict[int, bool] = {}
"""By thread that forks: whether nobody was inside."""
_live: set[apsw.Connection] = set()
"""Every connection of this process that is open. Kept here, the collector closes none of them at a time of its own."""
_left: list[apsw.Connection] = []
"""Of stores that were collected during a fork: to be closed after it."""
_torn = False
"""Whether this process was forked while somebody was inside."""


def within(work: Callable[[*Ts], T], *args: *Ts) -> T:
    """Do something inside SQLite, but not while a thread forks."""
    me = get_ident()
    nested = me in _inside
    try:
        _inside.add(me)
        if _forkers and not nested:
            _wait_outside(me)
        return work(*args)
    finally:
        if not nested:
            _inside.discard(me)


@contextmanager
def inside() -> Iterator[None]:
    """The same for what takes longer than one call; it must end in the thread that it began in."""
    me = get_ident()
    nested = me in _inside
    try:
        _inside.add(me)
        if _forkers and not nested:
            _wait_outside(me)
        yield
    finally:
        if not nested:
            _inside.discard(me)


def connected(path: str, vfs: str | None = None, flags: int = _READ_WRITE_CREATE) -> apsw.Connection:
    """A connection that a fork knows of; give it to `disconnect`. Called from inside."""
    if _torn:
        raise StoreForked(
            "this process was forked in the middle of a commit, so that it cannot use a file",
            hint='fork outside of commits, or start processes with the method "spawn"',
        )
    connection = apsw.Connection(path, flags=flags, vfs=vfs)
    _live.add(connection)
    return connection


def open_elsewhere(path: str, ours: Iterable[apsw.Connection]) -> bool:
    """Whether this process has other connections to a file as well."""
    mine = set(ours)
    return any(connection.filename == path for connection in _live.copy() if connection not in mine)


def disconnect(*connections: apsw.Connection) -> None:
    """Close them, unless a fork has done so already."""
    within(_close, connections)


def disconnect_collected(connections: list[apsw.Connection]) -> None:
    """The same for those of a store that nobody has closed.

    The collector may call at any moment in any thread: waiting for a fork here could be waiting for oneself.
    """
    if _forkers:
        _left.extend(connections)
    else:
        disconnect(*connections)


def _close(connections: Iterable[apsw.Connection]) -> None:
    for connection in connections:
        if connection in _live:
            connection.close()
            _live.discard(connection)


def _wait_outside(me: int) -> None:
    # Not for ever: a fork that was interrupted half way would otherwise stop everything.
    deadline = time.monotonic() + 2 * FORK_SECONDS_MAX
    while _forkers and me not in _forkers and time.monotonic() < deadline:
        _inside.discard(me)
        while _forkers and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        _inside.add(me)


def _before_fork() -> None:
    me = get_ident()
    _forkers.add(me)
    deadline = time.monotonic() + FORK_SECONDS_MAX
    while (others := _inside - {me}) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    _quiet[me] = not others and me not in _inside


def _after_fork_in_parent() -> None:
    me = get_ident()
    _quiet.pop(me, None)
    _forkers.discard(me)
    if _left:
        left = _left.copy()
        _left.clear()
        disconnect_collected(left)


def _after_fork_in_child() -> None:
    global _torn
    quiet = _quiet.get(get_ident(), False)
    for state in (_forkers, _inside, _quiet, _left):
        state.clear()
    for connection in _live:
        if not quiet or not _closed_quietly(connection):
            _torn = True
            keep(connection)
    _live.clear()


def keep(inherited: apsw.Connection | apsw.Cursor) -> None:
    """Never collect this: SQLite must not touch the file of the parent through it again."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))


def _closed_quietly(connection: apsw.Connection) -> bool:
    """Close a connection of the parent's, without a change to its files."""
    if connection.in_transaction:
        return False  # left so by an interrupted commit: undoing it is the parent's
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.close()
    except apsw.Error:
        return False
    return True


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
