"""Items, runs and leases in the model against sections 5 to 7 of docs/about/semantics.md, row by row."""

from __future__ import annotations

import pytest

from perdure.errors import NothingToAnswer

from . import Answer, Catch, Each, Effect, Model, Step, Stop
from .journal import check_transition
from .ops import AppendMessage, Break, Delete, Incr, ItemDone, Program, SetResult, SetState
from .test_model import crash, states, values


def freeze(at: str, nth: int = 1) -> Stop:
    return Stop("freeze", at, nth)


# Section 5: items.


def test_an_item_continues_where_it_was_and_its_writes_land_once() -> None:
    body = (Incr("x"), Step("s", writes=(Incr("y"),)), AppendMessage("m"))
    program: Program = (Each(("a", "b"), body), SetResult(1))
    model = Model()
    trace = model.attempt(program, stop=crash("item-body-done", 2))
    assert states(trace)[-1] == {"x": 2, "y": 2}
    assert (model.summary().state, model.summary().messages) == ({"x": 1, "y": 2}, ("m",))
    trace = model.attempt(program)
    assert [observation.path for observation in trace.observations] == ["0[b]", "0[b]/0", "0[b]/1", "0[b]/2", "0", "1"]
    assert dict(trace.observations[0].state) == {"x": 1, "y": 1}
    assert (model.summary().state, model.summary().executions) == ({"x": 2, "y": 2}, {("s", 0): 2})


def test_program_order_wins_over_the_order_of_commits() -> None:
    body = (SetState("x", 1), AppendMessage("m"), Step("s", writes=(SetState("x", 2), AppendMessage("n"))))
    model = Model()
    trace = model.attempt((Each(("a",), (*body, AppendMessage("o"))),))
    assert (model.summary().state, model.summary().messages) == ({"x": 2}, ("m", "n", "o"))
    assert trace.observations[-1].messages == ("m", "n", "o")


def test_an_exception_or_break_leaves_the_item_open_and_drops_its_writes() -> None:
    for leaving in (Step("t", fails=9), Break()):
        model = Model()
        loop = Each(("a", "b"), (Incr("x"), Step("s", writes=(Incr("y"),)), leaving))
        trace = model.attempt((Catch(loop), Incr("z")))
        assert states(trace)[-1] == model.summary().state == {"y": 1, "z": 1}
        assert "0/0[b]" not in values(trace)


def test_item_done_closes_the_item_before_a_break() -> None:
    model = Model()
    program: Program = (Each(("a", "b"), (Incr("x"), ItemDone(), Break())),)
    model.attempt(program, stop=crash("after@0"))
    assert model.summary().state == {"x": 1}
    assert "0[b]" in values(model.attempt(program))
    assert model.summary().state == {"x": 2}


def test_an_inner_item_lands_by_itself() -> None:
    model = Model()
    program: Program = (Each(("a",), (Incr("x"), Each(("b",), (Incr("y"),)))),)
    model.attempt(program, stop=crash("item-body-done", 2))
    assert model.summary().state == {"y": 1}
    model.attempt(program)
    assert model.summary().state == {"x": 1, "y": 1}


def test_items_are_told_apart_by_key_else_by_digest_and_count() -> None:
    model = Model()
    model.attempt((Each((("a", 0),), (Step("s"),), key=0),), stop=crash("after@0"))
    assert "0[a]" not in values(model.attempt((Each((("a", 1),), (Step("s"),), key=0),)))
    model = Model()
    model.attempt((Each(("a", "a"), (Step("s"),)),), stop=crash("after@0[a]/0"))
    model.attempt((Each(("b", "a", "a"), (Step("s"),)), Each(("a",), (Step("s"),))))
    assert model.summary().executions == {("s", 0): 4}


def test_a_result_lands_with_its_item_and_in_the_open_with_the_end() -> None:
    model = Model()
    program: Program = (SetResult(1), Each(("a", "b"), (SetResult(2), Step("s", writes=(SetResult(3),)))))
    trace = model.attempt(program, stop=crash("item-body-done", 2))
    assert [observation.result for observation in trace.observations] == [1, 1, 2, 3, 3, 2, 3]
    assert model.summary().result is None
    assert model.attempt((Each(("a",), ()),)).ending == "finished"
    assert model.summary().result == 3


