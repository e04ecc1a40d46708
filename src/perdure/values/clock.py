"""Time, keys and randomness as one parameter, so that tests control them."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Everything in the environment that two executions of the same code would see differently."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970, for people. Never used to decide who may write."""
        ...

    def boot_ms(self) -> int:
        """Return milliseconds since boot, unaffected by suspend and clock changes."""
        ...

    def salt(self) -> bytes:
        """Return 16 random bytes that salt a payload's hash, so that it reveals nothing about the payload."""
        ...

    def key(self) -> str:
        """Return a new idempotency key."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""
        ...


class SystemClock:
    """The real clock."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def boot_ms(self) -> int:
        # CLOCK_BOOTTIME includes suspended time: a laptop that slept past its lease has lost it.
        return time.clock_gettime_ns(_BOOT_CLOCK) // 1_000_000

    def salt(self) -> bytes:
        return os.urandom(16)

    def key(self) -> str:
        return os.urandom(16).hex()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def moment(wall_ms: int) -> datetime:
    """Convert a stored time for users."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC)


def moment_text(wall_ms: int) -> str:
    """Format a stored time for messages."""
    return moment(wall_ms).isoformat(sep=" ", timespec="seconds")


_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
SYSTEM_CLOCK = SystemClock()
