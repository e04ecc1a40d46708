"""The statistics of a tier: drift, intervals, and models that change behind a name."""

from __future__ import annotations

from perdure.work.playbooks.statistics import RECENT, AttemptOutcome, TierStatistics, add_attempt, wilson_interval


def test_falling_success_is_noticed_and_steady_success_is_not() -> None:
    def after(outcomes: str) -> TierStatistics:
        known = TierStatistics()
        for one in outcomes:
            known = add_attempt(known, AttemptOutcome(one == "1", 1, True))
        return known

    assert after("1" * RECENT * 2 + "01" * (RECENT // 2)).drifting
    assert not after("1" * RECENT * 3).drifting
    assert not after("01" * RECENT * 2).drifting
    assert not after("0" * RECENT).drifting, "nothing to compare with"


def test_the_interval_narrows_with_tries_and_is_open_without() -> None:
    assert wilson_interval(0, 0) == (0.0, 1.0)
    low, high = wilson_interval(8, 10)
    assert 0.4 < low < 0.8 < high < 1.0
    assert wilson_interval(800, 1000)[0] > low


def test_another_model_behind_a_tier_starts_its_statistics_anew() -> None:
    known = TierStatistics()
    for model in ("m-1", "m-1", "", "m-2"):
        known = add_attempt(known, AttemptOutcome(True, 1_000_000_000, True, model=model))
    assert (known.model, known.tries, known.cost) == ("m-2", 1, 1.0)
    assert (known.past_tries, known.spent) == (3, 4.0)
