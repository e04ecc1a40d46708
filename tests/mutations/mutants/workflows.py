"""`agent.workflows`: claims, versions, and what `resume` does."""

from __future__ import annotations

from tests.mutations.mutant import mutant

FLOWS = "conformance/test_workflows.py::"
RESUME = "conformance/test_workflows_resume.py::"

MUTANTS = (
    mutant(
        "a-claim-keeps-nobody-out",
        "two agents do one step",
        FLOWS + "test_a_step_is_started_by_one_and_its_holder_is_named",
        "perdure.journal.workflow_writes:_refuse_claimed",
        ("lease is not None and counts_as_alive(lease, move.lease_keeper)", "False"),
    ),
    mutant(
        "a-claim-outlives-its-process",
        "the step of a dead process can never be taken over",
        FLOWS + "test_a_claim_ends_with_its_process",
        "perdure.journal.workflow_writes:_refuse_claimed",
        ("lease is not None and counts_as_alive(lease, move.lease_keeper)", "lease is not None"),
    ),
    mutant(
        "a-lost-claim-is-not-noticed",
        "who was taken for dead overwrites the result of who has done the step",
        FLOWS + "test_a_worker_that_was_replaced_cannot_complete_the_step",
        "perdure.journal.workflow_writes:_refuse_claimed",
        ("move.claim and standing.claim != move.claim", "False"),
    ),
    mutant(
        "dependencies-are-not-looked-at",
        "a step is started before what it depends on",
        FLOWS + "test_steps_depend_on_each_other",
        "perdure.journal.workflow_writes:_refuse_unready",
        ("if open_ones:\n    ...", "if False:\n    ..."),
    ),
    mutant(
        "a-program-that-starts-again-begins-anew",
        "creating a workflow again forgets what was done",
        FLOWS + "test_the_same_steps_are_the_same_workflow_and_others_its_next_version",
        "perdure.journal.workflow_writes:carry_steps",
        ("found.get(planned.step, planned.standing)", "planned.standing"),
    ),
    mutant(
        "a-number-is-a-name",
        "a step inserted in front loses what was done",
        FLOWS + "test_the_same_steps_are_the_same_workflow_and_others_its_next_version",
        "perdure.journal.workflow_writes:carry_steps",
        ("step.numbered and step.step not in found", "False"),
    ),
    mutant(
        "other-work-under-the-same-number-is-done",
        "a step with other arguments counts as done, because one of that number was",
        FLOWS + "test_the_same_steps_are_the_same_workflow_and_others_its_next_version",
        "perdure.journal.workflow_writes:carry_steps",
        ("step.step in left and left[step.step].digest == step.digest", "step.step in left"),
    ),
    mutant(
        "completed-before-it-is-recorded",
        "a step is called completed while nothing that it wrote is there",
        RESUME + "test_a_deployment_that_was_killed_does_not_run_its_tests_again",
        "perdure.run.finish:_commit_end",
        ("collect_final_writes(run.whole) if error is None else ((), (), ())", "((), (), ())"),
    ),
    mutant(
        "done-again-is-the-old-run",
        "a step that is to be done again returns what it returned before",
        RESUME + "test_a_failure_is_noted_and_tried_again_by_the_next_resume",
        "perdure.journal.workflow_writes:_decide_move",
        ('attempt, run = (attempt + 1, "") if run else (attempt, run)', "pass"),
    ),
    mutant(
        "the-effects-of-another-agent-are-repeated",
        "an effect that another agent has begun is begun again",
        RESUME + "test_what_a_dead_one_has_begun_is_taken_over_unless_its_effects_are_another_agents",
        "perdure.work.workflows.resume:WorkflowResume._refuse_others_effects",
        ("kinds.intersection(_EFFECTS)", "False"),
    ),
    mutant(
        "a-step-settled-by-hand-leaves-its-run-waiting",
        "a run waits for ever for an answer about a step that somebody has completed",
        RESUME + "test_a_step_that_is_settled_by_hand_leaves_no_run_that_waits",
        "perdure.journal.workflow_writes:_cancel_run",
        ("not move.is_end_of_run(old)", "True"),
    ),
    mutant(
        "a-step-failed-by-hand-forgets-its-doubts",
        "an effect in doubt can never be answered, because its run was ended",
        RESUME + "test_a_step_that_is_failed_by_hand_still_asks_about_its_effect",
        "perdure.journal.workflow_writes:ChangeStepStatus.is_end_of_run",
        (
            "self.by_hand and bool(standing.run) and (self.to.over or self.to == StepStatus.PENDING)",
            "self.by_hand and bool(standing.run)",
        ),
    ),
    mutant(
        "what-was-done-can-fail-afterwards",
        "the result of a completed step is gone, and nobody has asked for that",
        FLOWS + "test_what_is_completed_keeps_its_result_until_it_is_reset",
        "perdure.journal.workflow_writes:outcome",
        ("_undoes(step.standing.status, ask)", "False"),
    ),
)
