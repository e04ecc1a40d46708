"""Quotas of keys: requests and bytes per second, and open streams. Each server process counts its own."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

import msgspec

from perdure.errors import QuotaExceeded
from perdure.server.access import Principal
from perdure.server.settings import ServerSettings

BUCKETS_KEPT = 10_000
BYTE_BURST_SECONDS = 4.0
ATTEMPT_BURST = 10.0
_ATTEMPTS = "attempts to sign in"


class _Bucket(msgspec.Struct):
    """Fills at a rate up to its size; each request takes something out."""

    level: float
    at: float

    def take(self, amount: float, rate: float, size: float, now: float) -> float:
        """Take an amount and return 0, or return the seconds until it is there."""
        self.level = min(size, self.level + (now - self.at) * rate)
        self.at = now
        if self.level < min(amount, size):
            return (min(amount, size) - self.level) / rate
        self.level -= amount  # below zero after one large amount: the next one waits
        return 0.0


class Quotas:
    """Counts what each key uses."""

    def __init__(self, settings: ServerSettings, clock: Callable[[], float] = monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._buckets: OrderedDict[tuple[str, str], _Bucket] = OrderedDict()
        self.streams: Counter[str] = Counter()
        """Open streams by key."""

    def count_request(self, principal: Principal) -> None:
        """Count a request, or raise `QuotaExceeded`."""
        rate = principal.requests_per_second or self._settings.requests_per_second
        self._take(principal, "requests", 1.0, rate, max(1.0, rate))

    def count_attempt(self, visitor: Principal, rate: float) -> None:
        """Count an attempt to sign in, or raise `QuotaExceeded`. A few may come at once."""
        self._take(visitor, _ATTEMPTS, 1.0, rate, ATTEMPT_BURST)

    def forgive_attempt(self, visitor: Principal) -> None:
        """Take back what an attempt has counted: its key was right."""
        self._buckets[visitor.key_id, _ATTEMPTS].level += 1.0

    def count_bytes(self, principal: Principal, count: int) -> None:
        """Count bytes of a body, or raise `QuotaExceeded`."""
        rate = self._settings.bytes_per_second
        self._take(principal, "bytes", count, rate, rate * BYTE_BURST_SECONDS)

    @contextmanager
    def open_stream(self, principal: Principal) -> Iterator[None]:
        """Count an open stream, or raise `QuotaExceeded`."""
        if self.streams[principal.key_id] >= self._settings.streams_max:
            raise QuotaExceeded(
                f"the key has {self._settings.streams_max} open streams", hint="close one, or use another key"
            )
        self.streams[principal.key_id] += 1
        try:
            yield
        finally:
            self.streams[principal.key_id] -= 1
            if not self.streams[principal.key_id]:
                del self.streams[principal.key_id]

    def _take(self, principal: Principal, what: str, amount: float, rate: float, size: float) -> None:
        now, which = self._clock(), (principal.key_id, what)
        bucket = self._buckets.setdefault(which, _Bucket(size, now))
        self._buckets.move_to_end(which)
        if len(self._buckets) > BUCKETS_KEPT:
            self._buckets.popitem(last=False)
        if wait := bucket.take(amount, rate, size, now):
            error = QuotaExceeded(f"the key may send {rate:g} {what} a second", hint="wait as Retry-After says")
            error.retry_after = wait
            raise error
