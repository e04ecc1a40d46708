"""Bodies that outlive their call: what is at work in this process, the end of a block, awaitables, fencing numbers."""

from __future__ import annotations

from tests.mutations.mutant import mutant

OF_BODIES = "conformance/test_running_bodies.py::"
OF_LEAVING = "conformance/test_block_end.py::"
OF_AWAITABLES = "conformance/test_awaitables.py::"
OF_FENCING = "conformance/test_fencing.py::"

MUTANTS = (
    mutant(
        "bodies-at-work-ignored",
        "a check is believed while the body that timed out is still at work in this process",
        OF_BODIES + "test_after_a_timeout_what_the_body_started_is_waited_for[sqlite-_by_to_thread]",
        "perdure.run.doubt:_compute_holder_end",
        ("recorded.happened or run.bodies.is_running(recorded.seq)", "recorded.happened"),
    ),
    mutant(
        "bodies-known-to-one-opening",
        "a run that is opened again does not know of the body that its last opening has begun",
        OF_BODIES + "test_after_a_timeout_what_the_body_started_is_waited_for[sqlite-_by_to_thread]",
        "perdure.kernel.bodies:bodies_of",
        ("found = _KNOWN.get((store, stream))", "found = None"),
    ),
    mutant(
        "executor-calls-not-tracked",
        "an effect is begun again while a thread of the loop's executor, without its context, is still at it",
        OF_BODIES + "test_after_a_timeout_what_the_body_started_is_waited_for[sqlite-_by_default_executor]",
        "perdure.kernel.bodies:EffectBodies.begin_in_loop",
        ("watch_executors(loop)", "pass"),
    ),
    mutant(
        "tasks-of-a-body-not-tracked",
        "an effect is begun again while a task that its body created is still at it",
        OF_BODIES + "test_after_a_timeout_what_the_body_started_is_waited_for[sqlite-_by_task]",
        "perdure.kernel.bodies:EffectBodies._carries",
        ("task.done() or task.get_loop().is_closed()", "True"),
    ),
    mutant(
        "entered-contexts-not-tracked",
        "an effect is begun again while a thread of another library is still at it",
        OF_BODIES + "test_after_a_timeout_what_the_body_started_is_waited_for[sqlite-_by_anyio]",
        "perdure.kernel.bodies:_is_entered",
        ("return True", "return False"),
    ),
    mutant(
        "bound-functions-not-tracked",
        "a function of run.bind acts after its attempt was given up",
        OF_BODIES + "test_a_bound_function_does_not_begin_after_its_attempt_was_given_up[sqlite]",
        "perdure.kernel.bodies:_track_work",
        ("work = join_body(here.get(FRAME))", "work = None"),
    ),
    mutant(
        "executors-not-tracked",
        "an effect is begun again while a call waits for a thread of run.executor",
        OF_BODIES
        + "test_what_a_body_of_a_synchronous_run_started_is_waited_for[sqlite-_in_queue_of_run_executor-True]",
        "perdure.run.executor:RunExecutor.submit",
        ("join_body(FRAME.get())", "None"),
    ),
    mutant(
        "given-up-attempts-go-on",
        "a bound function acts although the effect was begun again meanwhile",
        OF_BODIES + "test_a_bound_function_does_not_begin_after_its_attempt_was_given_up",
        "perdure.kernel.bodies:EffectBodies.join",
        ("frame.attempt <= self._given_up.get(frame.intent, -1)", "False"),
    ),
    mutant(
        "block-end-leaves-effects",
        "an effect under way is cut off by the failure of another call",
        OF_LEAVING + "test_a_charge_under_way_is_not_begun_again_by_a_retry_loop[sqlite]",
        "perdure.run.block_exit:drain_bodies",
        ("yield from _wait(run, cut_off, _patience(run))", ""),
    ),
    mutant(
        "block-end-leaves-steps",
        "a step goes on after its run has ended",
        OF_LEAVING + "test_steps_are_cancelled_and_effects_awaited[sqlite-Broken]",
        "perdure.run.block_exit:_cancel",
        ("body.awaited.interrupt()", "pass"),
        hangs=True,
    ),
    mutant(
        "finished-with-an-effect-at-work",
        "a run is finished, and nobody ever learns what became of its last effect",
        OF_LEAVING + "test_an_effect_that_takes_too_long_is_cancelled_into_doubt[sqlite-None]",
        "perdure.run.block_exit:drain_bodies",
        ("_find_in_doubt_error(run, late) if error is None else None", "None"),
    ),
    mutant(
        "begun-after-the-end",
        "an effect begins although the block of its run was left",
        OF_LEAVING + "test_an_effect_that_was_about_to_begin_when_the_block_was_left_does_not[sqlite]",
        "perdure.run.effect:execute_body",
        ("run.leaving", "False"),
    ),
    mutant(
        "coroutine-recorded-as-done",
        "an effect counts as done although its coroutine never ran",
        OF_AWAITABLES + "test_in_a_synchronous_run_a_coroutine_is_closed_and_nothing_was_done[sqlite]",
        "perdure.kernel.awaitables:require_settled",
        ("raise NotAwaited(...)", "return None\nraise NotAwaited(...)"),
    ),
    mutant(
        "coroutine-is-doubt",
        "a person is asked about a coroutine that never ran",
        OF_AWAITABLES + "test_in_a_synchronous_run_a_coroutine_is_closed_and_nothing_was_done[sqlite]",
        "perdure.run.effect:_NOTHING",
        ("(NotDone, NotAwaited)", "(NotDone,)"),
    ),
    mutant(
        "awaitable-not-awaited",
        "what a plain function gives to await is never awaited",
        OF_AWAITABLES + "test_under_asyncio_whatever_can_be_awaited_is[sqlite-True-a_plain_function]",
        "perdure.kernel.protocol:_await_body",
        ("is_awaitable(result)", "False"),
    ),
    mutant(
        "fence-of-the-first-holder",
        "an outside system cannot tell a late call from a new one",
        OF_FENCING + "test_an_attempt_after_a_takeover_has_a_larger_number[sqlite]",
        "perdure.run.outcome:EffectCall.inject",
        ("recorded.fence", "1"),
    ),
)
