"""Small random graphs, and random things done to them: what `test_random_graphs_look_the_same` plays twice."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from hypothesis import strategies as st
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from tests.adapters.feature_graphs import join_writes
from tests.adapters.saver_comparison import Play

STEPS_MAX = 14
KINDS = ("say", "ask", "ask twice", "send", "goto", "fail")


class Node(msgspec.Struct, frozen=True):
    """What it does, and which nodes come after it: one by the count so far, or all of them at once."""

    kind: str
    targets: tuple[int, ...]
    all_at_once: bool


class Deed(msgspec.Struct, frozen=True):
    """Something done from outside; `past` chooses a checkpoint, `node` whose word it is."""

    what: str
    past: int
    node: int
    durability: str


class Plan(msgspec.Struct, frozen=True):
    """A graph, and what is done to it."""

    nodes: tuple[Node, ...]
    delta: bool
    stops_before: tuple[int, ...]
    deeds: tuple[Deed, ...]
    colour: str

    @property
    def may_fail(self) -> bool:
        """Only where nothing is side by side: how far a sibling gets when a node fails is a matter of luck."""
        alone = not any(node.all_at_once and len(node.targets) > 1 for node in self.nodes)
        return alone and not any(deed.what in ("update", "fork") for deed in self.deeds)


def _nodes(count: int) -> st.SearchStrategy[tuple[Node, ...]]:
    # One more than there are nodes is the end.
    targets = st.lists(st.integers(0, count), min_size=1, max_size=2, unique=True).map(tuple)
    node = st.builds(Node, st.sampled_from(KINDS), targets, st.booleans())
    return st.tuples(*[node] * count)


_WHATS = ("invoke", "resume", "resume", "go on", "update", "travel", "fork", "ask the past")
_DEEDS = st.builds(
    Deed, st.sampled_from(_WHATS), st.integers(0, 20), st.integers(0, 3), st.sampled_from(["sync", "async", "exit"])
)
PLANS = st.builds(
    Plan,
    st.integers(2, 4).flatmap(_nodes),
    st.booleans(),
    st.lists(st.integers(0, 3), max_size=1).map(tuple),
    st.lists(_DEEDS, min_size=2, max_size=5).map(tuple),
    st.sampled_from(["sync", "async"]),
)


class Plain(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    n: Annotated[int, operator.add]


class Delta(TypedDict, total=False):
    log: Annotated[list[str], DeltaChannel(join_writes, snapshot_frequency=3)]
    n: Annotated[int, operator.add]


def build_graph(plan: Plan, saver: Any) -> Any:
    """The graph of a plan."""
    builder: Any = StateGraph(Delta if plan.delta else Plain)
    for number, node in enumerate(plan.nodes):
        builder.add_node(_name(number), _body(plan, number))
        if node.kind not in ("goto", "send"):
            builder.add_conditional_edges(_name(number), _router(plan, node))
    builder.add_edge(START, _name(0))
    stops = [_name(number) for number in plan.stops_before if number < len(plan.nodes)]
    return builder.compile(checkpointer=saver, interrupt_before=stops)


def _name(number: int) -> str:
    return f"node{number}"


def _places(plan: Plan, node: Node, count: int) -> list[str]:
    targets = node.targets if node.all_at_once else (node.targets[count % len(node.targets)],)
    return [_name(target) if target < len(plan.nodes) else END for target in targets]


def _router(plan: Plan, node: Node) -> Callable[[Any], list[str]]:
    return lambda state: _places(plan, node, state.get("n", 0))


def _body(plan: Plan, number: int) -> Callable[[Any], Any]:
    node, name = plan.nodes[number], _name(number)

    def body(state: Any) -> Any:
        count = state.get("n", 0)
        said = {"log": [f"{name} at {count}"], "n": 1}
        if node.kind.startswith("ask"):
            said["log"] += [str(interrupt(f"{name} asks")) for _ in range(1 + (node.kind == "ask twice"))]
        if node.kind == "fail" and plan.may_fail and count % 3 == 1:
            raise ValueError(f"{name} fails at {count}")
        if node.kind not in ("goto", "send"):
            return said
        places = [place for place in _places(plan, node, count) if place != END]
        if node.kind == "send":
            return Command(update=said, goto=[Send(place, {"n": count + 1, "log": []}) for place in places])
        return Command(update=said, goto=places or END)

    return body


async def act(plan: Plan, play: Play) -> None:
    """All deeds; after each the state is looked at, and in the end the whole history."""
    play.run_tasks_serially()
    play.config["recursion_limit"] = STEPS_MAX
    graph = build_graph(plan, play.saver)
    await play.invoke(graph, {"log": ["begin"], "n": 0}, durability="sync")
    for number, deed in enumerate(plan.deeds):
        await _do(plan, deed, number, graph, play)
        await play.state(graph)
    await play.history(graph)
    await play.history(graph, filter={"source": "update"}, limit=2)


async def _do(plan: Plan, deed: Deed, number: int, graph: Any, play: Play) -> None:
    durability = {"durability": deed.durability}
    if deed.what == "invoke":
        await play.invoke(graph, {"log": [f"given {number}"], "n": 1}, **durability)
    elif deed.what == "resume":
        await play.invoke(graph, Command(resume=f"answer {number}"), **durability)
    elif deed.what == "go on":
        await play.invoke(graph, None, **durability)
    elif deed.what == "update":
        node = _name(deed.node) if deed.node < len(plan.nodes) else None
        await play.update(graph, {"log": [f"put {number}"], "n": 1}, as_node=node)
    else:
        past = await play.history(graph)
        place = play.config_at(past[deed.past % len(past)].config)
        if deed.what == "travel":
            await play.invoke(graph, None, place, **durability)
        elif deed.what == "fork":
            fork = await play.update(graph, {"log": [f"forked {number}"]}, place, as_node=_name(0))
            await play.invoke(graph, None, play.config_at(fork), **durability)
        else:
            await play.state(graph, place)
