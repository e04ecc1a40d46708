"""Waiting for something that another process does."""

from __future__ import annotations

import time
from collections.abc import Callable

WAIT_SECONDS_MAX = 100.0
"""For a machine that is very busy: nothing but a failing test waits that long."""


def wait_for(ready: Callable[[], object], what: str) -> None:
    """Poll; a test that waits for ever says for what."""
    until = time.monotonic() + WAIT_SECONDS_MAX
    while not ready():
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.002)
