"""Bodies that outlive their call: what is at work in this process, the end of a block, awaitables, fencing numbers."""

from __future__ import annotations

from tests.mutations.mutant import mutant

OF_BODIES = "conformance/test_bodies.py::"
OF_LEAVING = "conformance/test_leaving.py::"
OF_AWAITABLES = "conformance/test_awaitables.py::"
OF_FENCING = "conformance/test_fencing.py::"

BODIES = (
    mutant(
        "bodies-at-work-ignored",
        "a check is believed while the body that timed out is still at work in this process",
        OF_BODIES + "test_after_a_timeout_what_the_body_started_is_waited_for[sqlite-_by_to_thread]",
        "run/doubt.py",
        "recorded.happened or run.bodies.at_work(recorded.seq)",
        "recorded.happened",
    ),
    mutant(
        "bodies-known-to-one-opening",
        "a run that is opened again does not know of the body that its last opening has begun",
        OF_BODIES + "test_after_a_timeout_what_the_body_started_is_waited_for[sqlite-_by_to_thread]",
        "run/bodies.py",
        "        found = _KNOWN.get((store, stream))\n",
        "        found = None\n",
    ),
    mutant(
        "to-thread-not-tracked",
        "an effect is begun again while asyncio.to_thread is still at it",
        OF_BODIES + "test_after_a_timeout_what_the_body_started_is_waited_for[sqlite-_by_to_thread]",
        "run/bodies.py",
        "            watch_executors(loop)\n",
        "            pass\n",
    ),
    mutant(
        "tasks-of-a-body-not-tracked",
        "an effect is begun again while a task that its body created is still at it",
        OF_BODIES + "test_after_a_timeout_what_the_body_started_is_waited_for[sqlite-_by_task]",
        "run/bodies.py",
        "        if task.done() or task.get_loop().is_closed():",
        "        if True:",
    ),
    mutant(
        "bound-threads-not-tracked",
        "an effect is begun again while a thread of run.bind is still at it",
        OF_BODIES + "test_what_a_body_of_a_synchronous_run_started_is_waited_for[sqlite-_in_bound_thread-True]",
        "run/bodies.py",
        "    work = joined(here.get(FRAME))\n",
        "    work = None\n",
    ),
    mutant(
        "executors-not-tracked",
        "an effect is begun again while a thread of run.executor is still at it",
        OF_BODIES + "test_what_a_body_of_a_synchronous_run_started_is_waited_for[sqlite-_in_run_executor-True]",
        "run/executor.py",
        "joined(FRAME.get())",
        "None",
    ),
    mutant(
        "given-up-attempts-go-on",
        "a bound function acts although the effect was begun again meanwhile",
        OF_BODIES + "test_a_bound_function_does_not_begin_after_its_attempt_was_given_up",
        "run/bodies.py",
        "            if frame.attempt <= self._given_up.get(frame.intent, -1):",
        "            if False:",
    ),
    mutant(
        "block-end-leaves-effects",
        "an effect under way is cut off by the failure of another call",
        OF_LEAVING + "test_a_charge_under_way_is_not_begun_again_by_a_retry_loop[sqlite]",
        "run/leaving.py",
        "            yield from _wait(run, cut_off, _patience(run))\n",
        "",
    ),
    mutant(
        "block-end-leaves-steps",
        "a step goes on after its run has ended",
        OF_LEAVING + "test_steps_are_cancelled_and_effects_awaited[sqlite-Broken]",
        "run/leaving.py",
        "            body.awaited.interrupt()",
        "            pass",
        hangs=True,
    ),
    mutant(
        "finished-with-an-effect-at-work",
        "a run is finished, and nobody ever learns what became of its last effect",
        OF_LEAVING + "test_an_effect_that_takes_too_long_is_cancelled_into_doubt[sqlite-None]",
        "run/leaving.py",
        "_in_doubt(run, late) if error is None else None",
        "None",
    ),
    mutant(
        "begun-after-the-end",
        "an effect begins although the block of its run was left",
        OF_LEAVING + "test_an_effect_that_was_about_to_begin_when_the_block_was_left_does_not[sqlite]",
        "run/effects.py",
        "            if run.leaving:\n",
        "            if False:\n",
    ),
    mutant(
        "coroutine-recorded-as-done",
        "an effect counts as done although its coroutine never ran",
        OF_AWAITABLES + "test_in_a_synchronous_run_a_coroutine_is_closed_and_nothing_was_done[sqlite]",
        "run/awaitables.py",
        "    raise NotAwaited(",
        "    return None\n    raise NotAwaited(",
    ),
    mutant(
        "coroutine-is-doubt",
        "a person is asked about a coroutine that never ran",
        OF_AWAITABLES + "test_in_a_synchronous_run_a_coroutine_is_closed_and_nothing_was_done[sqlite]",
        "run/effects.py",
        "_NOTHING = (NotDone, NotAwaited)",
        "_NOTHING = (NotDone,)",
    ),
    mutant(
        "awaitable-not-awaited",
        "what a plain function gives to await is never awaited",
        OF_AWAITABLES + "test_under_asyncio_whatever_can_be_awaited_is[sqlite-True-a_plain_function]",
        "run/requests.py",
        "    while is_awaitable(result):\n",
        "    while False:\n",
    ),
    mutant(
        "fence-of-the-first-holder",
        "an outside system cannot tell a late call from a new one",
        OF_FENCING + "test_an_attempt_after_a_takeover_has_a_larger_number[sqlite]",
        "run/outcomes.py",
        "recorded.key, recorded.fence)",
        "recorded.key, 1)",
    ),
)
