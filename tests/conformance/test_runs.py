"""Semantics, sections 1, 5-7: items, state, the life of a run, leases."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import pytest

from perdure import Agent, RunBusy
from perdure.errors import (
    InputChanged,
    LeaseLost,
    NotDurable,
    RunNotFinished,
    RunNotFound,
    StateNotSaved,
    StoreForked,
)
from perdure.platform.failpoints import CommitMoment, Site

from .kit import World, agent_at, die, kill_at, run_in_child


def test_each_continues_at_the_first_item_not_done(store_url: str, world: World) -> None:
    def program() -> None:
        agent = agent_at(store_url)
        with agent.run("r") as run:
            for page in run.each(range(1, 6)):
                world.do(f"page {page}")
                run.state["seen"] = run.state.get("seen", 0) + 1
            run.result = run.state["seen"]

    kill_at(program, Site.ITEM_DONE, CommitMoment.AFTER, nth=3)
    assert agent_at(store_url).runs.get("r").state == {"seen": 3}
    program()
    assert world.read_all() == [f"page {n}" for n in (1, 2, 3, 4, 5)]
    assert agent_at(store_url).runs.result("r") == 5


def test_writes_of_an_item_are_dropped_with_it(store_url: str) -> None:
    agent = agent_at(store_url)
    with pytest.raises(ValueError, match="stop"), agent.run("r") as run:
        for item in run.each(["a", "b"]):
            run.state["last"] = item
            run.messages.append(item)
            assert run.state["last"] == item
            assert list(run.messages)[-1] == item
            if item == "b":
                raise ValueError("stop")
    info = agent.runs.get("r")
    assert (info.state, info.messages) == ({"last": "a"}, ["a"])


def test_break_leaves_the_item_open_and_item_done_closes_it(store_url: str) -> None:
    agent, seen = agent_at(store_url), []

    def program() -> None:
        with agent.run("r") as run:
            for item in run.each(["a", "b", "c"]):
                seen.append(item)
                run.state["at"] = item
                if item == "b" and len(seen) < 4:
                    if len(seen) == 3:
                        run.item_done()
                    break
            assert "at" not in run.state or run.state["at"] in ("a", "b", "c")
            if len(seen) < 4:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        program()
    assert agent.runs.get("r").state == {"at": "a"}
    with pytest.raises(KeyboardInterrupt):
        program()
    assert agent.runs.get("r").state == {"at": "b"}
    program()
    assert seen == ["a", "b", "b", "c"]


def test_steps_in_an_item_commit_by_themselves(store_url: str, world: World) -> None:
    def program() -> None:
        agent = agent_at(store_url)

        @agent.step
        def fetch(n: int) -> int:
            world.do(f"fetch {n}")
            return n

        with agent.run("r") as run:
            for n in run.each([1, 2]):
                fetch(n)
                fetch(10)

    kill_at(program, Site.STEP_DONE, CommitMoment.AFTER, nth=3)
    program()
    assert world.read_all() == ["fetch 1", "fetch 10", "fetch 2", "fetch 10"]


def test_program_order_wins_between_an_item_and_its_steps(store_url: str) -> None:
    agent = agent_at(store_url)
    stop = True

    def program() -> None:
        with agent.run("r") as run:

            def inner() -> None:
                run.state["x"] = "step"
                run.messages.append("second")

            for _ in run.each([1]):
                run.state["x"] = "item"
                run.messages.append("first")
                run.step(inner)
                run.messages.append("third")
                assert run.state["x"] == "step"
                if stop:
                    raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        program()
    assert agent.runs.get("r").messages == ["second"]
    stop = False
    program()
    info = agent.runs.get("r")
    assert (info.state, info.messages) == ({"x": "step"}, ["first", "second", "third"])


def test_items_are_told_apart_by_key_content_and_count(store_url: str) -> None:
    class Thing:
        def __init__(self, name: str) -> None:
            self.name = name

    agent, seen = agent_at(store_url), []

    def program(stop: int) -> None:
        with agent.run("r") as run:
            for thing in run.each([Thing("a"), Thing("b")], key="name"):
                seen.append(thing.name)
            for flight in run.each([{"id": 1, "t": time.time()}, {"id": 2, "t": time.time()}], key="id"):
                seen.append(flight["id"])
            for same in run.each(["x", "x", "y"]):
                seen.append(same)
                if len(seen) == stop:
                    raise KeyboardInterrupt
            for pair in run.each([(1, 2), [1, 2]], key=lambda pair: pair):
                seen.append(pair)

    with pytest.raises(KeyboardInterrupt):
        program(6)
    program(0)
    assert seen == ["a", "b", 1, 2, "x", "x", "x", "y", (1, 2), [1, 2]]


def test_loops_nest(store_url: str, world: World) -> None:
    def program() -> None:
        agent = agent_at(store_url)
        with agent.run("r") as run:
            for a in run.each("ab"):
                for b in run.each([1, 2]):
                    world.do(f"{a}{b}")
                    run.state["n"] = run.state.get("n", 0) + 1
                run.state["outer"] = a

    kill_at(program, Site.ITEM_DONE, CommitMoment.AFTER, nth=4)
    program()
    assert world.read_all() == ["a1", "a2", "b1", "b2"]
    assert agent_at(store_url).runs.get("r").state == {"n": 4, "outer": "b"}


def test_run_state_goes_through_the_same_values_on_replay(store_url: str) -> None:
    agent = agent_at(store_url)
    seen: list[list[Any]] = []

    def program(stop: bool) -> None:
        values: list[Any] = []
        seen.append(values)
        with agent.run("r") as run:
            run.state["t"] = run.now()
            values.append(run.state["t"])
            run.state["n"] = run.state.get("n", 0) + 1
            values.append(run.state["n"])
            del run.state["t"]
            values.append("t" in run.state)
            run.state["t"] = "again"
            run.messages.append(run.random())
            values += [dict(run.state), list(run.messages)]
            if stop:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        program(stop=True)
    program(stop=False)
    program(stop=False)
    assert seen[0] == seen[1] == seen[2]
    info = agent.runs.get("r")
    assert info.state == {"t": "again", "n": 1}
    assert len(info.messages) == 1


def test_reading_state_gives_copies(store_url: str) -> None:
    agent = agent_at(store_url)
    with agent.run("r") as run:
        run.state["list"] = [1]
        run.state["list"].append(2)
        with pytest.warns(StateNotSaved):
            assert run.state["list"] == [1]
        assert run.state.incr("n", 2) == 2
        assert len(run.state) == 2
        with pytest.raises(KeyError):
            del run.state["nothing"]


def test_the_same_id_with_another_input_is_refused(store_url: str) -> None:
    agent = agent_at(store_url)
    with agent.run("r", input={"to": "NYC"}) as run:
        assert run.input == {"to": "NYC"}
        assert not run.resumed
    with agent.run("r") as run:
        assert run.input == {"to": "NYC"}
        assert run.resumed
    with pytest.raises(InputChanged), agent.run("r", input={"to": "LAX"}):
        pass


def test_an_exception_fails_the_run_resumably(store_url: str) -> None:
    agent = agent_at(store_url)
    with pytest.raises(ZeroDivisionError), agent.run("r"):
        _ = 1 / 0
    info = agent.runs.get("r")
    assert (info.status, info.error) == ("failed", "ZeroDivisionError: division by zero")
    with agent.run("r") as run:
        run.result = 1
    assert agent.runs.get("r").status == "finished"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_interrupts_the_run_and_releases_the_lease(store_url: str, number: int) -> None:
    def program() -> None:
        agent = agent_at(store_url)
        with agent.run("r"):
            os.kill(os.getpid(), number)
            time.sleep(10)

    assert run_in_child(program) != 0
    assert agent_at(store_url).runs.get("r").status == "interrupted"


def test_a_run_open_in_this_process_is_busy(store_url: str) -> None:
    agent = agent_at(store_url)
    with agent.run("r"), pytest.raises(RunBusy, match="this process"), agent_at(store_url).run("r"):
        pass


def test_a_run_open_elsewhere_is_busy_and_taken_over_when_its_holder_dies(store_url: str) -> None:
    ready, release = os.pipe(), os.pipe()

    def hold() -> None:
        with agent_at(store_url).run("r"):
            os.write(ready[1], b"x")
            os.read(release[0], 1)
            die()

    thread = threading.Thread(target=lambda: run_in_child(hold))
    thread.start()
    os.read(ready[0], 1)
    agent = agent_at(store_url)
    try:
        with pytest.raises(RunBusy, match=r"process \d+ on"), agent.run("r"):
            pass
    finally:
        os.write(release[1], b"x")
        thread.join()
    assert agent.runs.get("r").status == "crashed"
    with agent.run("r") as run:
        assert run.resumed


def test_after_a_takeover_the_old_holder_commits_nothing(store_url: str, world: World) -> None:
    agent = agent_at(store_url)

    def take_over() -> None:
        # What another host does after the lease ran out: take the next fence.
        agent._engine.lease_keeper.open_streams.clear()
        with agent_at(store_url).run("r") as second:
            second.state["theirs"] = 2
            second.result = "theirs"

    with pytest.raises(LeaseLost), agent.run("r") as run:
        run.state["mine"] = 1
        thread = threading.Thread(target=take_over)
        thread.start()
        thread.join()
        with pytest.raises(LeaseLost):
            run.state["mine"] = 3
        with pytest.raises(LeaseLost):
            run.step(lambda: 1, name="one")
        with pytest.raises(LeaseLost):
            run.effect(lambda: world.do("paid"), name="pay")
        for item in run.each([1]):
            run.state["item"] = item
    info = agent.runs.get("r")
    assert (info.state, info.result) == ({"mine": 1, "theirs": 2}, "theirs")
    assert world.read_all() == []


def test_a_child_run_is_linked_and_steps_go_to_the_innermost(store_url: str) -> None:
    agent = agent_at(store_url)

    @agent.step
    def work(n: int) -> int:
        return n

    with agent.run("parent") as parent:
        work(1)
        with agent.run("child") as child:
            work(2)
            child.result = 2
        work(3)
        parent.state["child"] = child.result
    child_info, parent_info = agent.runs.get("child"), agent.runs.get("parent")
    assert child_info.summary.parent == parent_info.summary.stream
    names = [event.kind for event in child_info.events]
    assert names == ["RunStarted", "StepDone", "RunFinished"]


@pytest.mark.parametrize("parallel", [False, True])
def test_one_child_at_a_time_unless_asked(store_url: str, parallel: bool) -> None:
    agent, outcome = agent_at(store_url), []

    def second_child() -> None:
        try:
            with agent.run("b", parallel=parallel):
                outcome.append("opened")
        except RunBusy as error:
            outcome.append("child" in str(error))

    with agent.run("parent") as parent:
        beside = threading.Thread(target=parent.bind(second_child))
        with agent.run("a"):
            beside.start()
            beside.join()
    assert outcome == (["opened"] if parallel else [True])


def test_results_and_unknown_runs(store_url: str) -> None:
    agent = agent_at(store_url)
    with pytest.raises(RunNotFound):
        agent.runs.get("nothing")
    with pytest.raises(RunNotFound):
        agent.runs.result("nothing")
    with pytest.raises(KeyboardInterrupt), agent.run("r"):
        raise KeyboardInterrupt
    with pytest.raises(RunNotFinished, match="interrupted"):
        agent.runs.result("r")
    assert [run.id for run in agent.runs.list()] == ["r"]
    assert agent.runs.list(status="finished") == []
    with pytest.raises(ValueError, match="status='done': must be one of .*'running', 'waiting', .*'crashed'"):
        agent.runs.list(status="done")


def test_a_run_used_outside_its_block_says_so(store_url: str) -> None:
    agent = agent_at(store_url)
    run = agent.run("r")
    with pytest.raises(NotDurable, match="not open"):
        run.state["a"] = 1
    with run:
        run.state["a"] = 1
    with pytest.raises(NotDurable):
        run.state["b"] = 1


def test_a_forked_child_says_so_and_the_parent_goes_on(store_url: str) -> None:
    agent = agent_at(store_url)

    @agent.step
    def work(n: int) -> int:
        return n

    def child() -> None:
        with pytest.raises(StoreForked):
            work(2)
        with agent_at(store_url).run("of the child"):
            pass

    with agent.run("r"):
        work(1)
        assert run_in_child(child) == 0
        work(3)
    assert agent.runs.get("of the child").status == "finished"


def test_two_stores_do_not_mix(tmp_path: Any) -> None:
    first, second = Agent("a", store=tmp_path / "1.db"), Agent("a", store=tmp_path / "2.db")
    with first.run("r") as run:
        run.state["where"] = 1
    with pytest.raises(RunNotFound):
        second.runs.get("r")
