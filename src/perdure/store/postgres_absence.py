"""What a process knows about a server that is away: told once, and not waited for in full again and again."""

from __future__ import annotations

import logging
import threading
import time

logger = logging.getLogger("perdure")

RECENT_SECONDS = 5.0
"""For so long after a call of a run has given up, the next one of that run has little hope: mostly the end of it."""

SHORT_SECONDS = 1.0


class Absence:
    """Whether the server is away; for all calls of a store."""

    def __init__(self, shown: str) -> None:
        self._shown = shown
        self._lock = threading.Lock()
        self._since: float | None = None
        self._gave_up: dict[int, float] = {}
        """When, by lane. Others may have more hope: theirs was not cancelled, or began later."""

    def patience(self, seconds: float, lane: int) -> float:
        """How long a call that begins now should wait, if it may wait for so long."""
        gave_up = self._gave_up.get(lane)
        recent = gave_up is not None and time.monotonic() - gave_up < RECENT_SECONDS
        return min(seconds, SHORT_SECONDS) if recent else seconds

    def noticed(self, why: Exception, seconds: float) -> None:
        """A call begins to wait; the first one says so."""
        with self._lock:
            first, self._since = self._since is None, self._since or time.monotonic()
        if first:
            logger.warning("%s is away: %s; trying again for %.0f s", self._shown, why, seconds)

    def given_up(self, lane: int) -> None:
        """A call has waited for long enough, or was told to stop. Lane 0 is nobody's."""
        now = time.monotonic()
        with self._lock:
            recent = {one: when for one, when in self._gave_up.items() if now - when < RECENT_SECONDS}
            self._gave_up = {**recent, lane: now} if lane else recent

    def over(self) -> None:
        """The server has answered."""
        if self._since is None and not self._gave_up:
            return
        with self._lock:
            since, self._since, self._gave_up = self._since, None, {}
        if since is not None:
            logger.warning("%s is back after %.1f s", self._shown, time.monotonic() - since)
