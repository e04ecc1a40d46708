"""A real graph that is killed: nodes side by side, a subgraph, and an outside that counts how often each ran."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from tests.adapters.savers import saver_at
from tests.conformance.kit import World

GIVEN: Any = {"log": ["given"]}
NODES = ("pack", "left", "right", "inside", "arrive")


class State(TypedDict):
    log: Annotated[list[str], operator.add]


class Point(TypedDict):
    """What a checkpoint must say, whoever saved it."""

    values: Any
    next: tuple[str, ...]
    step: int
    source: str


def config(thread: str) -> Any:
    """Where a journey is saved."""
    return {"configurable": {"thread_id": thread}}


def journey(saver: Any, world: World) -> Any:
    """pack, then left and right side by side, then a subgraph, then arrive."""

    def node(name: str) -> Callable[[Any], Any]:
        def ran(state: Any) -> Any:
            world.do(name)
            return {"log": [name]}

        return ran

    inner: Any = StateGraph(State)
    inner.add_node("inside", node("inside"))
    inner.add_edge(START, "inside")
    builder: Any = StateGraph(State)
    for name in ("pack", "left", "right", "arrive"):
        builder.add_node(name, node(name))
    builder.add_node("sub", inner.compile())
    builder.add_edge(START, "pack")
    builder.add_edge("pack", "left")
    builder.add_edge("pack", "right")
    builder.add_edge(["left", "right"], "sub")
    builder.add_edge("sub", "arrive")
    builder.add_edge("arrive", END)
    return builder.compile(checkpointer=saver)


def travel(url: str, world: World, thread: str, durability: str = "sync", **options: Any) -> Any:
    """Begin the journey, or go on with it, as a program does that knows nothing of earlier starts."""
    with saver_at(url, **options) as saver:
        graph = journey(saver, world)
        given = None if graph.get_state(config(thread)).created_at else GIVEN
        return graph.invoke(given, config(thread), durability=durability)


def points(graph: Any, thread: str) -> list[Point]:
    """The history, oldest first."""
    found = [
        Point(values=one.values, next=one.next, step=one.metadata["step"], source=one.metadata["source"])
        for one in graph.get_state_history(config(thread))
    ]
    return found[::-1]


def expected_points(folder: Path) -> list[Point]:
    """What the whole journey leaves behind when nothing happens to it."""
    folder.mkdir(exist_ok=True)
    graph = journey(InMemorySaver(), World(folder))
    graph.invoke(GIVEN, config("whole"))
    return points(graph, "whole")
