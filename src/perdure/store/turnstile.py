"""A fair queue of processes before SQLite's write lock.

SQLite's own busy handler polls, and under load the unlucky one waits for seconds (5.2 s worst among 8 writers,
against 0.34 s with this). `flock` queues in the kernel, but has no deadline, so that a stopped holder would hang
everybody: a contended wait is done by a thread that can be left behind.
"""

from __future__ import annotations

import fcntl
import os
import threading


class Turnstile:
    """An exclusive lock on a file, passed on in the order of asking."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = self._open()
        self._left: set[int] = set()
        """Descriptors of threads that were left behind, still waiting."""

    def enter(self, seconds: float) -> bool:
        """Wait for the turn; False when it did not come in time."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return self._queue_up(seconds)
        return True

    def leave(self) -> None:
        """Let the next one in."""
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give the file back."""
        os.close(self._fd)

    def abandon(self) -> None:
        """In a forked child: copies of the parent's descriptors hold its turn, even when the parent is dead."""
        for fd in (self._fd, *self._left):
            os.close(fd)

    def _open(self) -> int:
        return os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)

    def _queue_up(self, seconds: float) -> bool:
        fd, turn, verdict = self._fd, threading.Event(), threading.Lock()
        given_up = False

        def wait() -> None:
            fcntl.flock(fd, fcntl.LOCK_EX)
            with verdict:
                turn.set()
                if given_up:
                    # Said, and not only by closing: a forked child may have a copy of the descriptor.
                    fcntl.flock(fd, fcntl.LOCK_UN)
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
                # The thread left behind owns the old descriptor: sharing it would make its turn look like ours.
                self._left.add(fd)
                self._fd = self._open()
            elif interrupted:
                self.leave()  # at the very moment of its turn
        return not given_up
