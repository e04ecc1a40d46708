"""The positions of items in a loop: right after a resume, or refused from the first run on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from perdure import Agent, AsyncAgent, PerdureError
from perdure.platform.failpoints import CommitMoment, Site

from .kit import World, agent_at, kill_at


def test_a_resumed_loop_gives_positions_in_the_list(store_url: str, world: World) -> None:
    def program() -> None:
        with agent_at(store_url).run("r") as run:
            for index, page in run.each(["a", "b", "c", "d"], index=True):
                world.do(f"{index} {page}")

    kill_at(program, Site.ITEM_DONE, CommitMoment.AFTER, nth=2)
    program()
    assert world.read_all() == ["0 a", "1 b", "2 c", "3 d"]


def test_positions_are_those_of_the_list_given_now(file_url: str) -> None:
    agent, seen = agent_at(file_url), []

    def program(pages: list[str], stop_at: str) -> None:
        with agent.run("r") as run:
            for index, page in run.each(pages, index=True):
                if page == stop_at:
                    raise ConnectionError
                seen.append((index, page))

    with pytest.raises(ConnectionError):
        program(["a", "b"], "b")
    program(["new", "a", "b"], "")
    assert seen == [(0, "a"), (0, "new"), (2, "b")]


async def test_the_asynchronous_loop_has_positions_too(file_url: str) -> None:
    async with AsyncAgent("a", store=file_url) as agent, agent.run("r") as run:
        seen = []
        async for pair in run.each("ab", index=True):
            seen.append(pair)
        assert seen == [(0, "a"), (1, "b")]


def test_in_a_step_a_loop_has_positions_too(file_url: str) -> None:
    agent = agent_at(file_url)
    with agent.run("r") as run:
        assert run.step(lambda: [pair for pair in run.each("ab", index=True)], name="inside") == [(0, "a"), (1, "b")]  # noqa: C416


COUNTERS: dict[str, Callable[[Any], Iterator[Any]]] = {
    "enumerate": enumerate,
    "enumerate with a start": lambda loop: enumerate(loop, 1),
    "enumerate by keyword": lambda loop: enumerate(iterable=loop),
    "enumerate with a star": lambda loop: enumerate(*[loop]),
    "zip": lambda loop: zip(itertools.count(), loop, strict=False),
    "zip, first": lambda loop: zip(loop, "ab", strict=True),
    "zip_longest": lambda loop: itertools.zip_longest(loop, "ab"),
    "islice": lambda loop: itertools.islice(loop, 1),
    "an iterator": lambda loop: enumerate(iter(loop)),
}


@pytest.mark.parametrize("counted", COUNTERS.values(), ids=COUNTERS)
def test_positions_that_a_resume_would_count_wrong_are_refused(
    file_url: str, counted: Callable[[Any], Iterator[Any]]
) -> None:
    with agent_at(file_url).run("r") as run, pytest.raises(TypeError, match="index=True") as caught:
        for _ in counted(run.each(["a", "b"])):
            pytest.fail("no body runs")
    assert isinstance(caught.value, PerdureError)


def test_loops_of_every_kind_are_not_refused(file_url: str) -> None:
    def passed_on(loop: Any) -> Iterator[str]:
        yield from loop

    with agent_at(file_url).run("r") as run:
        for _ in run.each("ab"):
            pass
        assert {item.upper() for item in run.each("ab")} == {"A", "B"}
        assert list(item for item in run.each("ab")) == ["a", "b"]  # noqa: C400
        assert list(passed_on(run.each("ab"))) == ["a", "b"]
        assert list(map(str, run.each("ab"))) == ["a", "b"]
        together: list[str] = []
        for item in run.each("ab"):
            together = [*together, item]
        assert together == ["a", "b"]
        items = iter(run.each("ab"))
        assert [next(items), next(items), next(items, None)] == ["a", "b", None]
        assert [item.upper() for item in map(str, run.each("ab"))] == ["A", "B"]


EXHAUSTERS: dict[str, Callable[[Any], Any]] = {
    "list": list,
    "sorted": sorted,
    "sum": sum,
    "join": "".join,
    "a dict": lambda loop: dict.fromkeys(loop),
    "extend": lambda loop: [].extend(loop),
    "a star": lambda loop: [*loop],
    "arguments": lambda loop: print(*loop),
    "unpacked": lambda loop: [first for first, *_ in [loop]],
    "in": lambda loop: "b" in loop,
    "a list comprehension": lambda loop: [item for item in loop],  # noqa: C416
    "a set comprehension": lambda loop: {item for item in loop},  # noqa: C416
    "a dict comprehension": lambda loop: {item: 1 for item in loop},  # noqa: C420
    "attributes": lambda loop: [item.upper for item in loop],
    "nothing left": lambda loop: [list(map(str, loop)), list(loop)],
}


@pytest.mark.parametrize("take", EXHAUSTERS.values(), ids=EXHAUSTERS)
def test_what_takes_all_items_before_the_work_is_refused(file_url: str, take: Callable[[Any], Any]) -> None:
    agent = agent_at(file_url)
    with agent.run("r") as run, pytest.raises(TypeError, match="for item in run.each") as caught:
        take(run.each("ab"))
    assert isinstance(caught.value, PerdureError)
    if take is list:
        assert "ItemDone" not in [event.kind for event in agent.runs.get("r").events]


async def test_an_asynchronous_comprehension_that_only_collects_is_refused(file_url: str) -> None:
    async def work(item: str) -> str:
        return item.upper()

    async with AsyncAgent("a", store=file_url) as agent, agent.run("r") as run:
        with pytest.raises(TypeError, match="for item in run.each"):
            _ = [item async for item in run.each("ab")]
        assert [await work(item) async for item in run.each("ab")] == ["A", "B"]
        assert [item.upper() async for item in run.each("ab")] == ["A", "B"]


@pytest.mark.parametrize("items", [5, None, 1.5])
def test_what_cannot_be_looped_over_is_refused_at_the_call(file_url: str, items: Any) -> None:
    agent: Agent = agent_at(file_url)
    with agent.run("r") as run:
        for call in (lambda: run.each(items), lambda: run.map(str, items)):
            with pytest.raises(TypeError, match="cannot be looped over") as caught:
                call()
            assert isinstance(caught.value, PerdureError)
            assert ("range(5)" in caught.value.hint) == (items == 5)
