"""Stories on which the model and the real thing did not agree at first, or that one rule hangs on."""

from __future__ import annotations

from dataclasses import replace

from ..model.ops import (
    Answer,
    AppendMessage,
    Break,
    Catch,
    Delete,
    Each,
    Effect,
    Emit,
    Incr,
    ItemDone,
    Move,
    Op,
    SetResult,
    SetState,
    Start,
    Step,
    Stop,
)
from ..model.strategies import ways_to_stop


def crash(at: str, nth: int = 1) -> Stop:
    return Stop("crash", at, nth)


def start(*program: Op, stop: Stop | None = None) -> Start:
    return Start(program, stop)


def restart_at(*program: Op, stops: tuple[Stop | None, ...]) -> tuple[Start, ...]:
    """The same program, once with each stop."""
    return tuple(Start(program, stop) for stop in stops)


BOOK = Effect("e")
IN_THE_BODY = crash("effect-body-done")
FAILING = Catch(Step("s", fails=1))

FAILURES: dict[str, tuple[Move, ...]] = {
    "an item that is done goes past a failure": restart_at(
        Each(("a",), (FAILING, Each(("b",), ()))), stops=(crash("item.done:after"), None)
    ),
    "a failed attempt goes past a failure": restart_at(
        FAILING, Step("t", fails=2, retries=2), stops=(crash("attempt.failed:after"), None)
    ),
    "an effect that check settles goes past a failure": (
        start(BOOK, stop=IN_THE_BODY),
        start(FAILING, Effect("e", check="truth"), stop=crash("effect.outcome:after")),
        start(FAILING, BOOK),
    ),
    "an effect that begins again goes past a failure": (
        start(BOOK, stop=IN_THE_BODY),
        start(FAILING, Effect("e", in_doubt="retry"), stop=crash("effect.again:after")),
        start(FAILING, BOOK),
    ),
    "a question goes past a failure": (
        start(BOOK, stop=IN_THE_BODY),
        start(FAILING, BOOK),
        start(FAILING, BOOK),
    ),
    "a failure that ended an attempt is the cause for good": restart_at(
        Catch(Step("s", fails=1), then=Emit("E"), again=True), stops=(None, Stop("raise", "before"), None)
    ),
    "what is raised while a failure is handled has that cause": restart_at(
        Catch(Step("s", fails=1), then=Emit("E")), stops=(Stop("raise", "after"), None)
    ),
    "a killed attempt did not go past its failure": (
        start(Step("t", 1, fails=1), stop=crash("step.failed:after")),
        start(Step("t", 0, fails=1), Step("t", 1, fails=1)),
        start(Step("t", 0, fails=1), Step("t", 1, fails=1)),
    ),
    "a failure is called by its id once more": restart_at(
        Catch(Step("s", fails=1, id="i")),
        Incr("x"),
        Step("s", id="i"),
        Incr("x"),
        stops=(crash("after", 2), None, None),
    ),
    "a failed effect is called by its id once more": restart_at(
        Catch(Effect("e", outcomes=("raises_not_done", "ok"), id="i")),
        Incr("x"),
        Effect("e", outcomes=("raises_not_done", "ok"), id="i"),
        stops=(None, None),
    ),
    "a failure is recorded in a finished run": (
        start(Step("s", fails=1)),
        start(),
        start(Step("s", fails=1)),
    ),
    "a caught failure stays one when the run has finished": restart_at(FAILING, stops=(None, None)),
    "a wrong use is not repeated": restart_at(
        Catch(Step("s", retries=2, inside=(BOOK,))), Incr("x"), stops=(crash("after", 3), None)
    ),
}

WRITES: dict[str, tuple[Move, ...]] = {
    "program order wins": restart_at(
        Each(("a",), (SetState("x", 1), Step("s", writes=(SetState("x", 2),)))), stops=(None, None)
    ),
    "program order wins for deletions": restart_at(
        SetState("x", 0), Each(("a",), (Delete("x"), Step("s", writes=(Incr("x"),)), Incr("x"))), stops=(None, None)
    ),
    "program order wins for results": restart_at(
        Each(("a",), (SetResult(1), Step("s", writes=(SetResult(2),)), Each(("b",), (SetResult(3),)))),
        stops=(None, None),
    ),
    "a result in an item lands with it": restart_at(
        SetResult(3), Each(("a", "b"), (SetResult(1),)), stops=(crash("item.done:after"), None, None)
    ),
    "a result in an item is dropped with it": restart_at(
        SetResult(3), Each(("a",), (SetResult(1), Break())), stops=(None, None)
    ),
    "a write in the open is consumed": restart_at(
        SetState("x", 1), Delete("x"), AppendMessage("m"), Incr("x"), stops=(crash("after", 3), None)
    ),
    "the last write after steps changed places": (
        start(Step("s", writes=(SetState("x", 1),)), Step("t", writes=(SetState("x", 2),)), stop=crash("after", 2)),
        start(Step("t"), Step("s"), SetState("x", 3)),
    ),
    "an id that is called twice writes once": restart_at(
        Step("s", id="i", writes=(AppendMessage("m"),)),
        Incr("x"),
        Step("s", id="i", writes=(AppendMessage("m"),)),
        stops=(crash("after", 2), None, None),
    ),
    "a finished run leaves its loop as before": restart_at(
        Each(("a",), (Incr("x"), AppendMessage("m"), Break())), Incr("y"), stops=(None, None)
    ),
    "an exception leaves the item before anybody sees": restart_at(
        Catch(Each(("a",), (Incr("x"), Step("s", fails=1)))), Incr("y"), stops=(crash("after", 3), None)
    ),
    "after item_done the code is around the loop": restart_at(
        Each(("a", "b"), (Incr("x"), ItemDone(), Step("s"), Incr("y"))), stops=(crash("after", 6), None)
    ),
    "equal items are counted": restart_at(Each(("a", "a"), (Step("s"),)), stops=(crash("item.done:after"), None)),
}

