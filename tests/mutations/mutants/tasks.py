"""Runs that workers do."""

from __future__ import annotations

from tests.mutations.mutant import mutant

TESTS = "conformance/test_tasks.py::"

MUTANTS = (
    mutant(
        "a-start-does-not-wait-for-its-step",
        "a step that fails has queued its run",
        TESTS + "test_what_is_started_in_a_step_is_queued_with_it",
        "perdure.work.tasks.submission:start",
        (
            "yield from write(engine, Site.TASK, [queued])",
            "from ..state import land\nyield from land(engine, Site.TASK, [queued])",
        ),
    ),
    mutant(
        "another-input-is-the-same-run",
        "a run is started with another input, and nobody is told",
        TESTS + "test_a_run_is_queued_once_and_its_result_is_there_for_everybody",
        "perdure.journal.task_starts:_make_queued",
        ("any(digest != wanted.digest for digest in known)", "False"),
    ),
    mutant(
        "parked-in-the-middle",
        "a worker leaves a run while an effect of it is under way",
        TESTS + "test_branches_of_a_run_end_what_they_do_before_it_is_parked",
        "perdure.run.parking:RunParking.leave_if_idle",
        ("self.left is None and not self._at_work and self._is_quiet()", "self.left is None"),
    ),
    mutant(
        "swallowed-is-finished",
        "a program that catches everything ends well while it waits",
        TESTS + "test_code_that_catches_everything_is_parked_all_the_same",
        "perdure.run.finish:end_run",
        ("error = parking.left  # whatever became of it in the hands of the program", "pass"),
    ),
    mutant(
        "no-retry",
        "what fails is dead at once",
        TESTS + "test_what_fails_is_tried_again_and_then_dead_until_somebody_says_otherwise",
        "perdure.work.tasks.dispatch:_retry",
        ("attempt > options.retries or settled", "True"),
    ),
    mutant(
        "the-oldest-first",
        "priorities do not count",
        TESTS + "test_priority_age_limits_and_pauses",
        "perdure.work.tasks.submission:_make_request",
        ("options.priority", "0"),
    ),
    mutant(
        "nobody-is-too-many",
        "a limit of a queue is not kept",
        TESTS + "test_priority_age_limits_and_pauses",
        "perdure.work.tasks.claim:TakeRun._choose_within",
        ("(rules.concurrency and running >= rules.concurrency) or now < earliest", "now < earliest"),
    ),
    mutant(
        "a-dead-worker-is-forgotten",
        "nobody goes on with the runs of a worker that was killed",
        TESTS + "test_a_dead_worker_is_noticed_by_one_that_waits",
        "perdure.work.tasks.dispatch:Dispatcher._orphans",
        ("not alive[lease.process]", "False"),
        hangs=True,
    ),
)
