"""Steps, effects and matching in the model against sections 1 to 4 of docs/about/semantics.md, row by row."""

from __future__ import annotations

import pytest

from perdure.errors import NothingToAnswer

from . import Answer, Catch, Each, Effect, Model, Step, Stop, Trace
from .ops import AppendMessage, Emit, Incr, Outcome, Program, SetResult, SetState


def crash(at: str, nth: int = 1) -> Stop:
    return Stop("crash", at, nth)


def values(trace: Trace) -> dict[str, object]:
    return {observation.path: observation.value for observation in trace.observations}


def states(trace: Trace) -> list[dict[str, int]]:
    return [dict(observation.state) for observation in trace.observations]


NOT_DONE: tuple[Outcome, ...] = ("raises_not_done",)

# Sections 1 and 2: steps and writes.


def test_a_recorded_step_returns_its_result_and_applies_its_writes() -> None:
    model = Model()
    program: Program = (Step("s", writes=(Incr("x"), AppendMessage("m"))), Incr("x"), SetResult(7))
    model.attempt(program, stop=crash("after@0"))
    trace = model.attempt(program)
    assert values(trace)["0"] == "s(0)#1"
    assert states(trace) == [{"x": 1}, {"x": 2}, {"x": 2}]
    summary = model.summary()
    assert (summary.status, summary.result, summary.state, summary.messages) == (
        "finished",
        7,
        {"x": 2},
        ("m",),
    )
    assert summary.executions == {("s", 0): 1}


def test_a_step_that_has_not_committed_has_written_nothing_and_runs_again() -> None:
    model = Model()
    program: Program = (Step("s", writes=(Incr("x"),)),)
    model.attempt(program, stop=crash("step-body-done"))
    assert (model.summary().state, model.summary().status) == ({}, "crashed")
    assert values(model.attempt(program))["0"] == "s(0)#2"
    assert model.summary().state == {"x": 1}


def test_writes_in_the_open_are_consumed_and_the_recorded_value_wins() -> None:
    model = Model()
    model.attempt((SetState("x", 1), SetState("x", 2), AppendMessage("m")), stop=crash("after@2"))
    trace = model.attempt((SetState("x", 9), SetState("x", 2), AppendMessage("m"), Incr("x")))
    assert states(trace) == [{"x": 1}, {"x": 2}, {"x": 2}, {"x": 3}]
    assert model.summary().messages == ("m",)


def test_a_write_that_is_added_before_a_recorded_one_does_not_hide_it() -> None:
    model = Model()
    model.attempt((Step("s", writes=(SetState("x", 1), AppendMessage("m"))),), stop=crash("after@0"))
    model.attempt((SetState("x", 5), AppendMessage("n"), Step("s", writes=(SetState("x", 1),))), stop=crash("after@2"))
    assert (model.summary().state, model.summary().messages) == ({"x": 1}, ("n", "m"))


def test_a_write_after_reordered_steps_is_the_last() -> None:
    model = Model()
    one, two = (Step(name, writes=(SetState("x", value),)) for name, value in (("s", 1), ("t", 2)))
    model.attempt((one, two), stop=crash("after@1"))
    trace = model.attempt((two, one, SetState("x", 3)))
    assert states(trace) == [{"x": 2}, {"x": 1}, {"x": 3}]
    assert model.summary().state == {"x": 3}


def test_retries_are_counted_over_crashes() -> None:
    model = Model()
    program: Program = (Step("s", fails=3, retries=2),)
    model.attempt(program, stop=crash("attempt.failed:after", 2))
    assert model.attempt(program).error == "ArithmeticError"
    assert model.summary().executions == {("s", 0): 3}


def test_a_crash_in_a_body_is_not_an_attempt() -> None:
    model = Model()
    program: Program = (Step("s", fails=2, retries=1),)
    model.attempt(program, stop=crash("step-body-done"))
    assert model.attempt(program).ending == "finished"
    assert model.summary().executions == {("s", 0): 3}


