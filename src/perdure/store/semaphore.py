"""A fair semaphore: threads wait for a permit, callbacks are called when they get one."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

WakeCallback = Callable[[], object]


class Gate:
    """Hands out permits in order of request; each must be returned with `leave`."""

    def __init__(self, permits: int) -> None:
        self._free = permits
        self._waiting: deque[WakeCallback] = deque()
        self._lock = threading.Lock()

    def try_enter(self) -> bool:
        """Take a permit if one is free."""
        with self._lock:
            self._free -= (free := self._free > 0)
        return free

    def enter(self, until: float) -> bool:
        """Wait in this thread for a permit; False on timeout."""
        bell = threading.Lock()
        bell.acquire()
        ring = bell.release
        if self.ask(ring):
            return True
        try:
            bell.acquire(timeout=max(0.0, until - time.monotonic()))
        except BaseException:
            if not self._give_up(ring):
                self.leave()
            raise
        return not self._give_up(ring)

    def ask(self, wake: WakeCallback) -> bool:
        """Return True with a permit; otherwise call `wake` later, in any thread, when there is one."""
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return True
            self._waiting.append(wake)
            return False

    def leave(self) -> None:
        """Pass the permit on, or put it back."""
        with self._lock:
            if not self._waiting:
                self._free += 1
                return
            wake = self._waiting.popleft()
        wake()

    def _give_up(self, wake: WakeCallback) -> bool:
        """Cancel a request; False if it already has its permit."""
        with self._lock:
            if wake not in self._waiting:
                return False
            self._waiting.remove(wake)
            return True
