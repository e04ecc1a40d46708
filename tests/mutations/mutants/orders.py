"""Runs that are told to stop."""

from __future__ import annotations

from tests.mutations.mutant import mutant

TESTS = "conformance/test_orders.py::"

OF_ORDERS = (
    mutant(
        "an-order-is-not-heard",
        "a run that commits all the time is not told to stop",
        TESTS + "test_what_is_under_way_is_recorded_and_nothing_else_begins",
        "journal/append.py",
        "        head.hear(rows, self.last)\n",
        "",
    ),
    mutant(
        "a-withdrawn-effect-begins",
        "an effect begins although its intent was told that the run is cancelled",
        TESTS + "test_what_is_under_way_is_recorded_and_nothing_else_begins",
        "run/effects.py",
        "            yield from _withdraw_if_told(run, call, attempts)\n",
        "            pass\n",
    ),
    mutant(
        "a-paused-run-is-opened",
        "a pause lasts until the next start of the program",
        TESTS + "test_a_paused_run_is_opened_by_nobody_and_goes_on_where_it_was",
        "run/lifecycle.py",
        "if status == r.Status.PAUSED and not resumes(orders):",
        "if False:",
    ),
    mutant(
        "an-order-dies-with-its-holder",
        "a process that was told to stop and dies is followed by one that goes on",
        TESTS + "test_a_kill_at_any_moment_loses_no_order_and_doubles_nothing",
        "run/lifecycle.py",
        "self.unobeyed = unobeyed(status, orders)",
        "self.unobeyed = None",
    ),
    mutant(
        "cleaning-up-is-forgotten",
        "a run that died as it cleaned up goes on with its work",
        TESTS + "test_a_kill_at_any_moment_loses_no_order_and_doubles_nothing",
        "run/core.py",
        "if self.cleanup is not None:",
        "if False:",
    ),
    mutant(
        "a-pause-cleans-up",
        "what a run still needs is undone when it is paused",
        TESTS + "test_a_paused_run_is_opened_by_nobody_and_goes_on_where_it_was",
        "run/obeying.py",
        "not (cleans and it.order.order == r.Order.CANCEL)",
        "not cleans",
    ),
    mutant(
        "resume-is-lost-in-a-pause",
        "a run that is resumed while its pause is written rests for ever",
        TESTS + "test_a_resume_that_comes_while_a_pause_is_written_need_not_be_said_again",
        "run/lifecycle.py",
        "        if resumes(orders):\n",
        "        if False:\n",
    ),
    mutant(
        "parts-are-not-told",
        "the children of a cancelled run go on",
        TESTS + "test_the_parts_of_a_run_are_told_the_same",
        "orders.py",
        'for agent, part, _ in (yield Read(engine.store.read, ("parts_of", (given.stream,)))):',
        "for agent, part, _ in ():",
    ),
)
