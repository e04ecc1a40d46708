"""What must be true of every story: the guarantees of docs/about/guarantees.md, asked of the model by Hypothesis."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import HealthCheck, assume, given, settings

from . import Model, Start, Trace
from .ops import Effect, Move, Program, Wake
from .strategies import CALM, HONEST, REPLAYABLE, ZOMBIES, stories


def final_view(model: Model) -> tuple[object, ...]:
    summary = model.summary()
    return (
        summary.status,
        summary.result,
        summary.state,
        summary.messages,
        Counter(summary.events),
        Counter(summary.outside),
    )


def program_of(moves: tuple[Move, ...]) -> Program:
    return next(move.program for move in reversed(moves) if isinstance(move, Start))


@given(stories(edited=True, kinds=ZOMBIES))
def test_every_story_can_be_told(moves: tuple[Move, ...]) -> None:
    """No story leads to a transition that the tables forbid, and all traces end."""
    traces = Model().play(moves)
    assert all(trace.ending is not None for trace in traces)


@given(stories(edited=True, kinds=ZOMBIES))
def test_a_story_has_one_meaning(moves: tuple[Move, ...]) -> None:
    one, two = Model(), Model()
    assert one.play(moves) == two.play(moves)
    assert one.summary() == two.summary()


@given(stories(HONEST, edited=True, kinds=ZOMBIES, verdicts=("done", "fail")))
def test_no_effect_happens_twice_unless_somebody_said_so(moves: tuple[Move, ...]) -> None:
    """Guarantee 4, zombies and changed code included; the checks do not lie and nobody says retry."""
    model = Model()
    model.play(moves)
    assert all(count == 1 for count in Counter(model.summary().outside).values())


@given(stories(CALM, verdicts=()))
def test_stopping_leaves_no_trace_in_the_end(moves: tuple[Move, ...]) -> None:
    """Without failures and wrong answers, a run that was stopped again and again ends like one that was not."""
    undisturbed, stopped = Model(), Model()
    undisturbed.attempt(program_of(moves))
    stopped.play(moves)
    assert final_view(stopped) == final_view(undisturbed)


@given(stories(CALM, verdicts=()))
def test_at_the_end_the_code_has_seen_what_is_durable(moves: tuple[Move, ...]) -> None:
    """Program order wins: the state that the code sees last is the one that others see.

    Not so when the code takes another way than before, for a step that had failed: what it wrote on the first
    way stays visible to others, and the code does not come to it any more.
    """
    model = Model()
    last = model.play(moves)[-1]
    assume(last.ending == "finished" and last.observations and last.observations[-1].what == "returned")
    assert dict(last.observations[-1].state) == model.summary().state
    assert last.observations[-1].messages == model.summary().messages


@given(stories(REPLAYABLE, edited=True))
def test_what_is_finished_stays_so(moves: tuple[Move, ...]) -> None:
    """A finished run is replayed: the same results, nothing new, the world untouched."""
    model = Model()
    traces = model.play(moves)
    assume(traces[-1].ending == "finished")
    before = model.summary()
    again = model.attempt(program_of(moves))
    assert (again.ending, model.summary()) == ("finished", before)
    assert drop_item_bodies(again) == drop_item_bodies(traces[-1])


@given(stories(CALM, verdicts=()))
def test_a_returned_call_is_never_executed_again(moves: tuple[Move, ...]) -> None:
    """Guarantee 3: what a call has once returned, it returns in every later attempt of the same program."""
    returned: dict[str, object] = {}
    for trace in Model().play(moves):
        now = results(trace)
        assert all(returned[path] == value for path, value in now.items() if path in returned)
        returned.update(now)


def drop_item_bodies(trace: Trace) -> list[tuple[str, object]]:
    """What is not in an item: the body of a finished one is not entered any more."""
    return [(observation.path, observation.value) for observation in trace.observations if "[" not in observation.path]


def results(trace: Trace) -> dict[str, object]:
    return {
        observation.path: observation.value
        for observation in trace.observations
        if observation.what == "returned" and observation.value is not None
    }


@given(stories(HONEST, kinds=ZOMBIES))
def test_a_zombie_changes_nothing_after_the_takeover(moves: tuple[Move, ...]) -> None:
    """Guarantee 5: once another process has had the run, waking the old holder changes nothing durable."""
    model = Model()
    traces = model.play(move for move in moves if not isinstance(move, Wake))
    before = model.summary()
    for zombie in [trace for trace in traces if trace.ending == "frozen"]:
        assert model.wake(zombie).ending in ("failed", "interrupted", "waiting")
    after = model.summary()
    assert replace(after, executions={}) == replace(before, executions={})


def test_the_strategies_reach_what_they_are_for() -> None:
    """Otherwise the properties above would hold of nothing."""
    seen: Counter[str] = Counter()

    @settings(max_examples=300, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(stories(edited=True, kinds=ZOMBIES))
    def look(moves: tuple[Move, ...]) -> None:
        model = Model()
        for trace in model.play(moves):
            seen.update({str(trace.ending), str(trace.error)})
            seen.update({str(observation.value) for observation in trace.observations if observation.what == "raised"})
        seen.update({"twice"} if max(Counter(model.summary().outside).values(), default=0) > 1 else ())
        seen.update({"effects"} if any(isinstance(op, Effect) for op in program_of(moves)) else ())

    look()
    wanted = ("finished", "failed", "interrupted", "waiting", "crashed", "refused", "effects", "twice")
    errors = ("RunBusy", "RunWaiting", "Diverged", "InDoubt", "NotDone", "LeaseLost", "RunFinished")
    assert not [name for name in (*wanted, *errors, "ArithmeticError", "ConnectionError") if not seen[name]], seen
