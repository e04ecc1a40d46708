"""Playbooks against simulated models: what the choice of tiers saves, and what a careless verifier lets through.

No model and no store: known success rates, the real choice and the real statistics, and fixed seeds. Each play draws in
advance whether each tier would succeed, so that every policy meets the same plays.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from perdure.run.prices import nanos_of
from perdure.work.playbooks.choice import ChoiceRules, StepEvidence, choose
from perdure.work.playbooks.statistics import AttemptOutcome, TierStatistics, add_attempt

from .lab import Lab
from .marked import write
from .rows import Bar, Row, at_least, at_most

SECTION = "playbooks"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "guides" / "playbooks.md"
PLAYS = 1000
LEARNED = 200
"""Plays after which the choice must be as good as the best fixed one."""
SEED = 20261118


class SimulatedTier(msgspec.Struct, frozen=True):
    """A model that succeeds with a known rate, at a known price."""

    name: str
    rate: float
    cost: float


class Simulation(msgspec.Struct, frozen=True):
    """What 1,000 plays of one step came to."""

    cost: float
    late_cost: float
    """The cost after the learning plays."""
    best_late_cost: float
    """The cost of the best fixed start in hindsight, over the same plays."""
    strongest_cost: float
    """The cost of the strongest tier alone, over all plays."""
    successes: int
    strongest_successes: int
    wrong: int = 0
    """Wrong answers that a careless verifier accepted."""

    @property
    def saved(self) -> float:
        """The share of the strongest tier's cost that was saved."""
        return 1 - self.cost / self.strongest_cost

    @property
    def regret(self) -> float:
        """The cost after learning, in times of the best fixed start."""
        return self.late_cost / self.best_late_cost


class _Play(msgspec.Struct, frozen=True):
    """One play, drawn in advance: whose answer is right, and whose answer the verifier accepts."""

    right: frozenset[str]
    accepted: frozenset[str]

    def tried(self, tiers: Sequence[SimulatedTier]) -> list[SimulatedTier]:
        """Return the tiers that are tried when these are tried in order."""
        until = next((number for number, tier in enumerate(tiers, 1) if tier.name in self.accepted), len(tiers))
        return list(tiers[:until])


def simulate(
    tiers: Sequence[SimulatedTier], *, seed: int = SEED, plays: int = PLAYS, careless: float = 0.0
) -> Simulation:
    """Play a step many times. `careless` is the share of wrong answers that the verifier accepts."""
    drawn = list(_draw_plays(tiers, seed, plays, careless))
    tried = list(_choose_for(tiers, drawn, seed))
    last = [(play, made[-1].name) for play, made in zip(drawn, tried, strict=True)]
    late = drawn[LEARNED:]
    fixed = [sum(_cost(play.tried(tiers[start:])) for play in late) for start in range(len(tiers))]
    return Simulation(
        sum(map(_cost, tried)),
        sum(map(_cost, tried[LEARNED:])),
        min(fixed),
        plays * tiers[-1].cost,
        sum(name in play.accepted & play.right for play, name in last),
        sum(tiers[-1].name in play.right for play in drawn),
        sum(name in play.accepted - play.right for play, name in last),
    )


def _draw_plays(tiers: Sequence[SimulatedTier], seed: int, plays: int, careless: float) -> Iterator[_Play]:
    draw = random.Random(seed)
    for _ in range(plays):
        right = frozenset(tier.name for tier in tiers if draw.random() < tier.rate)
        slips = frozenset(tier.name for tier in tiers if draw.random() < careless)
        yield _Play(right, right | slips)


def _choose_for(tiers: Sequence[SimulatedTier], plays: Sequence[_Play], seed: int) -> Iterator[list[SimulatedTier]]:
    """Yield the tiers that each play tries, as the choice learns from the plays before it."""
    rules = ChoiceRules(tuple(tier.name for tier in tiers), 0.95)
    known: dict[str, TierStatistics] = {}
    explored = 0
    for number, play in enumerate(plays):
        evidence = StepEvidence(dict(known), number, explored)
        choice = choose("step", rules, evidence, lambda _: None, seed + number)
        explored += choice.explores
        tried = play.tried([tier for tier in tiers if tier.name in choice.order])
        for tier in tried:
            outcome = AttemptOutcome(tier.name in play.accepted, nanos_of(tier.cost), True)
            known[tier.name] = add_attempt(known.get(tier.name, TierStatistics()), outcome)
        yield tried


def _cost(tiers: Sequence[SimulatedTier]) -> float:
    return sum(tier.cost for tier in tiers)


CHEAP_GOOD = (SimulatedTier("cheap", 0.95, 0.001), SimulatedTier("strong", 0.99, 0.06))
CHEAP_USELESS = (SimulatedTier("cheap", 0.0, 0.001), SimulatedTier("strong", 0.99, 0.06))
THREE = (SimulatedTier("cheap", 0.5, 0.001), SimulatedTier("middle", 0.8, 0.005), SimulatedTier("strong", 0.98, 0.06))


def playbooks(lab: Lab) -> Iterator[Row]:
    """Simulated models with known success rates, 1,000 plays each."""
    rows = list(_measure())
    write(PAGE, rows)
    yield from rows


def _measure() -> Iterator[Row]:
    good, useless, three = (simulate(tiers) for tiers in (CHEAP_GOOD, CHEAP_USELESS, THREE))
    yield _percent("cheap tier succeeds in 95%, 60 times cheaper: saved", good.saved, at_least(92))
    yield _percent("useless cheap tier: wasted", -useless.saved, at_most(1))
    for what, one in (("two tiers", good), ("useless cheap tier", useless), ("three tiers", three)):
        note = f"{one.successes} of {PLAYS} succeed; the strongest alone {one.strongest_successes}"
        row = f"{what}: cost after {LEARNED} plays, in times of the best fixed start"
        yield Row(SECTION, row, one.regret, "", at_most(1.1), True, note)
    careless = simulate(CHEAP_GOOD, careless=0.05)
    note = f"{careless.wrong} wrong answers of {PLAYS} accepted; a strict verifier accepts none"
    yield _percent("verifier accepts 5% of wrong answers: saved", careless.saved, None, note)


def _percent(what: str, share: float, bar: Bar | None, note: str = "") -> Row:
    return Row(SECTION, what, 100 * share, "%", bar, True, note)


SECTIONS: dict[str, Callable[[Lab], Iterator[Row]]] = {"playbooks": playbooks}
