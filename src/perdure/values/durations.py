"""Durations as users write them: seconds, a timedelta, or text such as "90s", "5m", "2h" or "7d"."""

from __future__ import annotations

import re
from datetime import timedelta

from perdure.errors import WrongType, WrongValue
from perdure.values.limits import DURATION_SECONDS_MAX

Duration = float | timedelta | str

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")


def seconds_of(duration: Duration, what: str) -> float:
    """Convert a duration to seconds, more than 0.

    >>> seconds_of("2h", "ttl")
    7200.0
    """
    if isinstance(duration, timedelta):
        seconds = duration.total_seconds()
    elif isinstance(duration, str):
        found = _TEXT.fullmatch(duration.strip())
        if found is None:
            raise WrongValue(f'{what}={duration!r}: use seconds, a timedelta, or text such as "90s", "5m", "2h", "7d"')
        seconds = float(found[1]) * _SECONDS[found[2]]
    elif type(duration) in (int, float):
        seconds = min(duration, 2 * DURATION_SECONDS_MAX)  # a huge int cannot be converted to float
    else:
        raise WrongType(f"{what}={duration!r}: use seconds, a timedelta or text")
    if not 0 < seconds <= DURATION_SECONDS_MAX:
        raise WrongValue(f"{what}={duration!r}: must be more than 0 and at most 1,000 years")
    return float(seconds)
