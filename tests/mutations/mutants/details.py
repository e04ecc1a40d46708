"""Between the rows of the tables: nesting, loops, exceptions in other clothes, bodies that are late."""

from __future__ import annotations

from tests.mutations.mutant import mutant

MUTANTS = (
    mutant(
        "lost-run-ends-in-silence",
        "a run that another process has taken seems to have finished",
        "conformance/test_nesting.py::test_a_run_that_was_lost_does_not_end_in_silence",
        "perdure.run.finish:end_run",
        ("if error is None:\n    raise", "if error is None:\n    pass"),
    ),
    mutant(
        "run-inside-a-step",
        "a step that is repeated repeats a whole run",
        "conformance/test_nesting.py::test_a_run_cannot_be_opened_inside_a_step",
        "perdure.run.lifecycle:_refuse_bad_nesting",
        ("outer.inside", "False"),
    ),
    mutant(
        "wrapped-failure-is-for-ever",
        "a failure that was raised from another can never be tried again",
        (
            ""
            "conformance/test_nesting.py::test_a_failure_that_ended_the_run_is_tried_again_whatever_it_was_wrapped_in[sqlite-cause]"
        ),
        "perdure.run.finish:_cause",
        ("waiting += [inner for inner in (one.__cause__, one.__context__) if inner is not None]", ""),
    ),
    mutant(
        "grouped-failure-is-for-ever",
        "a failure in a group of exceptions can never be tried again",
        (
            ""
            "conformance/test_nesting.py::test_a_failure_that_ended_the_run_is_tried_again_whatever_it_was_wrapped_in[sqlite-group]"
        ),
        "perdure.run.finish:_cause",
        ('waiting += getattr(one, "exceptions", ())', ""),
    ),
    mutant(
        "loop-in-a-step-commits",
        "items of a loop inside a step are done although the step failed",
        "conformance/test_nesting.py::test_a_loop_inside_a_step_is_part_of_the_step",
        "perdure.run.item:ItemLoop.advance",
        ("if self._outer.inside:\n    ...", "if False:\n    ..."),
    ),
    mutant(
        "loop-names-ignored",
        "a loop that was added makes another one begin again, or end before its time",
        "conformance/test_nesting.py::test_named_loops_may_be_added_and_removed",
        "perdure.run.item:ItemLoop.__init__",
        (
            '_label(name, "name") + again if name else str(nth + 1)',
            '_label(name, "name") + again if False else str(nth + 1)',
        ),
    ),
    mutant(
        "loop-names-as-they-are",
        "a loop with an odd name is taken for another, and its items are never done",
        "conformance/test_nesting.py::test_no_name_of_a_loop_is_mistaken_for_another_loop",
        "perdure.run.item:ItemLoop.__init__",
        ('_label(name, "name")', "name"),
    ),
    mutant(
        "late-body-calls-steps",
        "a body that timed out goes on calling steps",
        "conformance/test_nesting.py::test_a_late_body_cannot_call_steps",
        "perdure.run.durable:Durable._refuse_inside",
        ("if not frame.alive:\n    raise Abandoned", ""),
    ),
    mutant(
        "paid-again-for-nothing",
        "a step whose result cannot be stored is tried and paid for again and again",
        "conformance/test_nesting.py::test_a_result_that_cannot_be_stored_is_not_paid_for_again",
        "perdure.run.step:_tries_again",
        ("result is not _NO_RESULT or attempts > options.retries or _is_ours(error)", "attempts > options.retries"),
    ),
    mutant(
        "timeouts-of-others-taken-for-ours",
        "a timeout that the body raised itself comes back as another error",
        "conformance/test_nesting.py::test_a_timeout_of_the_body_itself_is_not_taken_for_ours[sqlite-True]",
        "perdure.kernel.protocol:_await_in_time",
        ("not scope.expired()", "False"),
    ),
    mutant(
        "deleted-in-an-item-still-seen",
        "an item sees what it has deleted",
        "conformance/test_nesting.py::test_what_an_item_deletes_is_gone_for_it_at_once_and_for_others_with_it",
        "perdure.run.writes:read_state",
        ("state.pop(key, None)", "pass"),
    ),
    mutant(
        "at-work-shown-as-in-doubt",
        "a person is invited to answer for an effect that is under way",
        "conformance/test_nesting.py::test_an_effect_at_work_is_not_shown_as_in_doubt",
        "perdure.run.listing:_find_in_doubt",
        (
            "not at_work and (summary.status != r.RunStatus.WAITING or one.begun in asked)",
            "summary.status != r.RunStatus.WAITING or one.begun in asked",
        ),
    ),
    mutant(
        "answer-for-any-of-several",
        "an answer settles an effect that it was not meant for",
        "conformance/test_nesting.py::test_with_several_effects_in_doubt_the_answer_must_say_which",
        "perdure.run.answers:_find_effect",
        ("len(effects) > 1", "False"),
    ),
    mutant(
        "still-in-the-item-after-break",
        "what is written after a loop that was left by break is lost",
        "conformance/test_nesting.py::test_after_a_loop_the_code_is_outside_of_its_items",
        "perdure.run.item:ItemLoop.close",
        ("self._item is not None", "False"),
    ),
)
