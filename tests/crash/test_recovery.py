"""Killed again while it recovers: the second kill falls on any failpoint of the resume."""

from __future__ import annotations

import pytest

from tests.budget import sample
from tests.crash.harness import Stage, Undisturbed, run_cases, spread

COLOURS = ("sync", "async")
KILLED = -9

FIRST_KILLS = {"sqlite": 10, "postgres": 8}
SECOND_KILLS = 2
"""In CI, per colour; `make soak` makes every pair."""

OPENING = 12
"""Failpoints that a resume passes before it does anything new: half of the second kills fall there."""


def kill_twice(stage: Stage, colour: str, expected: Undisturbed, first: int, second: int) -> tuple[bool, list[str]]:
    """Kill at the first-th failpoint, then at the second-th of the resume. Says whether that one was reached."""
    scene = stage.scene("victim:main", colour)
    assert scene.once({"CRASH_NTH": str(first)}) == KILLED
    reached = scene.once({"CRASH_NTH": str(second)}) == KILLED
    scene.finish()
    return reached, scene.judge(expected)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("colour", COLOURS)
def test_killed_again_during_recovery(stage: Stage, undisturbed: dict[str, Undisturbed], colour: str) -> None:
    expected = undisturbed[colour]
    firsts = spread(list(range(1, len(expected.reached) + 1)), FIRST_KILLS[stage.kind])
    # A different second place for each first one, half of them early; the same in every session.
    pairs = [(first, 1 + (first * 7 + n) % OPENING) for first in firsts for n in range(SECOND_KILLS // 2)]
    pairs += [(first, 1 + (first * 31 + n) % 150) for first in firsts for n in range(SECOND_KILLS // 2)]
    twice = []

    def case(pair: tuple[int, int]) -> list[str]:
        reached, complaints = kill_twice(stage, colour, expected, *pair)
        twice.append(reached)
        return complaints

    pairs = list(sample(pairs, 2))
    assert run_cases(case, pairs) == []
    assert sum(twice) > len(pairs) // 3, "most second kills must hit something"


@pytest.mark.soak
@pytest.mark.parametrize("colour", COLOURS)
def test_killed_at_every_pair_of_failpoints(stage: Stage, undisturbed: dict[str, Undisturbed], colour: str) -> None:
    expected = undisturbed[colour]

    def all_seconds(first: int) -> list[str]:
        found: list[str] = []
        for second in range(1, 2 * len(expected.reached)):
            reached, complaints = kill_twice(stage, colour, expected, first, second)
            found += [f"then at {second}: {text}" for text in complaints]
            if not reached:
                break
        return found

    assert run_cases(all_seconds, range(1, len(expected.reached) + 1)) == []
