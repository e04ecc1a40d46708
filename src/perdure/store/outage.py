"""Waits for an unavailable server: the outage is logged once, and repeated calls of a run wait less."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from random import Random

from perdure.errors import PerdureError, StoreUnavailable
from perdure.platform import interrupts

logger = logging.getLogger("perdure")

RECENT_SECONDS = 5.0
"""How long after a run's call has given up its next calls, usually the end of the run, wait less."""

SHORT_SECONDS = 1.0

BACKOFF_SECONDS, BACKOFF_SECONDS_MAX = 0.02, 1.0

_CHANCE = Random()
"""Our own generator, so that a program that seeds Python's gets the numbers that it expects."""


class ConnectionCut(Exception):
    """The connection broke before the answer arrived."""


class ServerRefusal(Exception):
    """The server answered, and nothing was committed."""

    @property
    def gone(self) -> bool:
        """Whether the server, or this connection to it, is unusable."""
        raise NotImplementedError

    def translate(self, shown: str) -> PerdureError:
        """Return the Perdure error for a refusal that is not retried."""
        raise NotImplementedError


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


CancelCheck = Callable[[], bool]
"""Whether the caller no longer wants to wait for an unavailable server."""


class OutagePatience:
    """How long a call retries while the server is unavailable."""

    def __init__(
        self,
        seconds: float,
        absence: ServerAbsence | None = None,
        lane: int = 0,
        unwanted: CancelCheck = interrupts.is_pending,
    ) -> None:
        self._seconds = seconds if absence is None else absence.patience(seconds, lane)
        self._full = self._seconds == seconds
        self._absence = absence
        self._lane = lane
        self._unwanted = unwanted
        self.until = time.monotonic() + self._seconds
        self._pause = BACKOFF_SECONDS

    def pause(self, why: Exception, shown: str) -> None:
        """Back off before a retry; raise StoreUnavailable at the deadline."""
        now = time.monotonic()
        away = isinstance(why, ConnectionCut) or (isinstance(why, ServerRefusal) and why.gone)
        # One ended session does not mean an unavailable server: wait for a second failure.
        again = self._pause > BACKOFF_SECONDS
        unwanted = away and again and self._unwanted()
        if now >= self.until and isinstance(why, PerdureError):
            raise why
        if unwanted or now >= self.until:
            raise self._end(why, shown, away, unwanted) from why
        if self._absence is not None and away and again:
            self._absence.note_wait(why, self.until - now)
        time.sleep(min(self._pause, self.until - now) * _CHANCE.uniform(0.5, 1.0))
        self._pause = min(self._pause * 2, BACKOFF_SECONDS_MAX)

    def _end(self, why: Exception, shown: str, away: bool, unwanted: bool) -> PerdureError:
        if isinstance(why, ServerRefusal) and not away:
            return why.translate(shown)  # the server is available, but locked or overloaded
        if self._absence is not None and (unwanted or self._full):
            self._absence.note_give_up(self._lane)
        if unwanted:
            text = f"interrupted while {shown} was away: {why}"
        else:
            text = f"{shown} has been unreachable for {self._seconds:g} s: {why}"
        return StoreUnavailable(text, hint="no acknowledged commit is lost; restart when the server is reachable")
