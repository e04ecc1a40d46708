"""What is known about a tier at a step: tries, successes, cost. Kept as agent state, counted once per attempt."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec

from perdure.run.prices import NANOS

RECENT = 50
"""How many of the last outcomes are kept, to notice that success is falling."""
_DRIFT_Z = 3.0
_NORMAL_95 = 1.96


class TierStatistics(msgspec.Struct, frozen=True):
    """The record of one tier at one step of one version of a playbook."""

    tries: int = 0
    successes: int = 0
    nanos: int = 0
    """The known cost, in billionths of a dollar."""
    unpriced: int = 0
    """Attempts whose cost is unknown."""
    recent: str = ""
    """The last outcomes, oldest first: `1` for a success."""
    prompt_tokens: int = 0
    stable_tokens: int = 0
    """The tokens of the rendered prompts, and of their part that is the same for every input."""

    @property
    def cost(self) -> float:
        """What all tries have cost, in dollars, as far as it is known."""
        return self.nanos / NANOS

    @property
    def cost_per_try(self) -> float | None:
        """The average cost of a try in dollars; None if no cost is known."""
        priced = self.tries - self.unpriced
        return self.cost / priced if priced else None

    @property
    def cost_per_success(self) -> float | None:
        """The cost of a success in dollars; None if there is none, or no cost is known."""
        per_try = self.cost_per_try
        return None if per_try is None or not self.successes else per_try * self.tries / self.successes

    @property
    def rate(self) -> float | None:
        """The share of successes; None before the first try."""
        return self.successes / self.tries if self.tries else None

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of the success rate (Wilson); 0 to 1 before the first try."""
        return wilson_interval(self.successes, self.tries)

    @property
    def drifting(self) -> bool:
        """Whether the last outcomes are worse than those before, beyond chance."""
        late = len(self.recent)
        early = self.tries - late
        if late < RECENT or early < RECENT:
            return False
        late_wins = self.recent.count("1")
        early_wins = self.successes - late_wins
        pooled = self.successes / self.tries
        spread = math.sqrt(pooled * (1 - pooled) * (1 / late + 1 / early))
        return spread > 0 and (early_wins / early - late_wins / late) / spread > _DRIFT_Z


class AttemptOutcome(msgspec.Struct, frozen=True):
    """One attempt, as it is counted."""

    accepted: bool
    nanos: int
    priced: bool
    prompt_tokens: int = 0
    stable_tokens: int = 0


def wilson_interval(successes: int, tries: int) -> tuple[float, float]:
    """Return the 95% interval of a share."""
    if not tries:
        return 0.0, 1.0
    z, share = _NORMAL_95, successes / tries
    middle = share + z * z / (2 * tries)
    spread = z * math.sqrt(share * (1 - share) / tries + z * z / (4 * tries * tries))
    scale = 1 + z * z / tries
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


def add_attempt(known: TierStatistics, attempt: AttemptOutcome) -> TierStatistics:
    """Return the statistics with one more attempt."""
    return TierStatistics(
        known.tries + 1,
        known.successes + attempt.accepted,
        known.nanos + attempt.nanos,
        known.unpriced + (not attempt.priced),
        (known.recent + ("1" if attempt.accepted else "0"))[-RECENT:],
        known.prompt_tokens + attempt.prompt_tokens,
        known.stable_tokens + attempt.stable_tokens,
    )


def make_counter(attempt: AttemptOutcome) -> Callable[[Any], Any]:
    """Return the function that counts an attempt in a stored value. It runs inside the commit of the attempt."""

    def count(value: Any) -> Any:
        return msgspec.to_builtins(add_attempt(read_statistics(value), attempt))

    return count


def read_statistics(value: Any) -> TierStatistics:
    """Read a stored value; None is a tier that was never tried."""
    return TierStatistics() if value is None else msgspec.convert(value, TierStatistics)
