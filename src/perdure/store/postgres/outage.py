"""Tracks an unavailable server: it is logged once, and repeated calls of a run wait less."""

from __future__ import annotations

import logging
import threading
import time

logger = logging.getLogger("perdure")

RECENT_SECONDS = 5.0
"""How long after a run's call has given up its next calls, usually the end of the run, wait less."""

SHORT_SECONDS = 1.0


class ServerAbsence:
    """The outage state that all calls of a store share."""

    def __init__(self, shown: str) -> None:
        self._shown = shown
        self._lock = threading.Lock()
        self._since: float | None = None
        self._gave_up: dict[int, float] = {}
        """When a call gave up, by lane; other lanes keep their full patience."""

    def patience(self, seconds: float, lane: int) -> float:
        """Return how long a new call should wait, at most `seconds`."""
        gave_up = self._gave_up.get(lane)
        recent = gave_up is not None and time.monotonic() - gave_up < RECENT_SECONDS
        return min(seconds, SHORT_SECONDS) if recent else seconds

    def note_wait(self, why: Exception, seconds: float) -> None:
        """Note that a call begins to wait; log the first."""
        with self._lock:
            first, self._since = self._since is None, self._since or time.monotonic()
        if first:
            logger.warning("%s is unreachable: %s; retrying for %.0f s", self._shown, why, seconds)

    def note_give_up(self, lane: int) -> None:
        """Note that a call gave up or was cancelled. Lane 0 belongs to no run."""
        now = time.monotonic()
        with self._lock:
            recent = {one: when for one, when in self._gave_up.items() if now - when < RECENT_SECONDS}
            self._gave_up = {**recent, lane: now} if lane else recent

    def note_answer(self) -> None:
        """Note that the server has answered."""
        if self._since is None and not self._gave_up:
            return
        with self._lock:
            since, self._since, self._gave_up = self._since, None, {}
        if since is not None:
            logger.warning("%s is reachable again after %.1f s", self._shown, time.monotonic() - since)
