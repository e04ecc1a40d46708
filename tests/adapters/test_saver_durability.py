"""How a graph is saved: the safe choice is the one that we show, and the unsafe one is named."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from pydantic import BaseModel

from perdure.adapters.langgraph import PerdureSaver, PerdureStore
from perdure.errors import NotDurableWarning
from tests.conformance.kit import die, run_in_child

CONFIG: Any = {"configurable": {"thread_id": "trip"}}


class Numbers(TypedDict):
    n: int


def graph_of(saver: PerdureSaver, second: Any = lambda state: {"n": 2}) -> Any:
    builder = StateGraph(Numbers)
    builder.add_node("first", lambda state: {"n": 1})
    builder.add_node("second", second)
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    return builder.compile(checkpointer=saver)


def test_a_saver_is_opened_and_closed_as_those_that_people_come_from(store_url: str) -> None:
    with PerdureSaver.from_conn_string(store_url) as saver:
        graph_of(saver).invoke({"n": 0}, CONFIG, durability="sync")
    with PerdureSaver.from_conn_string(store_url, agent="langgraph") as saver:
        assert graph_of(saver).get_state(CONFIG).values == {"n": 2}
    with PerdureStore.from_conn_string(store_url) as store:
        store.put(("a",), "k", {"v": 1})


async def test_it_is_opened_under_asyncio_too(store_url: str) -> None:
    async with PerdureSaver.from_conn_string(store_url) as saver:
        await graph_of(saver).ainvoke({"n": 0}, CONFIG, durability="sync")
        assert (await graph_of(saver).aget_state(CONFIG)).values == {"n": 2}


def test_a_kill_in_the_second_node_loses_nothing_of_what_the_guide_shows(store_url: str) -> None:
    def program() -> None:
        graph_of(PerdureSaver(store_url), second=lambda state: die()).invoke({"n": 0}, CONFIG, durability="sync")

    run_in_child(program)
    graph = graph_of(PerdureSaver(store_url))
    assert graph.get_state(CONFIG).values == {"n": 1} and graph.get_state(CONFIG).next == ("second",)
    assert graph.invoke(None, CONFIG, durability="sync") == {"n": 2}


def graph_with_a_class_of_its_own(saver: PerdureSaver, second: Any = lambda state: {"trip": None}) -> Any:
    class Trip(BaseModel):
        n: int

    builder = StateGraph(dict)
    builder.add_node("first", lambda state: Trip(n=1))
    builder.add_node("second", second)
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    return builder.compile(checkpointer=saver), Trip


def test_values_may_have_a_class_that_a_function_defines(store_url: str) -> None:
    """LangGraph's savers take it too. The process that resumes has built the graph, and with it the class."""

    def program() -> None:
        graph, _ = graph_with_a_class_of_its_own(PerdureSaver(store_url), second=lambda trip: die())
        graph.invoke({}, CONFIG, durability="sync")

    run_in_child(program)
    graph, Trip = graph_with_a_class_of_its_own(PerdureSaver(store_url), second=lambda trip: Trip(n=trip.n + 1))
    assert graph.invoke(None, CONFIG, durability="sync") == Trip(n=2)
    assert type(graph.get_state(CONFIG).values) is Trip


def test_every_page_and_example_shows_the_safe_choice() -> None:
    root = Path(__file__).parents[2]
    pages = [*root.glob("docs/**/*.md"), *root.glob("examples/*.py"), root / "README.md"]
    lines = [line for page in pages for line in page.read_text("utf-8").splitlines() if "graph.invoke(" in line]
    assert lines and [line for line in lines if 'durability="sync"' not in line] == []


def read_warnings(saver: PerdureSaver, **options: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        graph_of(saver).invoke({"n": 0}, CONFIG, **options)
    return [str(one.message) for one in caught if one.category is NotDurableWarning]


def test_the_default_of_langgraph_is_warned_about_once_with_the_argument_to_pass(file_url: str) -> None:
    saver = PerdureSaver(file_url)
    for choice in ("sync", "async", "exit"):
        assert read_warnings(saver, durability=choice) == [], "somebody has chosen"
    [text] = read_warnings(saver)
    assert 'pass durability="sync" to graph.invoke' in text
    assert read_warnings(saver) == []
    with pytest.warns(NotDurableWarning, match="durability"):
        graph_of(PerdureSaver(file_url)).invoke({"n": 0}, CONFIG)
