"""Tells the starts of a program apart, so that a proxy that lives longer begins to replay at each of them.

Equal requests are different calls of a run, by their number. A program that was killed and started again must get the
first number again. A proxy with a command starts the program itself. Without one it examines who connects: once all
processes that have called are dead, the next caller is a new start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

from perdure.http_capture.recorder import Recorder
from perdure.platform.process import Holder, identify_process, proven_dead
from perdure.values import locks

LOOPBACK = "0100007F"
"""127.0.0.1, as /proc/net/tcp writes it on little-endian machines."""

SOCKET_FIELDS = "number local_address remote_address state queues timer retransmits uid timeout inode".split()
"""The first columns of /proc/net/tcp."""

CLOSE_SECONDS_MAX = 30.0
"""How long a proxy that is stopped waits for answers that are under way."""


class ProgramStarts:
    """Counts the calls of the current start, and reopens the run for the next one."""

    def __init__(self, recorder: Recorder, *, examine: bool) -> None:
        self._recorder, self._examine = recorder, examine
        self._changed = Condition(locks.rlock())
        self._calls = 0
        self._callers: set[Holder] = set()

    @contextmanager
    def call(self, port: int) -> Iterator[None]:
        """Hold the current start open for a call from this port of the same machine."""
        caller = find_caller(port) if self._examine else None
        with self._changed:
            if caller is not None and caller not in self._callers:
                if self._callers and all(map(proven_dead, self._callers)):
                    self._reopen()
                self._callers.add(caller)
            self._calls += 1
        try:
            yield
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()

    def begin(self) -> None:
        """Begin a new start of the program: recorded answers are read again from the first one."""
        with self._changed:
            self._reopen()

    def close(self, *, finish: bool) -> None:
        """Close the run after the calls that are under way: finished, or left for the next start of the proxy."""
        with self._changed:
            self._changed.wait_for(lambda: not self._calls, CLOSE_SECONDS_MAX)
            self._recorder.close(finish=finish)

    def _reopen(self) -> None:
        # A call of the dead program may be under way. It is paid, so its answer has to be recorded first.
        self._changed.wait_for(lambda: not self._calls)
        self._callers.clear()
        self._recorder.close(finish=False)
        self._recorder.open()


def find_caller(port: int) -> Holder | None:
    """Return the process that has a connection from this port of 127.0.0.1; None if it cannot be told."""
    inode = _find_inode(f"{LOOPBACK}:{port:04X}")
    if inode is None:
        return None
    wanted = f"socket:[{inode}]"
    newest_first = sorted((int(name) for name in os.listdir("/proc") if name.isdigit()), reverse=True)
    found = next((pid for pid in newest_first if _has_open(pid, wanted)), None)
    return None if found is None else identify_process(found)


def _find_inode(local: str) -> str | None:
    try:
        with open("/proc/net/tcp", encoding="ascii") as table:
            sockets = (dict(zip(SOCKET_FIELDS, line.split(), strict=False)) for line in table)
            return next((socket["inode"] for socket in sockets if socket.get("local_address") == local), None)
    except OSError:
        return None  # not Linux: the starts of a program are told apart by `perdure proxy -- command` only


def _has_open(pid: int, wanted: str) -> bool:
    try:
        with os.scandir(f"/proc/{pid}/fd") as opened:
            return any(_read_link(one.path) == wanted for one in opened)
    except OSError:
        return False  # it has ended, or belongs to another user


def _read_link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
