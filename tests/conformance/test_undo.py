"""`run.undo(n)`: back over some steps, and on replay the same way again."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure import Agent, AsyncAgent, RunBusy, RunWaiting
from perdure.errors import Diverged, PointNotFound, RunFinished
from perdure.platform.failpoints import CommitMoment, Site

from .kit import World, agent_at, check_views, kill_at

NUMBERS = itertools.count()
Program = list[tuple[str, int]]


class Stop(Exception):
    """The program is left in the middle."""


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Operations, among them some that go back over no more than there is."""
    program, units = list[tuple[str, int]](), 0
    for _ in range(draw(st.integers(1, 9))):
        kind = draw(st.sampled_from(["step", "effect", "set", "say", "each", "undo"]))
        value = draw(st.integers(1, max(1, units))) if kind == "undo" else draw(st.integers(0, 2))
        if kind == "undo" and not units:
            continue
        units += {"step": 1, "effect": 1, "each": 1, "undo": -value}.get(kind, 0)
        program.append((kind, value))
    return program


def predict(program: Program) -> tuple[dict[str, Any], list[Any], list[str]]:
    """State, messages and bodies that run, by a plain program."""
    state: dict[str, Any] = {}
    messages: list[Any] = []
    ran: list[str] = []
    units: list[tuple[dict[str, Any], list[Any], int]] = []
    effects: list[tuple[int, list[int]]] = []  # what each of them wrote

    def body(kind: str, place: int) -> None:
        ran.append(f"{kind} {place}")
        state[kind] = [*state.get(kind, []), place]
        messages.append([kind, place])

    for place, (kind, value) in enumerate(program):
        if kind in ("step", "effect", "each"):
            units.append((copy.deepcopy(state), copy.deepcopy(messages), len(effects)))
        if kind == "step":
            body("step", value)
        elif kind == "effect":
            body("effect", place)
            effects.append((place, state["effect"]))
        elif kind == "set":
            state["open"] = [state.get("open"), value]
        elif kind == "say":
            messages.append(value)
        elif kind == "each":
            for item in range(value):
                body("item", place * 10 + item)
                state["last"] = item
        else:
            state, messages, before = units[-value]
            del units[-value:]
            for at, wrote in effects[before:]:  # what an effect wrote stays with it
                state["effect"] = wrote
                messages.append(["effect", at])
    return state, messages, ran


def perform(agent: Agent, run_id: str, program: Program, ran: list[str], stop: int = -1) -> Any:
    """The same program as a run; `stop` is where it is left."""

    def body(kind: str, place: int) -> str:
        ran.append(f"{kind} {place}")
        run.state[kind] = [*run.state.get(kind, []), place]
        run.messages.append([kind, place])
        return f"{kind} {place}"

    def effect(place: int, *, key: str) -> str:
        return body("effect", place)

    with agent.run(run_id) as run:
        for place, (kind, value) in enumerate(program):
            if place == stop:
                raise Stop
            if kind == "step":
                assert run.step(body, "step", value) == f"step {value}"
            elif kind == "effect":
                run.effect(effect, place, name=f"effect {place}")
            elif kind == "set":
                run.state["open"] = [run.state.get("open"), value]
            elif kind == "say":
                run.messages.append(value)
            elif kind == "each":
                for item in run.each(range(value)):
                    run.step(body, "item", place * 10 + item)
                    run.state["last"] = item
            else:
                assert run.undo(value).steps == value
        run.result = [dict(run.state), list(run.messages)]
    return agent.runs.result(run_id)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=programs(), data=st.data())
def test_any_program_that_goes_back_comes_to_what_a_plain_one_does(
    store_url: str, program: Program, data: st.DataObject
) -> None:
    agent = agent_at(store_url)
    run_id, ran = f"r{next(NUMBERS)}", list[str]()
    state, messages, runs = predict(program)
    for _ in range(data.draw(st.integers(0, 2))):
        with contextlib.suppress(Stop):
            perform(agent, run_id, program, ran, data.draw(st.integers(0, len(program))))
    assert perform(agent, run_id, program, ran) == [state, messages]
    assert ran == runs  # each body once, however often it was left
    info = agent.runs.get(run_id)
    assert (info.state, info.messages) == (state, messages)
    assert perform(agent, run_id, program, ran) == [state, messages] and ran == runs  # finished: only replayed
    fork = agent.runs.fork(run_id, at=data.draw(st.integers(1, len(info.events))))
    assert perform(agent, fork.id, program, ran) == [state, messages]
    check_views(agent)


def trip(agent: Agent, world: World, run_id: str, *, effects: str = "keep", other: bool = False) -> Any:
    """Books, goes back, and books again."""

    def book(flight: str, *, key: str) -> str:
        world.do(f"book {flight}")
        agent.state.incr("trips", "booked")
        return f"{flight} {key}"

    with agent.run(run_id) as run:
        first = run.effect(book, "9am")
        undone = run.undo(effects=effects)
        assert undone.kept == (("book",) if effects == "keep" else ())
        assert "state" in [remaining.kind for remaining in undone.stays]
        run.result = [first, run.effect(book, "11am" if other else "9am")]
    return agent.runs.result(run_id)


