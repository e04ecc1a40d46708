"""`run.state.update` and `incr`: operations of the run, made once however often it is resumed."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import AsyncAgent, Run
from perdure.errors import WriteInsideUpdate

from .kit import agent_at, check_views
from .test_state import LARGE


def test_update_is_made_once(store_url: str) -> None:
    agent = agent_at(store_url)

    def program(fails: bool) -> list[Any]:
        numbers, seen = iter(range(100)), list[Any]()
        with agent.run("r") as run:
            seen.append(run.state.update("list", lambda value: [*(value or []), next(numbers)]))
            seen.append(run.state.update("list", lambda value: [*value, LARGE]))
            seen.append(run.state.incr("n", next(numbers)))
            run.state.update({"x": 1, "y": seen[0]})
            if fails:
                raise KeyError
            run.result = dict(run.state)
        return seen

    with pytest.raises(KeyError):
        program(True)
    for _ in range(2):  # resumed, then replayed when it is finished: what was written first stays
        assert program(False) == [[0], [0, LARGE], 1]
    assert agent.runs.get("r").result == {"list": [0, LARGE], "n": 1, "x": 1, "y": [0]}
    check_views(store_url)


def test_in_a_step_it_lands_with_it(store_url: str) -> None:
    agent = agent_at(store_url)

    @agent.step
    def work(fails: bool) -> Any:
        agent_run.state.incr("n", 5)
        if fails:
            raise ValueError
        return agent_run.state.update("list", lambda value: [*(value or []), LARGE])

    for _ in range(2):
        with agent.run("r") as agent_run:
            if "n" not in agent_run.state:
                with pytest.raises(ValueError):  # noqa: PT011
                    work(True)
            assert work(False) == [LARGE]
            assert dict(agent_run.state) == {"n": 5, "list": [LARGE]}


def test_what_cannot_be_is_told_and_changes_nothing(store_url: str) -> None:
    agent = agent_at(store_url)

    def program() -> None:
        with agent.run("r") as run:
            run.state["words"] = "x"
            with pytest.raises(TypeError, match=r"'words' of 'run\.state' is a str"):
                run.state.incr("words")
            with pytest.raises(ZeroDivisionError):
                run.state.update("words", lambda value: 1 // 0)
            with pytest.raises(TypeError, match="a key and a function, or a mapping"):
                run.state.update("words")  # type: ignore[call-overload]
            with pytest.raises(TypeError, match="a key and a function, or a mapping"):
                run.state.update({"a": 1}, len)  # type: ignore[call-overload]
            assert run.state.update("words", len) == 1
            assert dict(run.state) == {"words": 1}

    program()
    program()
    with agent.run("writes") as run:
        for write in (
            lambda value: run.state.incr("other"),
            lambda value: run.state.update({"other": 1}),
            lambda value: agent.state.set("a", "other", 1),
            lambda value: run.event("SEEN"),
        ):
            with pytest.raises(WriteInsideUpdate):
                run.state.update("k", write)
            with pytest.raises(WriteInsideUpdate):
                _in_a_step(run, write)
        assert dict(run.state) == {}


def _in_a_step(run: Run, write: Any) -> None:
    run.step(lambda: run.state.update("k", write), name="s")


async def test_the_asynchronous_side_is_the_same(store_url: str) -> None:
    agent = AsyncAgent("async", store=store_url)
    for _ in range(2):
        async with agent.run("r") as run:
            assert await run.state.update("list", lambda value: [*(value or []), 1]) == [1]
            assert await run.state.incr("n", 2) == 2
            await run.state.update({"x": 1})
            assert dict(run.state) == {"list": [1], "n": 2, "x": 1}
    await agent.close()