def test_a_result_in_an_item_is_dropped_with_it() -> None:
    model = Model()
    model.attempt((SetResult(1), Each(("a",), (SetResult(2), Break()))))
    assert model.summary().result == 1


def test_a_deletion_is_a_write_and_only_of_what_is_there() -> None:
    model = Model()
    program: Program = (
        Delete("x"),
        Incr("x"),
        Each(("a",), (Delete("x"), Step("s", writes=(Incr("x"),)))),
        Delete("x"),
    )
    trace = model.attempt(program, stop=crash("after@2"))
    assert states(trace) == [{}, {"x": 1}, {"x": 1}, {}, {"x": 1}, {"x": 1}]
    assert model.summary().state == {"x": 1}
    assert states(model.attempt(program)) == [{}, {"x": 1}, {"x": 1}, {}]
    assert model.summary().state == {}


@pytest.mark.parametrize(
    ("first", "changed", "reordered"),
    [
        ((Step("s", writes=(Incr("x"),)),), (Incr("y"), Step("s")), True),
        ((Step("s", writes=(Incr("x"),)),), (Step("s"), Incr("y")), False),
        ((Step("s"),), (Incr("y"), Step("s")), False),
        ((Each(("a",), (Step("s", writes=(Incr("x"),)),)),), (Each(("a",), (Incr("x"), Step("s"))),), False),
        ((Each(("a",), (Step("s", writes=(Incr("x"),)),)),), (Each(("a",), (Incr("x"),)),), True),
        ((AppendMessage("m"), Step("s", writes=(AppendMessage("n"),))), (Step("s"), AppendMessage("m")), True),
        ((Step("t", writes=(Incr("x"),)), Step("s", writes=(Incr("x"),))), (Step("s"), Step("t")), False),
    ],
)
def test_writes_that_change_places_are_noticed(first: Program, changed: Program, reordered: bool) -> None:
    model = Model()
    model.attempt(first, stop=crash("step.done:after", sum(isinstance(op, Step) for op in first) or 1))
    model.attempt(changed)
    assert model.reordered == reordered


# Sections 6 and 7: runs and leases.


def test_how_a_run_ends_and_goes_on() -> None:
    model = Model()
    program: Program = (Incr("x"), Incr("x"))
    assert model.attempt(program, stop=Stop("interrupt", "after@0"), input=1).ending == "interrupted"
    assert (model.summary().status, model.summary().state) == ("interrupted", {"x": 1})
    assert model.attempt(program, input=2).error == "InputChanged"
    assert model.attempt(program, stop=Stop("raise", "before@1"), input=1).ending == "failed"
    assert (model.summary().status, model.summary().error) == ("failed", "RuntimeError")
    assert model.attempt(program).ending == "finished"
    assert (model.summary().status, model.summary().error, model.summary().state) == (
        "finished",
        None,
        {"x": 2},
    )


@pytest.mark.parametrize("new", [Step("t"), Effect("e", 1), Incr("y"), Each(("b",), ())])
def test_a_finished_run_is_replayed_and_does_nothing_new(new: Step) -> None:
    model = Model()
    program: Program = (Step("s"), Effect("e"), Incr("x"), Each(("a",), (Incr("x"),), name="l"), SetResult(1))
    first = model.attempt(program)
    before = model.summary()
    again = model.attempt(program)
    # `run.result` of a finished run is what it came to, wherever the code is
    outside = [observation._replace(result=1) for observation in first.observations if "[" not in observation.path]
    assert outside == again.observations
    assert model.attempt((*program, new)).error == "RunFinished"
    assert model.summary() == before


