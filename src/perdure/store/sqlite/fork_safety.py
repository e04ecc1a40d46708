"""SQLite and os.fork(): a fork waits until no thread is inside SQLite, and the child starts with a clean one.

A child inherits SQLite's memory. A mutex held by another thread of the parent would stay locked forever, and the child
would hang when it opens a file. SQLite's list of open files would claim locks that only the parent holds: the child
would take none of its own, and the parent, closing as the last known user, would delete the log that the child writes.

So every thread registers before it enters SQLite, and a forking thread keeps new ones out and waits for the others.
Then the child can close the parent's connections, which changes no file. If a thread does not leave in time, or the
forking thread is inside a commit, the connections stay, and the child may not open a file.

Entering takes no lock. A thread registers and then checks for forks; a forking thread registers and then checks for
threads inside. At least one of the two sees the other.
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

from perdure.errors import StoreForked
from perdure.values.limits import FORK_SECONDS_MAX
from perdure.values.locks import call_after_fork

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

POLL_SECONDS = 0.0005
_READ_WRITE_CREATE = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE

_inside: set[int] = set()
"""Threads inside SQLite or inside a transaction."""
_forkers: set[int] = set()
"""Threads that are forking."""
_quiet: dict[int, bool] = {}
"""By forking thread: whether no thread was inside."""
_live: set[apsw.Connection] = set()
"""All open connections; the reference keeps the garbage collector from closing them."""
_left: list[tuple[Iterable[apsw.Connection], Callable[[], None]]] = []
"""Connections of stores that were collected during a fork, and what releases their files: closed after it."""
_torn = False
"""Whether this process was forked while a thread was inside."""


def call_outside_fork(work: Callable[[*Ts], T], *args: *Ts) -> T:
    """Call `work` inside SQLite, but not during a fork."""
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
def stay_inside() -> Iterator[None]:
    """Stay inside SQLite for a block, not during a fork. The block must end in the thread that began it."""
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


def open_connection(path: str, vfs: str | None = None, flags: int = _READ_WRITE_CREATE) -> apsw.Connection:
    """Open a connection that forks take care of; close it with `disconnect`. Call from inside."""
    if _torn:
        raise StoreForked(
            "this process was forked during a commit and cannot use the store file",
            hint='fork outside of commits, or start processes with the method "spawn"',
        )
    connection = apsw.Connection(path, flags=flags, vfs=vfs)
    _live.add(connection)
    return connection


def is_open_elsewhere(path: str, ours: Iterable[apsw.Connection]) -> bool:
    """Whether this process has connections to a file other than `ours`."""
    mine = set(ours)
    return any(connection.filename == path for connection in _live.copy() if connection not in mine)


def disconnect(*connections: apsw.Connection) -> None:
    """Close connections, unless a fork has done so."""
    call_outside_fork(_close, connections)


def disconnect_collected(connections: Iterable[apsw.Connection], release: Callable[[], None]) -> None:
    """Close the connections of a garbage-collected store, then release its files; during a fork, after it.

    The collector may run in any thread at any moment, so waiting for a fork here could deadlock: the thread may hold a
    lock that another hook of the fork waits for.
    """
    me = get_ident()
    nested = me in _inside
    try:
        _inside.add(me)
        if _forkers and (me in _forkers or not nested):
            _left.append((connections, release))
            _close_left()  # if the fork ended just now
        else:
            _close(connections)
            release()
    finally:
        if not nested:
            _inside.discard(me)


def _close_left() -> None:
    while _left and not _forkers:
        try:
            left = _left.pop()
        except IndexError:  # another thread took the last one
            return
        disconnect_collected(*left)


def _close(connections: Iterable[apsw.Connection]) -> None:
    for connection in connections:
        if connection in _live:
            connection.close()
            _live.discard(connection)


def _wait_outside(me: int) -> None:
    # With a deadline: an interrupted fork must not block everything.
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
    _close_left()


def _after_fork_in_child() -> None:
    global _torn
    quiet = _quiet.get(get_ident(), False)
    for state in (_forkers, _inside, _quiet, _left):
        state.clear()
    for connection in _live:
        if not quiet or not _close_quietly(connection):
            _torn = True
            keep_forever(connection)
    _live.clear()


def keep_forever(inherited: apsw.Connection | apsw.Cursor) -> None:
    """Keep an object alive forever: closing it would let SQLite touch the parent's file."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))


def _close_quietly(connection: apsw.Connection) -> bool:
    """Close a connection of the parent without changing its files."""
    if connection.in_transaction:
        return False  # an interrupted commit, which the parent rolls back
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.close()
    except apsw.Error:
        return False
    return True


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent)
call_after_fork(_after_fork_in_child)
