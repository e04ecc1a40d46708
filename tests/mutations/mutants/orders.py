"""Runs that are told to stop."""

from __future__ import annotations

from tests.mutations.mutant import mutant

TESTS = "conformance/test_orders.py::"

MUTANTS = (
    mutant(
        "an-order-is-not-heard",
        "a run that commits all the time is not told to stop",
        TESTS + "test_what_is_under_way_is_recorded_and_nothing_else_begins",
        "perdure.journal.append:Append.script",
        ("head.apply_answer(rows, self.last)", ""),
    ),
    mutant(
        "a-withdrawn-effect-begins",
        "an effect begins although its intent was told that the run is cancelled",
        TESTS + "test_what_is_under_way_is_recorded_and_nothing_else_begins",
        "perdure.run.effect:execute_body",
        ("yield from _withdraw_if_told(run, call, attempts)", "pass"),
    ),
    mutant(
        "a-paused-run-is-opened",
        "a pause lasts until the next start of the program",
        TESTS + "test_a_paused_run_is_opened_by_nobody_and_goes_on_where_it_was",
        "perdure.run.lifecycle:ClaimRun._refuse_stopped",
        ("run.status == r.RunStatus.PAUSED and not resumes(orders)", "False"),
    ),
    mutant(
        "an-order-dies-with-its-holder",
        "a process that was told to stop and dies is followed by one that goes on",
        TESTS + "test_a_kill_at_any_moment_loses_no_order_and_doubles_nothing",
        "perdure.run.lifecycle:ClaimRun._refuse_stopped",
        ("self.unobeyed = find_pending_order(run.status, orders)", "self.unobeyed = None"),
    ),
    mutant(
        "cleaning-up-is-forgotten",
        "a run that died as it cleaned up goes on with its work",
        TESTS + "test_a_kill_at_any_moment_loses_no_order_and_doubles_nothing",
        "perdure.run.core:RunCore.__init__",
        ("self.cleanup is not None", "False"),
    ),
    mutant(
        "a-pause-cleans-up",
        "what a run still needs is undone when it is paused",
        TESTS + "test_a_paused_run_is_opened_by_nobody_and_goes_on_where_it_was",
        "perdure.run.order_handling:find_stop_error",
        ("not (cleans and core.order.order == r.Order.CANCEL)", "not cleans"),
    ),
    mutant(
        "resume-is-lost-in-a-pause",
        "a run that is resumed while its pause is written rests for ever",
        TESTS + "test_a_resume_that_comes_while_a_pause_is_written_need_not_be_said_again",
        "perdure.run.finish:_resume_if_ordered",
        ("resumes(orders)", "False"),
    ),
    mutant(
        "parts-are-not-told",
        "the children of a cancelled run go on",
        TESTS + "test_the_parts_of_a_run_are_told_the_same",
        "perdure.run.orders:order_run",
        ('yield Read(engine.store.read, ("descendant_runs", (given.stream,)))', "()"),
    ),
)
