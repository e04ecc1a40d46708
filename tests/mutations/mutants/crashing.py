"""The crash test: what it does to programs, and what it sees."""

from __future__ import annotations

from tests.mutations.mutant import mutant

CRASHTEST = "unit/test_crashtest.py::"

MUTANTS = (
    mutant(
        "repetition-not-seen",
        "the crash test does not see that an effect happened twice",
        CRASHTEST + "test_a_planted_bug_is_found_and_named[bug_step_with_effect]",
        "perdure.testing.crashtest.findings:_find_repeated",
        ("count > learned.outside[line] > 0", "False"),
    ),
    mutant(
        "carried-variable-not-named",
        "nobody is told that a variable is carried from item to item, and lost with a crash",
        CRASHTEST + "test_a_planted_bug_is_found_and_named[bug_carried]",
        "perdure.testing.crashtest.findings:_find_other_paths",
        ("_check_items(learned, done, [*lost, _find_extra_effect(learned, done)], evidence)", ""),
    ),
    mutant(
        "paused-process-not-woken",
        "a process whose run was taken over is never woken up, so that nobody sees what it would do",
        CRASHTEST + "test_a_paused_process_that_was_replaced_does_nothing_more",
        "perdure.testing.crashtest.rounds:CrashStage._starts",
        ("process.resume()", "process.kill()"),
    ),
)
