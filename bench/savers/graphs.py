"""A real graph: a loop that says 1 KB each step, with a plain reducer or with LangGraph's DeltaChannel."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from time import perf_counter
from typing import Annotated, Any

from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from .entries import Saver
from .talk import message


def _append_all(state: list[Any] | None, writes: Sequence[list[Any]]) -> list[Any]:
    return [*(state or []), *(said for write in writes for said in write)]


class Plain(TypedDict):
    """Every checkpoint has all messages."""

    messages: Annotated[list[Any], operator.add]
    n: int


class Delta(TypedDict):
    """Only what is new, and all of them after every hundred."""

    messages: Annotated[list[Any], DeltaChannel(_append_all, snapshot_frequency=100)]
    n: int


def loop(saver: Saver | None, steps: int, *, delta: bool) -> Any:
    """The graph, with or without somebody to save it."""
    said = [message("dicts", number) for number in range(steps)]

    def agent(state: dict[str, Any]) -> dict[str, Any]:
        return {"messages": [said[state["n"]]], "n": state["n"] + 1}

    async def async_agent(state: dict[str, Any]) -> dict[str, Any]:
        return agent(state)

    graph: Any = StateGraph(Delta if delta else Plain)
    graph.add_node("agent", async_agent if saver is not None and saver.is_async else agent)
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", lambda state: "agent" if state["n"] < steps else END, ["agent", END])
    return graph.compile(checkpointer=saver.it if saver is not None else None)


async def run_loop(saver: Saver, thread: str, steps: int, *, delta: bool) -> dict[str, float]:
    """Milliseconds for each step from end to end, waiting for each checkpoint; then for reading the state."""
    graph = loop(saver, steps, delta=delta)
    config = {"configurable": {"thread_id": thread}, "recursion_limit": steps + 5}
    begun = perf_counter()
    if saver.is_async:
        await graph.ainvoke({"messages": [], "n": 0}, config, durability="sync")
    else:
        graph.invoke({"messages": [], "n": 0}, config, durability="sync")
    took = (perf_counter() - begun) / steps
    reading = []
    for _ in range(5):
        begun = perf_counter()
        state = await graph.aget_state(config) if saver.is_async else graph.get_state(config)
        reading.append(perf_counter() - begun)
        assert len(state.values["messages"]) == steps, "the graph has not kept what was said"
    return {"ms": took * 1000, "get_ms": sorted(reading)[2] * 1000}


def run_bare(steps: int) -> dict[str, float]:
    """The same with nobody to save it."""
    begun = perf_counter()
    loop(None, steps, delta=False).invoke({"messages": [], "n": 0}, {"recursion_limit": steps + 5})
    return {"ms": (perf_counter() - begun) / steps * 1000, "get_ms": 0.0}
