"""The code has changed since the run began."""

from __future__ import annotations

from tests.mutations.mutant import mutant

TESTS = "conformance/test_code_changes.py::"
MODEL = "conformance/test_code_changes_model.py::"
REPLAYS = "conformance/test_replay_check.py::"
RESUMES = "conformance/test_replay_check_resume.py::"
CORNERS = "conformance/test_replay_check_limits.py::"

MUTANTS = (
    mutant(
        "old-names-are-not-looked-at",
        "a renamed effect happens again, although was= says its old name",
        TESTS + "test_what_a_change_runs_again",
        "perdure.run.renames:adopt",
        ("(function.name, *(options.was or ()))", "(function.name,)"),
    ),
    mutant(
        "an-effect-that-was-renamed-silently-happens-again",
        "a renamed effect happens again when nobody says was=",
        TESTS + "test_an_effect_that_may_have_happened_is_refused_and_says_why",
        "perdure.run.divergence:_find_renamed",
        ("declared.find(one.name) is None", "False"),
    ),
    mutant(
        "doubt-under-an-old-name-is-not-seen",
        "a renamed effect begins with other arguments while the one of the old name is in doubt",
        TESTS + "test_a_renamed_effect_in_doubt_is_settled_under_its_new_name",
        "perdure.run.doubt:find_unsettled_effect",
        ("effect.names", "effect.names[:1]"),
    ),
    mutant(
        "an-effect-in-doubt-is-repeated-as-a-step",
        "an effect in doubt runs again because it is a step now",
        TESTS + "test_a_renamed_effect_in_doubt_is_settled_under_its_new_name",
        "perdure.run.step:_refuse_doubt",
        ("recorded.effect and recorded.in_doubt", "False"),
    ),
    mutant(
        "items-of-a-renamed-loop-are-done-again",
        "a loop that has a new name begins anew",
        TESTS + "test_a_loop_that_is_called_otherwise_goes_on_at_the_same_item",
        "perdure.run.renames:move_scope",
        ("ledger.items |= {move_path(path) for path in ledger.items if path.startswith(old)}", ""),
    ),
    mutant(
        "a-renamed-call-is-recorded-under-two-names",
        "attempts of a renamed effect are noted under its new name, and it begins again as another one",
        TESTS + "test_a_failed_attempt_goes_on_counting_under_the_new_name",
        "perdure.run.effect:_begin_or_go_on",
        ("call = recorded.origin or call", "pass"),
    ),
    mutant(
        "an-added-parameter-makes-another-call",
        "an effect happens again because its function has a parameter more",
        MODEL + "test_whatever_changes_nothing_is_done_twice",
        "perdure.run.renames:adopt",
        ("(place.ident, *function.iterate_earlier_idents(arguments, options))", "(place.ident, )"),
    ),
    mutant(
        "a-rehearsal-writes",
        "perdure replay-check writes to the store of production",
        REPLAYS + "test_what_a_change_does_to_recorded_runs",
        "perdure.run.rehearse.rehearsal:Rehearsal.enter",
        ("place.store.guard = self._guard", ""),
    ),
    mutant(
        "a-rehearsal-runs-steps",
        "perdure replay-check runs steps that are not recorded",
        REPLAYS + "test_what_a_change_does_to_recorded_runs",
        "perdure.run.step:_call_again",
        ("if stand_in is not PROCEED:\n    return stand_in", ""),
    ),
    mutant(
        "a-rehearsal-does-not-miss-anything",
        "a finished run whose steps are not asked for any more replays",
        REPLAYS + "test_what_a_change_does_to_recorded_runs",
        "perdure.run.rehearse.recorded:RecordedContents.is_reached",
        ("return one.consumed or one.credited", "return True"),
    ),
    mutant(
        "a-rehearsal-forgets-effects-that-are-never-reached",
        "an effect that the code no longer reaches does not fail perdure replay-check",
        RESUMES + "test_exit_code_0_means_that_nothing_is_done_twice",
        "perdure.run.rehearse.verdict:judge_unreached",
        ("instead or not cut", "instead"),
    ),
    mutant(
        "a-rehearsal-skips-done-items",
        "another argument of an effect in the items of a finished run is not seen",
        RESUMES + "test_finished_runs_are_judged_as_if_they_could_have_stopped_anywhere",
        "perdure.run.rehearse.replay:RehearsedRun.is_item_done",
        ("return False  # not even", "return done  # not even"),
    ),
    mutant(
        "a-stand-in-can-be-used",
        "the code goes by a result that nobody knows, and the verdict is guessed",
        CORNERS + "test_what_a_new_step_returns_cannot_be_used",
        "perdure.run.rehearse.placeholders:_refuse_use",
        ("raise stop()", "return True"),
    ),
    mutant(
        "a-stand-in-is-never-none",
        "code that compares the result of a new step with None is judged for one of its two ways",
        RESUMES + "test_exit_code_0_means_that_nothing_is_done_twice",
        "perdure.cli.replay_targets:rehearse",
        ("for value in VALUES:\n    ...", "for value in ():\n    ..."),
    ),
    mutant(
        "a-rehearsal-goes-on-after-its-end",
        "a program that catches the end of its replay is judged by what it does then",
        CORNERS + "test_a_program_that_swallows_everything_is_not_believed",
        "perdure.run.rehearse.replay:RehearsedRun.match",
        ("self.check_replaying()", ""),
    ),
    mutant(
        "tasks-of-a-rehearsal-do-not-wait-for-each-other",
        "a program with several tasks fails perdure replay-check although nothing has changed",
        CORNERS + "test_tasks_side_by_side_come_to_what_is_recorded",
        "perdure.run.rehearse.replay:RehearsedRun.settle",
        ("_has_other_tasks()", "False"),
    ),
    mutant(
        "a-run-under-another-id-is-new",
        "a run that is opened under another id does not fail perdure replay-check",
        CORNERS + "test_a_run_under_another_id_is_not_taken_for_a_new_one",
        "perdure.cli.replay_check:_check",
        ("report.broken = report.broken or bool(rehearsal.notes)", "pass"),
    ),
    mutant(
        "questions-that-nobody-asks-stay-open",
        "people answer a question that the code does not ask any more",
        TESTS + "test_a_question_with_other_words_is_another_question",
        "perdure.run.wait:_begin",
        (
            "run.commit(Site.WAIT_BEGIN, *withdrawn(instead), began, objects=wait.objects)",
            "run.commit(Site.WAIT_BEGIN, began, objects=wait.objects)",
        ),
    ),
)
