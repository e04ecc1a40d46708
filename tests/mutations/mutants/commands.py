"""The command line: what a person is told, and what text of a run must never become."""

from __future__ import annotations

from tests.mutations.mutant import mutant

HANDOFF = "unit/test_cli_handoff.py::"
TIMELINE = "unit/test_cli_timeline.py::"
DOCTOR = "unit/test_cli_keeping.py::"

OF_COMMANDS = (
    mutant(
        "text-of-a-run-ends-its-quotation",
        "what a run was told becomes markup, or an order to the model that reads its brief",
        HANDOFF + "test_text_of_the_run_is_only_text",
        "handoff/__init__.py",
        "while ticks in line:",
        "while False:",
    ),
    mutant(
        "a-brief-replaces-any-file",
        "perdure handoff --output writes over what somebody has written",
        HANDOFF + "test_a_file_is_replaced_only_by_a_newer_brief",
        "cli/handoff.py",
        "if path.exists() and not",
        "if False and not",
    ),
    mutant(
        "a-killed-effect-seems-done",
        "the picture of a run does not tell that an effect is in doubt",
        TIMELINE + "test_what_nobody_knows_stands_out",
        "cli/picture.py",
        "row.enter(DOUBT, self._last)",
        "row.leave(self._last)",
    ),
    mutant(
        "time-goes-back-on-the-axis",
        "what came later is drawn before",
        TIMELINE + "test_an_axis_keeps_the_order_of_time",
        "cli/axis.py",
        "at, column = end, column + columns",
        "at, column = end, column",
    ),
    mutant(
        "nobody-misses-a-worker",
        "runs wait in a queue that no worker serves, and the doctor says that all is well",
        "unit/test_cli_worker.py::test_what_is_queued_is_shown_and_missed_when_nobody_takes_it",
        "cli/checkup_queues.py",
        "elif queue not in served and",
        "elif queue in served and",
    ),
    mutant(
        "doctor-believes-the-clock",
        "a clock that was set back is not noticed",
        DOCTOR + "test_a_clock_that_was_set_back_is_a_problem",
        "cli/checkup_store.py",
        "if newest - now > CLOCKS_APART_MS:",
        "if False:",
    ),
)
