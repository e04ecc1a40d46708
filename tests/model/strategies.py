"""Hypothesis strategies: programs, edits of them, what befalls processes, and whole stories made of these.

Small alphabets on purpose: names, arguments, keys and items collide often, which is where matching goes
wrong. What the semantics leave open is not generated: a name that is both a step and an effect, a key that two
items of a loop share.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from hypothesis import strategies as st

from .machine import Model
from .ops import (
    MAY_HAPPEN_AT,
    POINTS,
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
    Kill,
    Move,
    Op,
    PassTime,
    Program,
    SetResult,
    SetState,
    Start,
    Step,
    Stop,
    Wake,
    WriteOp,
)


@dataclass(frozen=True)
class Shape:
    """What may occur. `calm` programs give the same end however often they crash: see test_model.py."""

    failures: bool = True
    lying_checks: bool = True
    effect_writes: bool = True
    """In the body of an effect: they are lost when `check` or a person says that it was done."""
    early_items: bool = True
    """`run.item_done()` before a `break`: a resumed loop goes further than one that was not stopped."""
    nested: bool = True
    """Steps, and effects that are refused, inside steps."""
    policies: tuple[str, ...] = ("ask", "retry", "fail")
    checks: tuple[str | None, ...] = (None, "unknown", "raises", "truth")


ANY = Shape()
HONEST = Shape(lying_checks=False, policies=("ask", "fail"))
CALM = Shape(False, lying_checks=False, effect_writes=False, early_items=False, nested=False, checks=("truth",))
REPLAYABLE = Shape(early_items=False)

ZOMBIES = ("crash", "interrupt", "raise", "freeze", "freeze")
"""Kinds of stops, with processes that are only stopped for a while."""
ARGS = st.integers(0, 1)
LONG = PassTime(61.0)
"""Longer than a lease and the timeout of an effect together."""


@cache
def writes() -> st.SearchStrategy[WriteOp]:
    keys = st.sampled_from("xy")
    return evenly(
        st.builds(SetState, keys, st.integers(0, 3)),
        st.builds(Incr, keys),
        st.builds(Delete, keys),
        st.builds(SetResult, st.integers(0, 3)),
        st.builds(AppendMessage, st.sampled_from("mn")),
        st.builds(Emit, st.sampled_from("EF")),
    )


def evenly(*kinds: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Each as often as it is listed, which `one_of` does not promise."""
    return st.sampled_from(kinds).flatmap(lambda kind: kind)


@cache
def draw_few(what: st.SearchStrategy[Any], most: int = 2, least: int = 0) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(what, min_size=least, max_size=most).map(tuple)