def test_fresh_attempts_are_all_of_them() -> None:
    model = Model()
    for program in (
        (Step("s", fails=3, retries=1),),
        (Effect("e", outcomes=(*NOT_DONE * 3, "ok"), retries=1),),
    ):
        assert model.attempt((*program, Incr("x"))).ending == "failed"
        assert model.attempt((*program, Incr("x")), stop=crash("after@0")).ending == "crashed"


def test_a_failure_that_left_the_run_runs_again_with_fresh_attempts() -> None:
    model = Model()
    program: Program = (Catch(Step("s", fails=2, retries=1), then=Emit("E"), again=True),)
    assert model.attempt(program).error == "ArithmeticError"
    assert (model.summary().status, model.summary().error) == ("failed", "ArithmeticError")
    assert values(model.attempt(program))["0/0"] == "s(0)#3"
    assert model.summary().events == ("E",)


def test_a_failure_that_the_run_went_past_is_raised_again() -> None:
    model = Model()
    program: Program = (Catch(Step("s", fails=1)), Incr("x"))
    model.attempt(program, stop=crash("after@1"))
    assert values(model.attempt(program))["0"] == "caught ArithmeticError"
    assert model.summary().executions == {("s", 0): 1}


def test_a_failure_that_was_caught_but_nothing_came_after_runs_again() -> None:
    model = Model()
    program: Program = (Catch(Step("s", fails=1)), Incr("x"))
    model.attempt(program, stop=crash("after@0"))
    assert values(model.attempt(program))["0"] == "passed"


def test_what_is_only_buffered_does_not_go_past_a_failure() -> None:
    model = Model()
    program: Program = (Each(("a",), (Catch(Step("s", fails=1)), Incr("x"))),)
    model.attempt(program, stop=crash("item-body-done"))
    assert values(model.attempt(program))["0[a]/0"] == "passed"


def test_finishing_goes_past_a_failure() -> None:
    model = Model()
    program: Program = (Catch(Step("s", fails=1)),)
    first = model.attempt(program)
    assert model.attempt(program).observations == first.observations


def test_what_is_raised_while_a_failure_is_handled_left_for_its_sake() -> None:
    model = Model()
    program: Program = (Catch(Step("s", fails=1), then=Emit("E")),)
    assert model.attempt(program, stop=Stop("raise", "after@0/1")).error == "RuntimeError"
    assert values(model.attempt(program))["0"] == "passed"


def test_in_the_attempt_in_which_it_failed_an_id_runs_once_more() -> None:
    model = Model()
    program: Program = (Catch(Step("s", fails=1, id="i")), Incr("x"), Step("s", id="i"))
    assert model.attempt(program, stop=crash("after@1")).ending == "crashed"
    assert model.attempt(program).error == "ArithmeticError"
    assert Model().attempt(program).ending == "finished"


def test_a_failed_step_has_written_nothing() -> None:
    model = Model()
    trace = model.attempt((Catch(Step("s", fails=1, writes=(Incr("x"),))), Incr("x")))
    assert states(trace)[-1] == model.summary().state == {"x": 1}


def test_steps_inside_steps_are_plain_and_effects_are_refused() -> None:
    model = Model()
    model.attempt((Step("s", inside=(Step("t", writes=(Incr("x"),)),), writes=(Incr("x"),)),))
    assert (model.summary().state, model.summary().executions) == ({"x": 2}, {("s", 0): 1, ("t", 0): 1})
    other = Model()
    assert other.attempt((Step("s", inside=(Effect("e"),), retries=2),)).error == "EffectInsideStep"
    assert (other.summary().outside, other.summary().executions) == ((), {("s", 0): 1})


# Sections 2 and 3: effects.


@pytest.mark.parametrize(
    ("stop", "done_before"),
    [
        (crash("before@0"), 0),
        (crash("effect.intent:before"), 0),
        (crash("effect.intent:after"), 0),
        (crash("effect-body-done"), 1),
        (crash("effect.outcome:after"), 1),
        (Stop("interrupt", "before@0"), 0),
        (Stop("interrupt", "effect-body-done"), 1),
    ],
)
def test_with_a_check_an_effect_happens_once_wherever_it_stops(stop: Stop, done_before: int) -> None:
    model = Model()
    program: Program = (Effect("e", check="truth"),)
    model.attempt(program, stop=stop)
    assert len(model.summary().outside) == done_before
    assert model.attempt(program).ending == "finished"
    assert model.summary().outside == (("e", 0, 1),)


