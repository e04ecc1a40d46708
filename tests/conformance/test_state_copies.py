"""A change of a copy of `run.state` that is never written back is lost, and so it is not silent."""

from __future__ import annotations

import math
import warnings
from collections import deque
from typing import Any

import pytest

from perdure import AsyncAgent
from perdure.errors import StateNotSaved

from .kit import agent_at


@pytest.mark.parametrize("value", [["a"], {"a": []}, {1}, deque([1]), bytearray(b"a")])
def test_a_change_of_a_copy_is_told(store_url: str, value: Any) -> None:
    agent = agent_at(store_url)

    def work() -> None:
        with agent.run("r") as run:
            run.state["seen"] = value
            run.state["seen"].clear()

    with pytest.warns(StateNotSaved, match=r"run\.state\['seen'\], read at .*test_state_copies\.py:\d+, was") as told:
        work()
    [warning] = told
    assert (warning.filename, warning.lineno) == (__file__, work.__code__.co_firstlineno + 3)
    assert agent.runs.get("r").state == {"seen": value}


def test_it_is_told_at_the_next_read_and_in_a_step(store_url: str) -> None:
    agent = agent_at(store_url)

    def work() -> int:
        run.state["seen"].append(1)
        with pytest.warns(StateNotSaved):
            return len(run.state["seen"])

    with agent.run("r") as run:
        run.state["seen"] = []
        assert run.step(work) == 0
        run.state["seen"] = [2]


def test_what_is_written_back_read_or_not_a_number_is_quiet(store_url: str) -> None:
    agent = agent_at(store_url)

    def write() -> None:
        run.state["by a step"] = [1]

    for _ in range(2):  # the second time it is replayed
        with warnings.catch_warnings():
            warnings.simplefilter("error", StateNotSaved)
            with agent.run("r") as run:
                run.state.update({"seen": [], "by a step": [], "nan": [math.nan], "number": 1})
                seen = run.state["seen"]
                seen.append(1)
                run.state["seen"] = seen
                assert [len(run.state[key]) for key in ("nan", "nan", "by a step")] == [1, 1, 0]
                run.step(write)
                assert run.state["by a step"] == [1]
                gone = run.state["nan"]
                del run.state["nan"]
                gone.append(1)
                dict(run.state)["seen"].append("in a dict of copies, which nobody takes for the state")
                run.state["seen"] = [1, 2]


def test_the_state_of_a_thread_is_watched_in_its_turns(store_url: str) -> None:
    agent = agent_at(store_url)
    thread = agent.thread("t")
    thread.state["cities"] = ["NYC"]

    def work() -> None:
        with thread.turn("and Oslo") as turn:
            thread.state["cities"].append("Oslo")
            turn.reply("noted")

    with pytest.warns(StateNotSaved, match=r"thread\.state\['cities'\]"):
        work()
    with warnings.catch_warnings():
        warnings.simplefilter("error", StateNotSaved)
        with thread.turn("and Rome") as turn:
            thread.state["cities"] = [*thread.state["cities"], "Rome"]
            turn.reply("noted")
    assert thread.state["cities"] == ["NYC", "Rome"]


async def test_under_asyncio_too(store_url: str) -> None:
    agent = AsyncAgent("tester", store=store_url)

    async def work() -> None:
        async with agent.run("r") as run:
            await run.state.set("seen", [])
            run.state["seen"].append(1)

    with pytest.warns(StateNotSaved):
        await work()
