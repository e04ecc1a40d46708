"""The command line: what a person is told, and what text of a run must never become."""

from __future__ import annotations

from tests.mutations.mutant import mutant

HANDOFF = "unit/test_cli_handoff.py::"
TIMELINE = "unit/test_cli_timeline.py::"
DOCTOR = "unit/test_cli_store_admin.py::"

MUTANTS = (
    mutant(
        "waited-taken-for-killed",
        "a run that waits in order looks as if its process had died",
        "unit/test_cli_timeline.py::test_how_each_process_left_the_run_is_told_apart",
        "perdure.journal.leases:Lease.describe_end",
        ('return "released"', 'return "dead"'),
    ),
    mutant(
        "text-of-a-run-ends-its-quotation",
        "what a run was told becomes markup, or an order to the model that reads its brief",
        HANDOFF + "test_text_of_the_run_is_only_text",
        "perdure.presence.handoff:code",
        ("ticks in line", "False"),
    ),
    mutant(
        "a-brief-replaces-any-file",
        "perdure handoff --output writes over what somebody has written",
        HANDOFF + "test_a_file_is_replaced_only_by_a_newer_brief",
        "perdure.cli.handoff:_write",
        ("path.exists()", "False"),
    ),
    mutant(
        "a-killed-effect-seems-done",
        "the picture of a run does not tell that an effect is in doubt",
        TIMELINE + "test_what_nobody_knows_stands_out",
        "perdure.run.timeline:TimelineBuilder._close",
        ('row.status, row.phase = ("in doubt", DOUBT)', 'row.status, row.phase = ("done", DOUBT)'),
    ),
    mutant(
        "time-goes-back-on-the-axis",
        "what came later is drawn before",
        TIMELINE + "test_an_axis_keeps_the_order_of_time",
        "perdure.run.timeline:TimeAxis.__init__",
        ("here + b - a", "here - b + a"),
    ),
    mutant(
        "nobody-misses-a-worker",
        "runs wait in a queue that no worker serves, and the doctor says that all is well",
        "unit/test_cli_worker.py::test_what_is_queued_is_shown_and_missed_when_nobody_takes_it",
        "perdure.work.tasks.stalled:find_stalled",
        ("name not in served", "name in served"),
    ),
    mutant(
        "doctor-believes-the-clock",
        "a clock that was set back is not noticed",
        DOCTOR + "test_a_clock_that_was_set_back_is_a_problem",
        "perdure.cli.doctor_store:clocks",
        ("newest - now > CLOCKS_APART_MS", "False"),
    ),
)