@pytest.mark.parametrize(
    ("outcome", "check", "value", "ending", "happened"),
    [
        ("ok", None, "e(0)#1", "finished", 1),
        ("raises_not_done", None, "NotDone", "failed", 0),
        ("raises_not_done", "done", "NotDone", "failed", 0),
        ("raises_after_doing", "truth", "e(0)#1", "finished", 1),
        ("raises_after_doing", "unknown", "InDoubt", "failed", 1),
        ("raises_after_doing", None, "InDoubt", "failed", 1),
        ("raises_before_doing", "truth", "ConnectionError", "failed", 0),
        ("raises_before_doing", "raises", "InDoubt", "failed", 0),
        ("raises_before_doing", "done", "adopted", "finished", 0),
    ],
)
def test_what_a_raising_body_means(outcome: Outcome, check: str, value: str, ending: str, happened: int) -> None:
    model = Model()
    trace = model.attempt((Effect("e", outcomes=(outcome,), check=check, in_doubt="retry"),))  # type: ignore[arg-type]
    assert (values(trace)["0"], trace.ending, len(model.summary().outside)) == (value, ending, happened)


def test_not_done_is_retried_with_the_same_key() -> None:
    model = Model()
    outcomes: tuple[Outcome, ...] = ("raises_not_done", "raises_before_doing", "ok")
    assert model.attempt((Effect("e", outcomes=outcomes, check="truth", retries=2),)).ending == "finished"
    assert (model.summary().outside, model.world.happened) == ((("e", 0, 1),), [("e", 0, 1)])


@pytest.mark.parametrize(("at", "ending"), [("attempt.failed:before", "waiting"), ("attempt.failed:after", "finished")])
def test_between_two_attempts_nothing_is_in_doubt(at: str, ending: str) -> None:
    model = Model()
    program: Program = (Effect("e", outcomes=(*NOT_DONE, "ok"), retries=1),)
    model.attempt(program, stop=crash(at))
    assert model.attempt(program).ending == ending


def test_a_failed_effect_that_left_the_run_runs_again_with_the_same_key() -> None:
    model = Model()
    program: Program = (Effect("e", outcomes=("raises_not_done", "ok")),)
    model.attempt(program)
    model.attempt(program)
    assert model.world.happened == [("e", 0, 1)]


def test_the_policy_retry_runs_again_and_fail_raises_and_neither_asks() -> None:
    for policy, ending, happened in (("retry", "finished", 2), ("fail", "failed", 1)):
        model = Model()
        program: Program = (Effect("e", in_doubt=policy),)  # type: ignore[arg-type]
        model.attempt(program, stop=crash("effect-body-done"))
        assert model.attempt(program).ending == ending
        assert len(model.world.happened) == happened
        assert {key for _, _, key in model.world.happened} == {1}
        assert model.summary().questions == 0


def test_ask_waits_until_somebody_answers() -> None:
    program: Program = (Effect("e"), Incr("x"))
    for answer, value, happened in (("done", "told", 1), ("retry", "e(0)#2", 2), ("fail", "InDoubt", 1)):
        model = Model()
        with pytest.raises(NothingToAnswer):
            model.answer(Answer("retry"))
        model.attempt(program, stop=crash("effect-body-done"))
        assert model.attempt(program).ending == "waiting"
        assert (model.summary().status, model.summary().questions) == ("waiting", 1)
        model.answer(Answer(answer, "told"))  # type: ignore[arg-type]
        with pytest.raises(NothingToAnswer):
            model.answer(Answer("retry"))
        assert values(model.attempt(program))["0"] == value
        assert values(model.attempt(program))["0"] == value
        assert len(model.world.happened) == happened


