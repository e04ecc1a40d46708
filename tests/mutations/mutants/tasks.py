"""Runs that workers do."""

from __future__ import annotations

from tests.mutations.mutant import mutant

TESTS = "conformance/test_tasks.py::"

OF_TASKS = (
    mutant(
        "a-start-does-not-wait-for-its-step",
        "a step that fails has queued its run",
        TESTS + "test_what_is_started_in_a_step_is_queued_with_it",
        "tasks/starting.py",
        "        yield from write(engine, Site.TASK, [(yield Read(ask))])\n\n\ndef _asked",
        "        from ..state import land\n\n        yield from land(engine, Site.TASK, [ask()])\n\n\ndef _asked",
    ),
    mutant(
        "another-input-is-the-same-run",
        "a run is started with another input, and nobody is told",
        TESTS + "test_a_run_is_queued_once_and_its_result_is_there_for_everybody",
        "journal/starts.py",
        "if any(digest != wanted.digest for digest in known):",
        "if False:",
    ),
    mutant(
        "parked-in-the-middle",
        "a worker leaves a run while an effect of it is under way",
        TESTS + "test_branches_of_a_run_end_what_they_do_before_it_is_parked",
        "run/parking.py",
        "if self.left is None and not self._at_work and self._is_quiet():",
        "if self.left is None:",
    ),
    mutant(
        "swallowed-is-finished",
        "a program that catches everything ends well while it waits",
        TESTS + "test_code_that_catches_everything_is_parked_all_the_same",
        "run/lifecycle.py",
        "        error = parking.left  # whatever became of it in the hands of the program",
        "        pass",
    ),
    mutant(
        "no-retry",
        "what fails is dead at once",
        TESTS + "test_what_fails_is_tried_again_and_then_dead_until_somebody_says_otherwise",
        "tasks/dispatch.py",
        "if attempt > options.retries or settled:",
        "if True:",
    ),
    mutant(
        "the-oldest-first",
        "priorities do not count",
        TESTS + "test_priority_age_limits_and_pauses",
        "tasks/starting.py",
        "        options.priority,\n",
        "        0,\n",
    ),
    mutant(
        "nobody-is-too-many",
        "a limit of a queue is not kept",
        TESTS + "test_priority_age_limits_and_pauses",
        "tasks/taking.py",
        "if (rules.concurrency and running >= rules.concurrency) or now < earliest:",
        "if now < earliest:",
    ),
    mutant(
        "a-dead-worker-is-forgotten",
        "nobody goes on with the runs of a worker that was killed",
        TESTS + "test_a_dead_worker_is_noticed_by_one_that_waits",
        "tasks/dispatch.py",
        "            if not alive[lease.process]:\n",
        "            if False:\n",
        hangs=True,
    ),
)
