"""Thousands of histories in which nothing is violated, and faults that are found because the rules can see."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from perdure.store import sql
from tests.budget import sample
from tests.simulation.campaign import report, summaries, summary
from tests.simulation.history import play
from tests.simulation.planted_faults import SABOTAGES
from tests.simulation.statements import STATEMENTS

ROOT = Path(__file__).parents[2]
HISTORIES = 10_000
SABOTAGED_HISTORIES_MAX = 4000


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.sampled
@pytest.mark.timeout(900)
def test_nothing_is_violated_in_thousands_of_histories() -> None:
    seeds = sample(range(HISTORIES), 3)
    played = list(summaries(seeds))
    bad = [one for one in played if one.violations]
    assert not bad, report(bad[:10])
    # A world in which nothing happens would please every rule.
    assert len(played) == len(seeds)
    assert sum(one.takeovers for one in played) > len(seeds) / 3
    assert sum(one.bodies for one in played) > 2 * len(seeds)


@pytest.mark.soak
def test_nothing_is_violated_in_a_million_histories() -> None:
    first = int.from_bytes(os.urandom(4), "big")
    bad = list(islice((one for one in summaries(range(first, first + 1_000_000)) if one.violations), 10))
    assert not bad, report(bad)


@pytest.mark.parametrize("name", SABOTAGES)
def test_a_deliberate_fault_is_found(name: str) -> None:
    found = (
        violation
        for seed in range(SABOTAGED_HISTORIES_MAX)
        for violation in summary(seed, frozenset({name})).violations
        if SABOTAGES[name].finds in violation
    )
    assert next(found, None) is not None, f"nobody notices: {SABOTAGES[name].breaks}"


def test_the_same_seed_is_the_same_history_byte_for_byte() -> None:
    seeds = (3, 17, 4711)
    first = [play(seed, trace=True) for seed in seeds]
    assert first == [play(seed, trace=True) for seed in seeds]
    assert [one.digest for one in first] == [play(seed).digest for seed in seeds]
    assert len({one.digest for one in first}) == len(seeds)
    for one in first:
        other = command("--seed", str(one.seed), "--trace", PYTHONHASHSEED=str(one.seed)).stdout.splitlines()
        assert other[: len(one.trace)] == one.trace
        assert one.digest in other[len(one.trace)]


def test_a_violation_is_printed_with_its_seed_and_can_be_seen_again() -> None:
    said = command("--broken", "callers-clock", "--count", "50")
    assert said.returncode == 1
    seed = said.stdout.split("--seed ")[1].split()[0]
    replayed = command("--broken", "callers-clock", "--seed", seed, "--trace")
    assert replayed.returncode == 1
    assert "RULES" in replayed.stdout and "VIOLATED" in replayed.stdout and "read_lease" in replayed.stdout
    assert command("--seed", seed).returncode == 0


def test_the_statements_are_those_of_the_store() -> None:
    named = sql.load("postgres")
    for name, statement in STATEMENTS.items():
        assert tuple(inspect.signature(statement).parameters)[2:] == named[name].parameters, name
