"""The code has changed since the run began."""

from __future__ import annotations

from tests.mutations.mutant import mutant

TESTS = "conformance/test_code_changes.py::"
MODEL = "conformance/test_code_changes_model.py::"
REPLAYS = "conformance/test_replay_check.py::"
RESUMES = "conformance/test_replay_check_resume.py::"
CORNERS = "conformance/test_replay_check_corners.py::"

CHANGES = (
    mutant(
        "old-names-are-not-looked-at",
        "a renamed effect happens again, although was= says its old name",
        TESTS + "test_what_a_change_runs_again",
        "run/renames.py",
        "(function.name, *(options.was or ()))",
        "(function.name,)",
    ),
    mutant(
        "an-effect-that-was-renamed-silently-happens-again",
        "a renamed effect happens again when nobody says was=",
        TESTS + "test_an_effect_that_may_have_happened_is_refused_and_says_why",
        "run/divergence.py",
        "if engine.declared(one.name) is None:",
        "if False:",
    ),
    mutant(
        "doubt-under-an-old-name-is-not-seen",
        "a renamed effect begins with other arguments while the one of the old name is in doubt",
        TESTS + "test_a_renamed_effect_in_doubt_is_settled_under_its_new_name",
        "run/doubt.py",
        "for name in it.names:",
        "for name in it.names[:1]:",
    ),
    mutant(
        "an-effect-in-doubt-is-repeated-as-a-step",
        "an effect in doubt runs again because it is a step now",
        TESTS + "test_a_renamed_effect_in_doubt_is_settled_under_its_new_name",
        "run/steps.py",
        "if recorded.effect and recorded.in_doubt:",
        "if False:",
    ),
    mutant(
        "items-of-a-renamed-loop-are-done-again",
        "a loop that has a new name begins anew",
        TESTS + "test_a_loop_that_is_called_otherwise_goes_on_at_the_same_item",
        "run/renames.py",
        "    ledger.items |= {moved(path) for path in ledger.items if path.startswith(old)}\n",
        "",
    ),
    mutant(
        "a-renamed-call-is-recorded-under-two-names",
        "attempts of a renamed effect are noted under its new name, and it begins again as another one",
        TESTS + "test_a_failed_attempt_goes_on_counting_under_the_new_name",
        "run/effects.py",
        "call = recorded.origin or call",
        "pass",
    ),
    mutant(
        "an-added-parameter-makes-another-call",
        "an effect happens again because its function has a parameter more",
        MODEL + "test_whatever_changes_nothing_is_done_twice",
        "run/renames.py",
        "*function.earlier_idents(arguments, options)",
        "",
    ),
    mutant(
        "a-rehearsal-writes",
        "perdure replay-check writes to the store of production",
        REPLAYS + "test_what_a_change_does_to_recorded_runs",
        "rehearsal/passes.py",
        "        place.store.guard = self._guard\n",
        "",
    ),
    mutant(
        "a-rehearsal-runs-steps",
        "perdure replay-check runs steps that are not recorded",
        REPLAYS + "test_what_a_change_does_to_recorded_runs",
        "run/steps.py",
        "    if stand_in is not PROCEED:\n        return stand_in\n",
        "",
    ),
    mutant(
        "a-rehearsal-does-not-miss-anything",
        "a finished run whose steps are not asked for any more replays",
        REPLAYS + "test_what_a_change_does_to_recorded_runs",
        "rehearsal/recorded.py",
        "return one.consumed or one.credited",
        "return True",
    ),
    mutant(
        "a-rehearsal-forgets-effects-that-are-never-reached",
        "an effect that the code no longer reaches does not fail perdure replay-check",
        RESUMES + "test_exit_code_0_means_that_nothing_is_done_twice",
        "rehearsal/reports.py",
        "if effects and (instead or not cut):",
        "if effects and instead:",
    ),
    mutant(
        "a-rehearsal-skips-done-items",
        "another argument of an effect in the items of a finished run is not seen",
        RESUMES + "test_finished_runs_are_judged_as_if_they_could_have_stopped_anywhere",
        "rehearsal/replayed.py",
        "return False  # not even",
        "return done  # not even",
    ),
    mutant(
        "a-stand-in-can-be-used",
        "the code goes by a result that nobody knows, and the verdict is guessed",
        CORNERS + "test_what_a_new_step_returns_cannot_be_used",
        "rehearsal/stand_ins.py",
        "raise stop()",
        "return True",
    ),
    mutant(
        "a-stand-in-is-never-none",
        "code that compares the result of a new step with None is judged for one of its two ways",
        RESUMES + "test_exit_code_0_means_that_nothing_is_done_twice",
        "cli/targets.py",
        "for value in VALUES:",
        "for value in ():",
    ),
    mutant(
        "a-rehearsal-goes-on-after-its-end",
        "a program that catches the end of its replay is judged by what it does then",
        CORNERS + "test_a_program_that_swallows_everything_is_not_believed",
        "rehearsal/replayed.py",
        "self.must_go_on()\n        self.rehearsal.progress += 1",
        "self.rehearsal.progress += 1",
    ),
    mutant(
        "tasks-of-a-rehearsal-do-not-wait-for-each-other",
        "a program with several tasks fails perdure replay-check although nothing has changed",
        CORNERS + "test_tasks_side_by_side_come_to_what_is_recorded",
        "rehearsal/replayed.py",
        "while _has_company() and",
        "while False and",
    ),
    mutant(
        "a-run-under-another-id-is-new",
        "a run that is opened under another id does not fail perdure replay-check",
        CORNERS + "test_a_run_under_another_id_is_not_taken_for_a_new_one",
        "cli/replay_check.py",
        "report.broken = report.broken or bool(rehearsal.notes)",
        "pass",
    ),
    mutant(
        "questions-that-nobody-asks-stay-open",
        "people answer a question that the code does not ask any more",
        TESTS + "test_a_question_with_other_words_is_another_question",
        "run/waiting.py",
        "*withdrawn(instead), began",
        "began",
    ),
)