def test_an_effect_that_was_undone_is_not_silently_repeated(store_url: str, world: World) -> None:
    agent = agent_at(store_url)
    first, again = trip(agent, world, "kept")
    assert first == again and world.read_all() == ["book 9am"]
    with pytest.raises(Diverged, match="is recorded"):
        trip(agent, world, "diverged", other=True)
    assert world.read_all() == ["book 9am"] * 2
    first, again = trip(agent_at(store_url, "another"), world, "again", effects="again", other=True)
    assert first != again and world.read_all()[2:] == ["book 9am", "book 11am"]
    check_views(agent)


@pytest.mark.parametrize("moment", [CommitMoment.BEFORE, CommitMoment.WRITTEN, CommitMoment.AFTER])
def test_killed_around_an_undo(store_url: str, world: World, moment: CommitMoment) -> None:
    def program() -> Any:
        agent = agent_at(store_url)
        with agent.run("r") as run:
            run.state["n"] = 1
            run.step(world.do, "think")
            run.state["n"] = 2
            run.undo()
            assert run.state == {"n": 1}
            run.step(world.do, "think")
            run.result = run.state["n"]
        return agent.runs.result("r")

    kill_at(program, Site.UNDO, moment)
    assert agent_at(store_url).runs.get("r").state == {"n": 1 if moment == CommitMoment.AFTER else 2}
    assert program() == 1 and world.read_all() == ["think", "think"]
    check_views(agent_at(store_url))


def test_a_failure_that_was_undone_is_raised_again_and_then_tried_anew(store_url: str, world: World) -> None:
    agent = agent_at(store_url)

    def flaky() -> str:
        world.do("try")
        if world.count("try") == 1:
            raise ValueError("not yet")
        return "worked"

    def program(stop: bool) -> Any:
        with agent.run("r") as run:
            try:
                run.result = run.step(flaky)
            except ValueError:
                run.undo()
                if stop:
                    raise Stop from None
                run.result = run.step(flaky)
        return run.result

    with pytest.raises(Stop):
        program(True)
    assert program(False) == "worked" and program(False) == "worked" and world.count("try") == 2


def test_undone_from_outside(store_url: str, world: World) -> None:
    agent = agent_at(store_url)

    def program(asks: bool = True) -> Any:
        with agent.run("r", wait=0) as run:
            run.state["seen"] = run.step(world.do, "look")
            run.step(world.do, "think")
            run.state["n"] = 2
            run.result = run.ask("Which?") if asks else "none"
        return agent.runs.result("r")

    with pytest.raises(RunWaiting):
        program()
    undone = agent.runs.undo("r", by="ann")
    assert undone.steps == 1 and agent.runs.get("r").state == {"seen": None}
    assert agent.runs.get("r").questions == [] and agent.runs.get("r").error == "1 steps undone by ann"
    with pytest.raises(PointNotFound, match="has 1 steps, so 2 cannot be undone"):
        agent.runs.undo("r", 2)
    assert program(asks=False) == "none" and world.read_all() == ["look", "think", "think"]
    with pytest.raises(RunFinished, match="fork"):
        agent.runs.undo("r")
    for run_id, refused in (("cancelled", RunFinished), ("paused", RunBusy)):
        with pytest.raises(Stop), agent.run(run_id) as run:
            run.step(world.do, "look")
            raise Stop
        getattr(agent.runs, "cancel" if run_id == "cancelled" else "pause")(run_id)
        with pytest.raises(refused, match=run_id):
            agent.runs.undo(run_id)
    with agent.run("open") as run:
        run.step(world.do, "look")
        with pytest.raises(RunBusy):
            agent.runs.undo("open")
        for _ in run.each([1]):
            with pytest.raises(RuntimeError, match="in the run itself"):
                run.undo()
        for wrong in (0, True, "1"):
            with pytest.raises(ValueError, match="at least 1"):
                run.undo(wrong)
        with pytest.raises(PointNotFound, match="has done 2 steps"):
            run.undo(3)
    check_views(agent)


def test_undo_under_asyncio(store_url: str, world: World) -> None:
    async def double(number: int) -> int:
        world.do("double")
        return number * 2

    async def main() -> None:
        agent = AsyncAgent("tester", store=store_url)
        for _ in range(2):
            async with agent.run("r") as run:
                run.state["n"] = await run.step(double, 4)
                await run.undo()
                assert dict(run.state) == {}
                run.result = await run.step(double, 4)
        assert await agent.runs.result("r") == 8 and world.read_all() == ["double"] * 2

    asyncio.run(main())
