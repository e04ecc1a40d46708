"""How playbooks choose tiers: simulated models with known success rates, with fixed seeds."""

from __future__ import annotations

import math

import pytest

from bench.playbooks import CHEAP_GOOD, CHEAP_USELESS, PLAYS, THREE, SimulatedTier, simulate
from perdure.work.playbooks.choice import (
    EXPLORE_SHARE,
    FREE_TRIALS,
    ChoiceRules,
    StepEvidence,
    cheapest_start,
    choose,
    estimate_costs,
    expected_cost,
)
from perdure.work.playbooks.statistics import RECENT, AttemptOutcome, TierStatistics, add_attempt

SEEDS = (1, 2, 3)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("tiers", [CHEAP_GOOD, CHEAP_USELESS, THREE], ids=["good", "useless", "three"])
def test_success_is_that_of_the_strongest_and_cost_that_of_the_best_fixed_choice(
    tiers: tuple[SimulatedTier, ...], seed: int
) -> None:
    made = simulate(tiers, seed=seed)
    rate = made.strongest_successes / PLAYS
    assert made.successes >= made.strongest_successes - 2 * math.sqrt(PLAYS * rate * (1 - rate))
    assert made.regret <= 1.10
    assert made.wrong == 0


def test_a_good_cheap_tier_saves_92_percent() -> None:
    assert sum(simulate(CHEAP_GOOD, seed=seed).saved for seed in SEEDS) / len(SEEDS) >= 0.92


@pytest.mark.parametrize("seed", SEEDS)
def test_a_useless_cheap_tier_wastes_at_most_one_percent(seed: int) -> None:
    assert simulate(CHEAP_USELESS, seed=seed).saved >= -0.01


def test_a_careless_verifier_lets_wrong_answers_through() -> None:
    assert simulate(CHEAP_GOOD, careless=0.05).wrong > 0


def test_escalation_is_part_of_the_expected_cost() -> None:
    assert expected_cost([0.5, 1.0], [1.0, 10.0]) == 6.0
    assert cheapest_start([0.05, 1.0], [1.0, 10.0], 0.0) == 1
    assert cheapest_start([0.2, 1.0], [1.0, 10.0], 0.0) == 0


def test_a_start_that_misses_the_target_is_not_chosen_while_another_reaches_it() -> None:
    rates, costs = [0.1, 0.9], [2.0, 10.0]
    assert cheapest_start(rates, costs, 0.0) == 1
    assert cheapest_start(rates, costs, 0.905) == 0
    assert cheapest_start(rates, costs, 0.99) == 1, "none reaches it: the cheapest"


def test_the_same_seed_draws_the_same_choice_and_a_pin_draws_nothing() -> None:
    rules, evidence = ChoiceRules(("cheap", "strong")), StepEvidence({})
    assert choose("s", rules, evidence, lambda _: None, 7) == choose("s", rules, evidence, lambda _: None, 7)
    pinned = choose("s", ChoiceRules(("cheap", "strong"), pinned="strong"), evidence, lambda _: None, 7)
    assert (pinned.order, pinned.draws) == (("strong",), {})


def test_exploration_is_bounded_and_can_be_switched_off() -> None:
    known = {"cheap": TierStatistics(3, 0, 3, 0, "000"), "strong": TierStatistics(3, 3, 12, 0, "111")}
    rules, plays = ChoiceRules(("cheap", "strong")), 100
    spent = StepEvidence(known, plays, int(FREE_TRIALS + EXPLORE_SHARE * plays))
    free = StepEvidence(known, plays, 0)
    draws = [choose("s", rules, free, lambda _: None, seed).explores for seed in range(200)]
    assert any(draws) and not all(draws)
    assert not any(choose("s", rules, spent, lambda _: None, seed).explores for seed in range(200))
    off = ChoiceRules(("cheap", "strong"), explore=False)
    assert not any(choose("s", off, free, lambda _: None, seed).explores for seed in range(200))


def test_unknown_costs_come_from_prices_scaled_to_what_was_measured_and_else_from_neighbours() -> None:
    measured = {"strong": TierStatistics(1, 1, 2_000_000_000)}
    assert estimate_costs(("cheap", "strong"), measured, {"cheap": 0.1, "strong": 1.0}.get) == [0.2, 2.0]
    assert estimate_costs(("cheap", "strong"), measured, lambda _: None) == [0.4, 2.0]
    assert estimate_costs(("cheap", "strong"), {}, lambda _: None) == [1.0, 5.0]


def test_falling_success_is_told_and_only_its_last_outcomes_count() -> None:
    falling = TierStatistics()
    for one in "1" * 300 + "0" * RECENT:
        falling = add_attempt(falling, AttemptOutcome(one == "1", 1_000_000, True))
    evidence = StepEvidence({"cheap": falling, "strong": TierStatistics(50, 50, 50 * 10_000_000, 0, "1" * 50)}, 350)
    rules = ChoiceRules(("cheap", "strong"), explore=False)
    made = choose("s", rules, evidence, lambda _: None, 1)
    assert made.order == ("strong",) and made.falling == ("cheap",)
    assert "success is falling: cheap" in made.reason
    assert falling.current.cost_per_try == falling.cost_per_try
