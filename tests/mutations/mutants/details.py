"""Between the rows of the tables: nesting, loops, exceptions in other clothes, bodies that are late."""

from __future__ import annotations

from tests.mutations.mutant import mutant

GAPS = "conformance/test_gaps_runs.py::"

DETAILS = (
    mutant(
        "lost-run-ends-in-silence",
        "a run that another process has taken seems to have finished",
        GAPS + "test_a_run_that_was_lost_does_not_end_in_silence",
        "run/lifecycle.py",
        "            raise  # the work was done",
        "            pass  # the work was done",
    ),
    mutant(
        "run-inside-a-step",
        "a step that is repeated repeats a whole run",
        GAPS + "test_a_run_cannot_be_opened_inside_a_step",
        "run/lifecycle.py",
        "    if outer.inside:\n",
        "    if False:\n",
    ),
    mutant(
        "wrapped-failure-is-for-ever",
        "a failure that was raised from another can never be tried again",
        GAPS + "test_a_failure_that_ended_the_run_is_tried_again_whatever_it_was_wrapped_in[sqlite-cause]",
        "run/lifecycle.py",
        "        waiting += [inner for inner in (one.__cause__, one.__context__) if inner is not None]\n",
        "",
    ),
    mutant(
        "grouped-failure-is-for-ever",
        "a failure in a group of exceptions can never be tried again",
        GAPS + "test_a_failure_that_ended_the_run_is_tried_again_whatever_it_was_wrapped_in[sqlite-group]",
        "run/lifecycle.py",
        '        waiting += getattr(one, "exceptions", ())\n',
        "",
    ),
    mutant(
        "loop-in-a-step-commits",
        "items of a loop inside a step are done although the step failed",
        GAPS + "test_a_loop_inside_a_step_is_part_of_the_step",
        "run/items.py",
        "            if self._outer.inside:\n",
        "            if False:\n",
    ),
    mutant(
        "loop-names-ignored",
        "a loop that was added makes another one begin again, or end before its time",
        GAPS + "test_named_loops_may_be_added_and_removed",
        "run/items.py",
        "if name else str(nth + 1)",
        "if False else str(nth + 1)",
    ),
    mutant(
        "loop-names-as-they-are",
        "a loop with an odd name is taken for another, and its items are never done",
        GAPS + "test_no_name_of_a_loop_is_mistaken_for_another_loop",
        "run/items.py",
        'label = _label(name, "name") + ',
        "label = name + ",
    ),
    mutant(
        "late-body-calls-steps",
        "a body that timed out goes on calling steps",
        GAPS + "test_a_late_body_cannot_call_steps",
        "run/durable.py",
        "        if not frame.alive:\n            raise Abandoned\n",
        "",
    ),
    mutant(
        "paid-again-for-nothing",
        "a step whose result cannot be stored is tried and paid for again and again",
        GAPS + "test_a_result_that_cannot_be_stored_is_not_paid_for_again",
        "run/steps.py",
        "if attempts > options.retries or _is_ours(error):",
        "if attempts > options.retries:",
    ),
    mutant(
        "timeouts-of-others-taken-for-ours",
        "a timeout that the body raised itself comes back as another error",
        GAPS + "test_a_timeout_of_the_body_itself_is_not_taken_for_ours[sqlite-True]",
        "run/requests.py",
        "        if not scope.expired():\n",
        "        if False:\n",
    ),
    mutant(
        "deleted-in-an-item-still-seen",
        "an item sees what it has deleted",
        GAPS + "test_what_an_item_deletes_is_gone_for_it_at_once_and_for_others_with_it",
        "run/writes.py",
        "            if made.op == r.Op.DELETE:\n                state.pop(key, None)\n",
        "            if made.op == r.Op.DELETE:\n                pass\n",
    ),
    mutant(
        "at-work-shown-as-in-doubt",
        "a person is invited to answer for an effect that is under way",
        GAPS + "test_an_effect_at_work_is_not_shown_as_in_doubt",
        "runs.py",
        "        if not at_work and ",
        "        if ",
    ),
    mutant(
        "answer-for-any-of-several",
        "an answer settles an effect that it was not meant for",
        GAPS + "test_with_several_effects_in_doubt_the_answer_must_say_which",
        "answers.py",
        "    if len(effects) > 1:\n",
        "    if False:\n",
    ),
    mutant(
        "still-in-the-item-after-break",
        "what is written after a loop that was left by break is lost",
        GAPS + "test_after_a_loop_the_code_is_outside_of_its_items",
        "run/items.py",
        "        if self._item is not None:\n            if self._item.alive and",
        "        if False:\n            if self._item.alive and",
    ),
)