def test_an_answer_may_come_while_it_waits_and_survives_a_crash_there() -> None:
    model = Model()
    program: Program = (Effect("e"),)
    model.attempt(program, stop=crash("effect-body-done"))
    assert model.attempt(program, stop=crash("waiting")).ending == "crashed"
    assert model.summary().status == "waiting"
    assert values(model.attempt(program, answers=[Answer("done", "told")]))["0"] == "told"


def test_in_doubt_in_the_process_opens_no_question_until_the_resume() -> None:
    model = Model()
    program: Program = (Catch(Effect("e", outcomes=("raises_after_doing",))), Incr("x"))
    trace = model.attempt(program, stop=crash("after@1"))
    assert (values(trace)["0"], model.summary().questions) == ("caught InDoubt", 0)
    assert model.attempt(program).error == "RunWaiting"
    assert model.summary().questions == 1


def test_while_an_intent_is_unresolved_no_other_of_that_name_starts() -> None:
    doubtful = Catch(Effect("e", 0, outcomes=("raises_after_doing",)))
    assert Model().attempt((doubtful, Effect("e", 1))).error == "Diverged"
    assert Model().attempt((doubtful, Effect("e", 1, on_change="rerun"))).error == "Diverged"
    assert Model().attempt((doubtful, Effect("f", 1))).ending == "finished"
    assert Model().attempt((doubtful, Each(("a",), (Effect("e", 1),)))).ending == "finished"


def test_a_finished_run_keeps_its_doubt_and_takes_no_answer() -> None:
    model = Model()
    model.attempt((Effect("e"),), stop=crash("effect-body-done"))
    model.attempt((Effect("e"),))
    assert model.attempt(()).ending == "finished"
    assert model.attempt((Effect("e"),), answers=[Answer("retry")]).error == "InDoubt"
    with pytest.raises(NothingToAnswer):
        model.answer(Answer("retry"))


# Section 4: matching.


def test_adding_removing_and_reordering_steps_is_fine() -> None:
    model = Model()
    model.attempt((Step("s", 0), Step("s", 1), Step("t")), stop=crash("after@2"))
    trace = model.attempt((Step("t"), Step("new"), Step("s", 1), Step("s", 1)))
    assert [observation.value for observation in trace.observations] == ["t(0)#1", "new(0)#1", "s(1)#1", "s(1)#2"]


def test_an_id_replaces_the_digest() -> None:
    model = Model()
    model.attempt((Effect("e", 0, id="i"), Step("s", 0, id="i")), stop=crash("after@1"))
    trace = model.attempt((Step("s", 1, id="i"), Effect("e", 1, id="i")))
    assert [observation.value for observation in trace.observations] == ["s(0)#1", "e(0)#1"]


def test_an_id_that_is_called_twice_is_one_call_and_writes_once() -> None:
    model = Model()
    step = Step("s", id="i", writes=(AppendMessage("m"),))
    for _ in range(2):
        assert model.attempt((step, step)).observations[-1].messages == model.summary().messages == ("m",)
    assert model.summary().executions == {("s", 0): 1}


@pytest.mark.parametrize(("answer", "error"), [("done", None), ("fail", None), ("retry", "Diverged")])
def test_an_answer_settles_an_effect_that_the_code_does_not_come_to(answer: str, error: str | None) -> None:
    model = Model()
    model.attempt((Effect("e", 0),), stop=crash("effect-body-done"))
    model.attempt((Effect("e", 0),))
    model.answer(Answer(answer, "told"))  # type: ignore[arg-type]
    assert model.attempt((Effect("e", 1, on_change="rerun"),)).error == error


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ((Effect("e", 1), Effect("e", 0)), "Diverged"),
        ((Effect("e", 0, id="i"),), "Diverged"),
        ((Effect("e", 0), Effect("e", 1)), None),
        ((Effect("e", 1, on_change="rerun"),), None),
        ((Effect("f", 1),), None),
        ((Each(("a",), (Effect("e", 1),)),), None),
        ((), None),
    ],
)
def test_only_an_effect_that_meets_a_recorded_one_diverges(changed: Program, error: str | None) -> None:
    model = Model()
    model.attempt((Effect("e", 0),), stop=crash("after@0"))
    assert model.attempt(changed).error == error