@cache
def steps(shape: Shape = ANY) -> st.SearchStrategy[Step]:
    most = 2 if shape.failures else 0
    inner = st.builds(
        Step, name=st.sampled_from("st"), arg=ARGS, writes=draw_few(writes(), 1), fails=st.integers(0, most)
    )
    inside = draw_few(inner | st.builds(Effect, name=st.just("e")), 1, 1) if shape.nested else st.just(())
    return st.builds(
        Step,
        name=st.sampled_from("st"),
        arg=ARGS,
        writes=draw_few(writes()),
        fails=st.sampled_from((0, 0, 0, most, most // 2)),
        retries=st.integers(0, 2),
        id=st.none() | st.sampled_from(("i", "j")),
        inside=st.sampled_from((False,) * 9 + (True,)).flatmap(lambda nested: inside if nested else st.just(())),
    )


@cache
def effects(shape: Shape = ANY) -> st.SearchStrategy[Effect]:
    raising = ("raises_not_done", "raises_after_doing", "raises_before_doing") if shape.failures else ()
    lies = ("done", "not_done") if shape.lying_checks else ()
    return st.builds(
        Effect,
        name=st.sampled_from("ef"),
        arg=ARGS,
        writes=draw_few(writes(), 1 if shape.effect_writes else 0),
        check=st.sampled_from((*shape.checks, *lies)),
        in_doubt=st.sampled_from(shape.policies),
        outcomes=st.lists(st.sampled_from(("ok", "ok", "ok", *raising)), min_size=1, max_size=2).map(tuple),
        retries=st.integers(0, 1),
        id=st.none() | st.sampled_from(("i", "j")),
        timeout=st.sampled_from((None, 5.0)),
        on_change=st.sampled_from(("error", "error", "rerun")),
    )


def catches(op: st.SearchStrategy[Op]) -> st.SearchStrategy[Catch]:
    return st.builds(Catch, op, st.none() | writes(), st.sampled_from((False, False, True)))


@cache
def loops(body: st.SearchStrategy[Op], shape: Shape = ANY) -> st.SearchStrategy[Each]:
    early: tuple[tuple[ItemDone | Break, ...], ...] = (
        ((ItemDone(), Break()), (ItemDone(),)) if shape.early_items else ()
    )
    endings = st.sampled_from(((), (), (), (Break(),), *early))
    bodies = st.tuples(draw_few(body, 3), endings).map(lambda parts: parts[0] + parts[1])
    plain = st.lists(st.sampled_from("abc"), max_size=3).map(tuple)
    pairs = st.lists(st.tuples(st.sampled_from("abc"), ARGS), max_size=3, unique_by=lambda pair: pair[0]).map(tuple)
    names = st.none() | st.sampled_from(("first", "second"))
    return st.builds(Each, plain, bodies, names) | st.builds(Each, pairs, bodies, names, st.just(0))


@cache
def ops(shape: Shape = ANY, depth: int = 2) -> st.SearchStrategy[Op]:
    """Nested at most `depth` deep, and the kinds as often as they are listed."""
    kinds: list[st.SearchStrategy[Any]] = [
        writes(),
        writes(),
        steps(shape),
        steps(shape),
        effects(shape),
        effects(shape),
    ]
    if depth:
        inner = ops(shape, depth - 1)
        kinds += [catches(inner), catches(effects(shape) | steps(shape)), loops(inner, shape), loops(inner, shape)]
    return evenly(*kinds)


@cache
def programs(shape: Shape = ANY, most: int = 5) -> st.SearchStrategy[Program]:
    return st.integers(1, most).flatmap(lambda size: draw_few(ops(shape), size, size))


@st.composite
def edits(draw: st.DrawFn, program: Program, shape: Shape = ANY) -> Program:
    """Somebody changed the code between two attempts: added, removed, moved, or changed an argument or a policy."""
    changed = list(program)
    calls = [number for number, op in enumerate(changed) if isinstance(op, Step | Effect)]
    effects_at = [number for number in calls if isinstance(changed[number], Effect)]
    possible = {"remove": changed, "move": changed, "argument": calls, "policy": effects_at}
    how = draw(st.sampled_from(("add", *(way for way, there in possible.items() if there))))
    if how == "add":
        changed.insert(draw(st.integers(0, len(changed))), draw(ops(shape)))
    elif how == "argument":
        at = draw(st.sampled_from(calls))
        changed[at] = replace(changed[at], arg=draw(ARGS))  # type: ignore[arg-type]
    elif how == "policy":
        at = draw(st.sampled_from(effects_at))
        changed[at] = replace(changed[at], in_doubt=draw(st.sampled_from(shape.policies)))  # type: ignore[arg-type]
    else:
        moved = changed.pop(draw(st.integers(0, len(changed) - 1)))
        if how == "move":
            changed.insert(draw(st.integers(0, len(changed))), moved)
    return tuple(changed)


def ways_to_stop(
    moves: tuple[Move, ...], start: Start, kinds: tuple[str, ...], points: tuple[str, ...] = POINTS
) -> dict[str, tuple[list[str], int]]:
    """Where something would befall this attempt after these moves, found by letting the model play it: the kinds
    of stops that may happen there, and how often it comes there.
    """
    model = Model()
    model.play(moves)
    trace = model.attempt(start.program, answers=start.answers, input=start.input)
    counts = Counter(point for point, _ in trace.points if point in points)
    return {
        point: (possible, count)
        for point, count in counts.items()
        if (possible := [kind for kind in kinds if point in MAY_HAPPEN_AT[kind]])
    }


def draw_stop(draw: st.DrawFn, ways: dict[str, tuple[list[str], int]]) -> Stop | None:
    """Every point as likely as the others, however often it is met: else hardly a story would be about a commit."""
    if not ways:
        return None
    point = draw(st.sampled_from(list(ways)))
    possible, count = ways[point]
    return Stop(draw(st.sampled_from(possible)), point, draw(st.integers(1, count)))


@cache
def answers(verdicts: tuple[str, ...] = ("done", "retry", "fail")) -> st.SearchStrategy[Answer]:
    return st.sampled_from(verdicts).map(
        lambda verdict: Answer(verdict, "told" if verdict == "done" else None)  # type: ignore[arg-type]
    )


@st.composite
def stories(
    draw: st.DrawFn,
    shape: Shape = ANY,
    *,
    edited: bool = False,
    while_waiting: bool = True,
    kinds: tuple[str, ...] = ("crash", "interrupt", "raise"),
    points: tuple[str, ...] = POINTS,
    verdicts: tuple[str, ...] = ("done", "retry", "fail"),
) -> tuple[Move, ...]:
    """A program, up to three attempts that something befalls, and two that nothing does.

    A runner that cannot do every kind of stop, reach every point or answer `while_waiting` narrows these.
    """
    zombies = "freeze" in kinds
    said = draw_few(answers(verdicts), 1) if verdicts else st.just(())
    program = draw(programs(shape))
    moves: list[Move] = []
    for number in range(draw(st.integers(1, 3))):
        start = Start(program, None, draw(said) if while_waiting else ())
        moves.append(replace(start, stop=draw_stop(draw, ways_to_stop(tuple(moves), start, kinds, points))))
        moves.extend(draw(draw_few(st.sampled_from((LONG, Wake(number), Kill(number))))) if zombies else ())
        moves.extend(draw(said))
        if edited and draw(st.booleans()):
            program = draw(edits(program, shape))
    if zombies:  # whoever still holds the run loses it, and may wake up too late
        moves.append(LONG)
    moves += [Start(program), *draw(said), Start(program)]
    return (*moves, *(Wake(which) for which in range(3) if zombies))
