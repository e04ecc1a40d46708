"""Who does queued runs."""

from __future__ import annotations

from tests.mutations.mutant import mutant

TESTS = "conformance/test_tasks.py::"

MUTANTS = (
    mutant(
        "who-waits-is-blamed",
        "a run that was only beside the one that kills workers is dead with it",
        TESTS + "test_a_run_that_waits_for_its_turn_is_not_blamed_for_the_death_of_its_worker",
        "perdure.work.tasks.dispatch:is_suspect",
        ("deaths = run.ledger.deaths_alone()", "deaths = run.ledger.deaths()"),
    ),
)
