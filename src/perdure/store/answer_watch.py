"""Tells a waiting run whether an answer may have come, so that it need not ask the store often.

A listener hears of answers in a thread of its own: by LISTEN from PostgreSQL, by a long poll from a server. What it
hears is only a hint: waiters also poll now and then.
"""

from __future__ import annotations

import time
from typing import Protocol

from perdure.values.limits import LISTEN_POLL_SECONDS, WAIT_POLL_SECONDS, WAIT_POLL_SECONDS_MAX

LISTEN_AFTER_SECONDS = 0.1
"""Short waits do not open a connection."""


class AnswerListener(Protocol):
    """Hears of answers on behalf of its watches."""

    def join(self, watch: AnswerWatch) -> None:
        """Notify this watch too."""

    def hears(self, watch: AnswerWatch) -> bool:
        """Whether an answer to the stream of this watch would be heard now."""


class AnswerWatch:
    """Tells whether a stream may have received an answer since the last call."""

    __slots__ = ("__weakref__", "_listener", "_next", "_pause", "rung", "stream")

    def __init__(self, listener: AnswerListener, stream: int) -> None:
        self._listener = listener
        self.stream = stream
        self.rung = True
        self._next = 0.0
        self._pause = WAIT_POLL_SECONDS

    def __call__(self) -> bool:
        now = time.monotonic()
        if not self.rung and now < self._next:
            return False
        self.rung = False
        joined = self._pause > LISTEN_AFTER_SECONDS
        if joined:
            self._listener.join(self)
        self._pause = min(self._pause * 1.5, WAIT_POLL_SECONDS_MAX)
        # A listener that runs for another watch does not notify this one before it has joined.
        self._next = now + (LISTEN_POLL_SECONDS if joined and self._listener.hears(self) else self._pause)
        return True
