"""A bounded number of permits, given in the order of asking, to threads that wait and to those who leave word."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

Wake = Callable[[], object]


class Gate:
    """Whoever has got a permit must leave. The lock is held for counting only, never while anybody waits."""

    def __init__(self, permits: int) -> None:
        self._free = permits
        self._waiting: deque[Wake] = deque()
        self._lock = threading.Lock()

    def enter(self, until: float) -> bool:
        """Wait in this thread for a permit; False when it took too long."""
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

    def ask(self, wake: Wake) -> bool:
        """True when there is a permit now; otherwise `wake` is called as soon as there is one, in whichever thread."""
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

    def _give_up(self, wake: Wake) -> bool:
        """True when the permit had not come yet, and will not come any more."""
        with self._lock:
            if wake not in self._waiting:
                return False
            self._waiting.remove(wake)
            return True
