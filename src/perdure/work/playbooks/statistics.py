"""What is known about a tier at a step: tries, successes, cost. Kept as agent state, counted once per attempt."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec

from perdure.run.prices import NANOS

RECENT = 50
"""How many of the last outcomes are kept, to notice that success is falling."""
_DRIFT_Z = 4.0
"""At 3, steady success is called falling in 7 to 15 of 100 series of 600 tries; at 4 in 0 to 3."""
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
    model: str = ""
    """The model that answered, as its responses name it; empty if none was named."""
    past_tries: int = 0
    past_nanos: int = 0
    """Tries and cost of earlier models behind this tier. They were paid, but say nothing about the model of today."""

    @property
    def spent(self) -> float:
        """What the tier has cost in all, in dollars, with the models that it had before."""
        return (self.nanos + self.past_nanos) / NANOS

    @property
    def current(self) -> TierStatistics:
        """The outcomes that the choice relies on: all of them, or only the last ones if success is falling."""
        if not self.drifting:
            return self
        late, each = len(self.recent), self.cost_per_try
        nanos, unpriced = (0, late) if each is None else (round(each * NANOS * late), 0)
        wins = self.recent.count("1")
        return msgspec.structs.replace(self, tries=late, successes=wins, nanos=nanos, unpriced=unpriced)

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
    model: str = ""
    """The model that answered, if that is known."""


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
    """Return the statistics with one more attempt. Another model behind the same tier starts them anew."""
    if known.model and attempt.model and attempt.model != known.model:
        known = TierStatistics(past_tries=known.past_tries + known.tries, past_nanos=known.past_nanos + known.nanos)
    return TierStatistics(
        known.tries + 1,
        known.successes + attempt.accepted,
        known.nanos + attempt.nanos,
        known.unpriced + (not attempt.priced),
        (known.recent + ("1" if attempt.accepted else "0"))[-RECENT:],
        known.prompt_tokens + attempt.prompt_tokens,
        known.stable_tokens + attempt.stable_tokens,
        attempt.model or known.model,
        known.past_tries,
        known.past_nanos,
    )


def make_counter(attempt: AttemptOutcome) -> Callable[[Any], Any]:
    """Return the function that counts an attempt in a stored value. It runs inside the commit of the attempt."""

    def count(value: Any) -> Any:
        return msgspec.to_builtins(add_attempt(read_statistics(value), attempt))

    return count


def read_statistics(value: Any) -> TierStatistics:
    """Read a stored value; None is a tier that was never tried."""
    return TierStatistics() if value is None else msgspec.convert(value, TierStatistics)
