"""Which tier tries a step first: the one with the lowest expected cost, escalation included.

Thompson sampling: draw a success rate for each tier from what is known, and take the cheapest start for these draws. A
tier that seldom succeeds is tried ever more rarely; a tier that nobody knows is tried soon.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence

import msgspec

from perdure.work.playbooks.statistics import TierStatistics

FREE_TRIALS = 20
"""How often a step may explore before the share counts."""
EXPLORE_SHARE = 0.1
"""The share of plays that may explore beyond the free trials."""
_GUESSED_RATIO = 5.0
"""How much dearer the next tier is, where nothing is known about prices."""

PriceOf = Callable[[str], float | None]
"""Returns the price of a typical call of a model, in dollars."""


class TierChoice(msgspec.Struct, frozen=True):
    """The tiers that a step tries, in this order, and why."""

    step: str
    order: tuple[str, ...]
    reason: str
    draws: dict[str, float] = {}
    """The success rates that were drawn."""
    explores: bool = False
    """Whether another tier is the cheapest by what is known so far."""
    falling: tuple[str, ...] = ()
    """The tiers whose success is falling. For these, only the last outcomes count."""


class StepEvidence(msgspec.Struct, frozen=True):
    """What is known when a step is planned: the record of each tier, and how often the step explored."""

    tiers: Mapping[str, TierStatistics]
    plays: int = 0
    explored: int = 0


class ChoiceRules(msgspec.Struct, frozen=True):
    """How a play chooses: from which tiers, and what the user has fixed."""

    tiers: tuple[str, ...]
    target: float = 0.0
    explore: bool = True
    pinned: str = ""


def choose(step: str, rules: ChoiceRules, evidence: StepEvidence, price_of: PriceOf, seed: int) -> TierChoice:
    """Choose where a step starts. The same arguments give the same choice."""
    known = {tier: evidence.tiers.get(tier, TierStatistics()) for tier in rules.tiers}
    falling = tuple(tier for tier, one in known.items() if one.drifting)
    now = msgspec.structs.replace(evidence, tiers={tier: one.current for tier, one in known.items()})
    made = _choose_now(step, rules, now, price_of, seed)
    if not falling:
        return made
    reason = f"{made.reason}; success is falling: {', '.join(falling)}"
    return msgspec.structs.replace(made, reason=reason, falling=falling)


def _choose_now(step: str, rules: ChoiceRules, evidence: StepEvidence, price_of: PriceOf, seed: int) -> TierChoice:
    tiers = rules.tiers
    if rules.pinned:
        start = tiers.index(rules.pinned)
        return TierChoice(step, tiers[start:], f"{rules.pinned} is fixed by the caller")
    costs = estimate_costs(tiers, evidence.tiers, price_of)
    means = [_mean(evidence.tiers[tier]) for tier in tiers]
    best = cheapest_start(means, costs, rules.target)
    allowed = evidence.explored < FREE_TRIALS + EXPLORE_SHARE * evidence.plays
    if not rules.explore or not allowed:
        return TierChoice(step, tiers[best:], _explain(tiers[best], means[best], evidence))
    generator = random.Random(f"{seed}/{step}")
    draws = [_draw(generator, evidence.tiers[tier]) for tier in tiers]
    start = cheapest_start(draws, costs, rules.target)
    explores = start != best
    reason = f"explores {tiers[start]}" if explores else _explain(tiers[start], means[start], evidence)
    drawn = dict(zip(tiers, (round(draw, 4) for draw in draws), strict=True))
    return TierChoice(step, tiers[start:], reason, drawn, explores)


def _mean(known: TierStatistics) -> float:
    """The expected success rate, with one success and one failure assumed in advance."""
    return (known.successes + 1) / (known.tries + 2)


def _draw(generator: random.Random, known: TierStatistics) -> float:
    return generator.betavariate(known.successes + 1, known.tries - known.successes + 1)


def _explain(tier: str, mean: float, evidence: StepEvidence) -> str:
    known = evidence.tiers[tier]
    if not known.tries:
        return f"{tier} was never tried here"
    return f"{tier} has the lowest expected cost: {known.successes} of {known.tries} tries succeeded ({mean:.0%})"


def cheapest_start(rates: Sequence[float], costs: Sequence[float], target: float) -> int:
    """Return the tier to start with: the lowest expected cost among those that reach the target, else any."""
    expected = [expected_cost(rates[start:], costs[start:]) for start in range(len(rates))]
    reached = [1 - math.prod(1 - rate for rate in rates[start:]) for start in range(len(rates))]
    fitting = [start for start in range(len(rates)) if reached[start] >= target]
    return min(fitting or range(len(rates)), key=lambda start: (expected[start], start))


def expected_cost(rates: Sequence[float], costs: Sequence[float]) -> float:
    """Return the expected cost of trying tiers in order until one succeeds."""
    total, left = 0.0, 1.0
    for rate, cost in zip(rates, costs, strict=True):
        total += left * cost
        left *= 1 - rate
    return total


def estimate_costs(tiers: Sequence[str], known: Mapping[str, TierStatistics], price_of: PriceOf) -> list[float]:
    """Return the cost of a try of each tier: as measured, else by its price, else guessed from its neighbour."""
    measured = [known.get(tier, TierStatistics()).cost_per_try for tier in tiers]
    listed = [price_of(tier) if cost is None else None for tier, cost in zip(tiers, measured, strict=True)]
    scale = _scale(tiers, measured, price_of) if any(price is not None for price in listed) else 1.0
    costs = [
        cost if cost is not None else None if price is None else price * scale
        for cost, price in zip(measured, listed, strict=True)
    ]
    return _fill_gaps(costs)


def _scale(tiers: Sequence[str], measured: Sequence[float | None], price_of: PriceOf) -> float:
    """Return how much more a try costs here than a typical call of the same model."""
    pairs = [(cost, price_of(tier)) for tier, cost in zip(tiers, measured, strict=True) if cost]
    ratios = [cost / price for cost, price in pairs if price]
    return sum(ratios) / len(ratios) if ratios else 1.0


def _fill_gaps(costs: Sequence[float | None]) -> list[float]:
    """Guess unknown costs from the nearest known one: each tier is dearer than the one before by a fixed ratio."""
    known = [index for index, cost in enumerate(costs) if cost is not None]
    filled = []
    for index, cost in enumerate(costs):
        if cost is None:
            near = min(known, key=lambda other: abs(other - index), default=None)
            base = 1.0 if near is None else float(costs[near] or 0.0)
            cost = base * _GUESSED_RATIO ** (index - (near or 0))
        filled.append(cost)
    return filled