def test_a_stopped_holder_keeps_the_run_until_its_lease_runs_out() -> None:
    model = Model()
    program: Program = (Step("s"), Incr("x"))
    zombie = model.attempt(program, stop=freeze("step-body-done"))
    busy = model.attempt(program)
    assert (busy.ending, busy.error, model.summary().status) == ("refused", "RunBusy", "running")
    model.pass_time(31)
    assert model.attempt(program).ending == "finished"
    before = model.summary()
    assert model.wake(zombie).error == "LeaseLost"
    assert model.summary() == before


def test_a_stopped_holder_that_wakes_in_time_goes_on() -> None:
    model = Model()
    zombie = model.attempt((Incr("x"), Incr("x")), stop=freeze("after@0"))
    model.pass_time(29)
    assert model.wake(zombie).ending == "finished"
    assert model.summary().state == {"x": 2}


def test_a_dead_holder_is_taken_over_at_once() -> None:
    model = Model()
    zombie = model.attempt((Incr("x"),), stop=freeze("before@0"))
    model.kill(zombie)
    assert model.attempt((Incr("x"),)).ending == "finished"


def test_a_zombie_does_not_start_an_effect_after_its_lease_was_lost() -> None:
    model = Model()
    program: Program = (Effect("e", check="truth", timeout=5.0),)
    zombie = model.attempt(program, stop=freeze("effect.intent:after"))
    model.pass_time(31)
    assert model.attempt(program).ending == "finished"
    assert model.wake(zombie).error == "LeaseLost"
    assert model.summary().outside == (("e", 0, 1),)


@pytest.mark.parametrize(("timeout", "ending"), [(None, "waiting"), (60.0, "waiting"), (5.0, "finished")])
def test_not_done_is_believed_only_when_the_body_cannot_go_on(timeout: float | None, ending: str) -> None:
    model = Model()
    program: Program = (Effect("e", check="truth", timeout=timeout),)
    zombie = model.attempt(program, stop=freeze("effect.intent:after"))
    model.pass_time(31)
    assert model.attempt(program).ending == ending
    if ending == "waiting":
        model.kill(zombie)
        assert model.attempt(program).ending == "finished"


def test_a_waiting_zombie_hears_an_answer_only_while_it_holds_the_run() -> None:
    for seconds, error in ((1, None), (31, "LeaseLost")):
        model = Model()
        program: Program = (Effect("e"),)
        model.attempt(program, stop=crash("effect-body-done"))
        zombie = model.attempt(program, stop=freeze("waiting"))
        model.answer(Answer("done", "told"))
        model.pass_time(seconds)
        if error:
            assert model.attempt(program).ending == "finished"
        assert model.wake(zombie).error == error
        assert model.summary().status == "finished"


def test_a_crashed_run_is_answered_before_it_asks() -> None:
    model = Model()
    program: Program = (Effect("e"), Effect("f"))
    model.attempt(program, stop=crash("effect-body-done"))
    model.answer(Answer("done", "told"))
    with pytest.raises(NothingToAnswer):
        model.answer(Answer("retry"))
    trace = model.attempt(program)
    assert (values(trace)["0"], trace.ending) == ("told", "finished")


def test_a_run_with_an_open_question_waits_whoever_crashes() -> None:
    model = Model()
    program: Program = (Incr("x"), Effect("e"))
    model.attempt(program, stop=crash("effect-body-done"))
    assert model.summary().status == "crashed"
    model.attempt(program)
    model.attempt(program, stop=crash("before@0"))
    assert (model.summary().status, model.summary().questions) == ("waiting", 1)
    model.answer(Answer("retry"))
    model.attempt(program, stop=crash("run.question:after"))
    assert (model.summary().status, model.summary().questions) == ("crashed", 0)
    assert model.attempt(program).ending == "finished"


def test_the_tables_of_transitions_refuse() -> None:
    with pytest.raises(AssertionError, match="done -> intent"):
        check_transition("effect", "done", "intent")
    with pytest.raises(AssertionError, match="finished -> running"):
        check_transition("run", "finished", "running")
    with pytest.raises(ValueError, match="cannot happen"):
        Stop("raise", "effect.intent:after")