DOUBT: dict[str, tuple[Move, ...]] = {
    "no other of that name starts while one is in doubt": (
        start(Catch(Effect("e", outcomes=("raises_after_doing",))), Effect("e", 1, on_change="rerun")),
    ),
    "the policy acts on resume": restart_at(
        Effect("e", in_doubt="retry", outcomes=("raises_after_doing", "ok")), stops=(None, None)
    ),
    "a crashed run is answered before it has asked": (
        start(BOOK, stop=IN_THE_BODY),
        Answer("done", "told"),
        Answer("retry"),
        start(BOOK),
    ),
    "a run with a question waits, whoever crashes": (
        start(Incr("x"), BOOK, stop=IN_THE_BODY),
        start(Incr("x"), BOOK),
        start(Incr("x"), BOOK, stop=crash("before")),
    ),
    "a finished run keeps its doubt and hears nobody": (
        start(BOOK, stop=IN_THE_BODY),
        start(),
        Answer("done", "told"),
        start(BOOK),
    ),
    "a question is closed when the policy has become retry": (
        start(BOOK, stop=IN_THE_BODY),
        start(BOOK),
        start(Effect("e", in_doubt="retry")),
    ),
    "a question is closed before the body begins again": (
        start(BOOK, stop=IN_THE_BODY),
        start(BOOK),
        Answer("retry"),
        start(BOOK, stop=crash("run.question:after")),
        start(BOOK),
    ),
    "a run with two questions waits until both are closed": (
        start(BOOK, stop=IN_THE_BODY),
        start(BOOK),
        start(Effect("f"), stop=IN_THE_BODY),
        start(Effect("f")),
        Answer("retry"),
        Answer("retry"),
        start(Effect("f"), stop=crash("effect.again:after")),
        start(BOOK),
    ),
    "an answer settles an effect that the code has given up": (
        start(BOOK, stop=IN_THE_BODY),
        start(BOOK),
        Answer("fail"),
        start(Effect("e", 1, on_change="rerun")),
    ),
    "a failed effect is not forgotten": (
        start(Effect("e", 0, outcomes=("raises_not_done",))),
        start(Effect("e", 1)),
    ),
    "what was written in the body is lost when check says done": restart_at(
        Effect("e", check="truth", writes=(Incr("x"),)), stops=(IN_THE_BODY, None)
    ),
    "a cancelled effect is in doubt": restart_at(
        Effect("e", check="truth"), stops=(Stop("interrupt", "effect-body-done"), None)
    ),
}

STORIES = FAILURES | WRITES | DOUBT

EVERYTHING = (
    SetState("x", 1),
    Step("s", writes=(Incr("x"), AppendMessage("m"), Emit("E"), SetResult(1))),
    Step("t", fails=1, retries=1),
    Catch(Step("t", 1, fails=9), then=AppendMessage("n")),
    Effect("e", check="truth", outcomes=("raises_not_done", "ok"), retries=1, writes=(Incr("y"),)),
    Catch(Effect("f", outcomes=("raises_not_done",))),
    Each(("a", "b"), (Incr("y"), Step("s"), Each(("c",), (AppendMessage("o"), Delete("x"))))),
    Effect("g", outcomes=("raises_before_doing", "ok")),
    SetResult(2),
)
"""A program that comes to every kind of commit, in the attempts of `TOLD_TO_THE_END` taken together."""

TOLD_TO_THE_END: tuple[Move, ...] = (
    start(*EVERYTHING),  # fails with InDoubt
    start(*EVERYTHING),  # waits
    Answer("retry"),
    start(*EVERYTHING),
)


def crash_everywhere(points: tuple[str, ...]) -> dict[str, tuple[Move, ...]]:
    """That story, with a crash at one of these points in one of its attempts, and one attempt more."""
    told: dict[str, tuple[Move, ...]] = {}
    for at, move in enumerate(TOLD_TO_THE_END):
        if isinstance(move, Start):
            before, after = TOLD_TO_THE_END[:at], TOLD_TO_THE_END[at:]
            for point, (_, count) in ways_to_stop(before, move, ("crash",), points).items():
                for nth in range(1, count + 1):
                    stopped = replace(move, stop=crash(point, nth))
                    told[f"{at} {point} {nth}"] = (*before, stopped, *after)
    return told
