"""`agent.workflows`: claims, versions, and what `resume` does."""

from __future__ import annotations

from tests.mutations.mutant import mutant

FLOWS = "conformance/test_workflows.py::"
RESUME = "conformance/test_workflows_resume.py::"

OF_WORKFLOWS = (
    mutant(
        "a-claim-keeps-nobody-out",
        "two agents do one step",
        FLOWS + "test_a_step_is_started_by_one_and_its_holder_is_named",
        "journal/plans.py",
        "if lease is not None and lease.alive() and not move.tenancy.outlasts(lease):",
        "if False:",
    ),
    mutant(
        "a-claim-outlives-its-process",
        "the step of a dead process can never be taken over",
        FLOWS + "test_a_claim_ends_with_its_process",
        "journal/plans.py",
        "if lease is not None and lease.alive() and not move.tenancy.outlasts(lease):",
        "if lease is not None:",
    ),
    mutant(
        "a-lost-claim-is-not-noticed",
        "who was taken for dead overwrites the result of who has done the step",
        FLOWS + "test_who_was_taken_for_dead_cannot_complete_the_step",
        "journal/plans.py",
        "if move.claim and standing.claim != move.claim:",
        "if False:",
    ),
    mutant(
        "dependencies-are-not-looked-at",
        "a step is started before what it depends on",
        FLOWS + "test_steps_depend_on_each_other",
        "journal/plans.py",
        "    if open_ones:\n",
        "    if False:\n",
    ),
    mutant(
        "a-program-that-starts-again-begins-anew",
        "creating a workflow again forgets what was done",
        FLOWS + "test_the_same_steps_are_the_same_workflow_and_others_its_next_version",
        "journal/plans.py",
        "standing=found.get(it.step, it.standing)) for it in after)",
        "standing=it.standing) for it in after)",
    ),
    mutant(
        "a-number-is-a-name",
        "a step inserted in front loses what was done",
        FLOWS + "test_the_same_steps_are_the_same_workflow_and_others_its_next_version",
        "journal/plans.py",
        "if it.numbered and it.step not in found:",
        "if False:",
    ),
    mutant(
        "other-work-under-the-same-number-is-done",
        "a step with other arguments counts as done, because one of that number was",
        FLOWS + "test_the_same_steps_are_the_same_workflow_and_others_its_next_version",
        "journal/plans.py",
        "if it.step in left and left[it.step].digest == it.digest:",
        "if it.step in left:",
    ),
    mutant(
        "completed-before-it-is-recorded",
        "a step is called completed while nothing that it wrote is there",
        RESUME + "test_a_deployment_that_was_killed_does_not_run_its_tests_again",
        "run/lifecycle.py",
        "finished_with(run.whole) if error is None else ((), (), ())",
        "((), (), ())",
    ),
    mutant(
        "done-again-is-the-old-run",
        "a step that is to be done again returns what it returned before",
        RESUME + "test_a_failure_is_noted_and_tried_again_by_the_next_resume",
        "journal/plans.py",
        'attempt, run = (attempt + 1, "") if run else (attempt, run)',
        "pass",
    ),
    mutant(
        "the-effects-of-another-agent-are-repeated",
        "an effect that another agent has begun is begun again",
        RESUME + "test_what_a_dead_one_has_begun_is_taken_over_unless_its_effects_are_another_agents",
        "workflows/work.py",
        "if kinds.intersection(_EFFECTS):",
        "if False:",
    ),
    mutant(
        "a-step-settled-by-hand-leaves-its-run-waiting",
        "a run waits for ever for an answer about a step that somebody has completed",
        RESUME + "test_a_step_that_is_settled_by_hand_leaves_no_run_that_waits",
        "journal/plans.py",
        "    if not move.ends(old):\n",
        "    if True:\n",
    ),
    mutant(
        "a-step-failed-by-hand-forgets-its-doubts",
        "an effect in doubt can never be answered, because its run was ended",
        RESUME + "test_a_step_that_is_failed_by_hand_still_asks_about_its_effect",
        "journal/plans.py",
        "bool(standing.run) and (self.to.over or self.to == Status.PENDING)",
        "bool(standing.run)",
    ),
    mutant(
        "what-was-done-can-fail-afterwards",
        "the result of a completed step is gone, and nobody has asked for that",
        FLOWS + "test_what_is_completed_keeps_its_result_until_it_is_reset",
        "journal/plans.py",
        "    elif _undoes(step.standing.status, ask):\n",
        "    elif False:\n",
    ),
)
