"""Graphs that use what LangGraph has, one feature each. What is seen must not depend on the saver."""

from __future__ import annotations

import operator
import threading
from typing import Annotated, Any

from langchain_core.agents import AgentAction
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.cache.memory import InMemoryCache
from langgraph.channels.delta import DeltaChannel
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import CachePolicy, Command, RetryPolicy, Send, StateUpdate, interrupt
from typing_extensions import TypedDict

from tests.adapters.saver_comparison import Play


class State(TypedDict, total=False):
    """What most of them work on."""

    log: Annotated[list[str], operator.add]
    n: int


def says(*words: str, **values: Any) -> Any:
    """A node that says something."""

    def node(state: Any) -> dict[str, Any]:
        return {"log": list(words), **values}

    return node


def chain(*nodes: tuple[str, Any], schema: Any = State) -> Any:
    """A graph of nodes in a row."""
    graph: Any = StateGraph(schema)
    before = START
    for name, node in nodes:
        graph.add_node(name, node)
        graph.add_edge(before, name)
        before = name
    graph.add_edge(before, END)
    return graph


def asks(*questions: str) -> Any:
    """A node that stops for each of its questions."""

    def node(state: State) -> dict[str, Any]:
        return {"log": [f"{one}={interrupt({'ask': one})}" for one in questions]}

    return node


async def interrupts_of_one_node(play: Play) -> None:
    graph = chain(("a", says("a")), ("ask", asks("one", "two")), ("b", says("b"))).compile(checkpointer=play.saver)
    await play.invoke(graph, {"log": ["in"], "n": 0})
    await play.state(graph)
    await play.invoke(graph, Command(resume="first"))
    await play.state(graph)
    await play.invoke(graph, Command(resume="second", update={"n": 7}))
    await play.history(graph)


async def interrupts_in_a_loop(play: Play) -> None:
    def ask(state: State) -> dict[str, Any]:
        return {"log": [interrupt(f"round {state['n']}")], "n": state["n"] + 1}

    builder: Any = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    builder.add_conditional_edges("ask", lambda state: "ask" if state["n"] < 3 else END, ["ask", END])
    graph = builder.compile(checkpointer=play.saver)
    await play.invoke(graph, {"log": [], "n": 0})
    for turn in range(3):
        await play.stream(graph, Command(resume=f"answer {turn}"), ["updates", "values"])
    await play.history(graph)


async def interrupts_of_branches(play: Play) -> None:
    play.run_tasks_serially()
    builder: Any = StateGraph(State)
    for name in ("x", "y", "z"):
        builder.add_node(name, asks(name) if name != "z" else says("z"))
        builder.add_edge(START, name)
    builder.add_node("end", says("end"))
    builder.add_edge(["x", "y", "z"], "end")
    graph = builder.compile(checkpointer=play.saver)
    await play.invoke(graph, {"log": ["in"]})
    asked = (await play.state(graph)).interrupts
    [first] = [one for one in asked if one.value == {"ask": "y"}]
    await play.invoke(graph, Command(resume={first.id: "to y"}))
    await play.state(graph)
    await play.invoke(graph, Command(resume="to x"))
    await play.history(graph)


async def breakpoints(play: Play) -> None:
    builder = chain(("a", says("a")), ("b", says("b")), ("c", says("c")))
    graph = builder.compile(checkpointer=play.saver, interrupt_before=["b"], interrupt_after=["b"])
    await play.invoke(graph, {"log": []})
    await play.state(graph)
    for _ in range(3):
        await play.invoke(graph, None)
    await play.invoke(graph, {"log": ["again"]}, interrupt_before=["a", "c"], interrupt_after="*")
    await play.history(graph)


async def sends(play: Play) -> None:
    play.run_tasks_serially()

    def worker(given: dict[str, int]) -> dict[str, Any]:
        if given["item"] == 2:
            return {"log": [f"2 says {interrupt('two?')}"]}
        return {"log": [f"item {given['item']}"]}

    def fan(state: State) -> list[Send]:
        return [Send("worker", {"item": number}) for number in range(4)]

    builder: Any = StateGraph(State)
    builder.add_node("start", says("start"))
    builder.add_node("worker", worker)
    builder.add_node("late", says("late"), defer=True)
    builder.add_edge(START, "start")
    builder.add_conditional_edges("start", fan, ["worker"])
    builder.add_edge("start", "late")
    builder.add_edge("worker", END)
    graph = builder.compile(checkpointer=play.saver)
    await play.invoke(graph, {"log": []})
    await play.state(graph)
    await play.invoke(graph, Command(resume="hello"))
    await play.invoke(graph, Command(goto=[Send("worker", {"item": 9}), Send("late", {})]))
    await play.history(graph)


async def subgraphs(play: Play) -> None:
    inner = chain(("i1", says("i1")), ("i2", asks("inside")), ("i3", says("i3"))).compile()
    graph = chain(("a", says("a")), ("sub", inner), ("b", says("b"))).compile(checkpointer=play.saver)
    await play.stream(graph, {"log": ["in"], "n": 1}, ["updates", "values"], subgraphs=True)
    deep = await play.state(graph, subgraphs=True)
    inside = deep.tasks[0].state
    assert inside is not None and not isinstance(inside, dict)
    await play.update(graph, {"log": ["put inside"]}, play.config_at(inside.config))
    await play.history(graph, play.config_at(inside.config))
    await play.state(graph, subgraphs=True)
    await play.invoke(graph, Command(resume="yes"))
    await play.history(graph)


async def subgraphs_that_remember(play: Play) -> None:
    inner = chain(("i", lambda state: {"log": ["i"], "n": state.get("n", 0) + 1})).compile(checkpointer=True)

    def outer(state: State) -> dict[str, Any]:
        return {"log": [f"inner has {inner.invoke({'log': state['log'][:1]})}"]}

    async def async_outer(state: State) -> dict[str, Any]:
        return {"log": [f"inner has {await inner.ainvoke({'log': state['log'][:1]})}"]}

    graph = chain(("outer", async_outer if play.is_async else outer)).compile(checkpointer=play.saver)
    for turn in range(3):
        await play.invoke(graph, {"log": [f"turn {turn}"]})
    await play.history(graph)


async def to_the_parent(play: Play) -> None:
    def leave(state: State) -> Command[Any]:
        return Command(goto="b", update={"log": ["left"]}, graph=Command.PARENT)

    builder: Any = StateGraph(State)
    builder.add_node("sub", chain(("leave", leave)).compile())
    builder.add_node("b", says("b"))
    builder.add_edge(START, "sub")
    graph = builder.compile(checkpointer=play.saver)
    await play.invoke(graph, {"log": ["in"]})
    await play.history(graph)


async def time_travel(play: Play) -> None:
    builder = chain(("a", says("a")), ("b", lambda state: {"n": state["n"] * 2}), ("c", says("c")))
    graph = builder.compile(checkpointer=play.saver)
    await play.invoke(graph, {"log": ["in"], "n": 3})
    past = await play.history(graph)
    before_b = next(one for one in past if one.next == ("b",))
    await play.state(graph, before_b.config)
    await play.invoke(graph, None, play.config_at(before_b.config))
    fork = await play.update(graph, {"n": 50}, play.config_at(before_b.config))
    await play.state(graph, fork)
    await play.invoke(graph, None, play.config_at(fork))
    await play.invoke(graph, {"log": ["new"], "n": 1}, play.config_at(past[0].config))
    await play.update(graph, {"log": ["as c"]}, play.config_at(before_b.config), as_node="c")
    await play.history(graph)
    await play.history(graph, limit=2)
    await play.history(graph, before=before_b.config)
    await play.history(graph, filter={"source": "update"})
    await play.history(graph, filter={"step": 1, "source": "loop"}, limit=1)
    await play.history(graph, filter={"source": "nothing"})


async def updates_from_outside(play: Play) -> None:
    builder = chain(("a", says("a")), ("b", asks("b")), ("c", says("c")))
    graph = builder.compile(checkpointer=play.saver)
    await play.update(graph, {"log": ["first of all"], "n": 1}, as_node=START)
    await play.invoke(graph, None)
    await play.update(graph, {"log": ["instead of b"]}, as_node="b")
    await play.state(graph)
    await play.invoke(graph, None)
    await play.update(graph, None, as_node=END)
    await play.update(graph, {"log": ["nobody"]}, as_node="nobody")
    steps = [[StateUpdate({"log": ["x"]}, "a")], [StateUpdate({"log": ["y"]}, "b"), StateUpdate({"n": 2}, "c")]]
    await play.bulk(graph, steps)
    await play.history(graph)


def join_writes(state: list[str] | None, writes: list[Any]) -> list[str]:
    """All that was ever written, as a delta channel's reducer has it."""
    return [*(state or []), *(one for write in writes for one in write)]


class Deltas(TypedDict, total=False):
    """A list of which only what is new is stored."""

    log: Annotated[list[str], DeltaChannel(join_writes, snapshot_frequency=3)]
    n: int


async def delta_channels(play: Play) -> None:
    play.run_tasks_serially()

    def more(state: Deltas) -> dict[str, Any]:
        return {"log": [f"m{state['n']}"], "n": state["n"] + 1}

    builder: Any = StateGraph(Deltas)
    builder.add_node("more", more)
    builder.add_edge(START, "more")
    for name in ("left", "right"):
        builder.add_node(name, says(name))
        builder.add_edge("more", name)
    builder.add_node("join", lambda state: {})
    builder.add_edge(["left", "right"], "join")
    builder.add_conditional_edges("join", lambda state: "more" if state["n"] < 4 else END, ["more", END])
    graph = builder.compile(checkpointer=play.saver)
    await play.invoke(graph, {"log": ["in"], "n": 0})
    past = await play.history(graph)
    middle = past[len(past) // 2]
    fork = await play.update(graph, {"log": ["forked"], "n": 3}, play.config_at(middle.config), as_node="join")
    await play.state(graph, fork)
    await play.invoke(graph, None, play.config_at(fork))
    await play.update(graph, {"log": ["at the end"]}, as_node="join")
    await play.invoke(graph, {"log": ["again"], "n": 2})
    await play.history(graph)


async def functional(play: Play) -> None:
    calls = []

    @task
    def double(number: int) -> int:
        calls.append(number)
        return number * 2

    def work(given: int, *, previous: int | None = None) -> Any:
        results = [double(number).result() for number in range(given)]
        said = interrupt({"so far": results, "previous": previous})
        return entrypoint.final(value=[said, results], save=(previous or 0) + sum(results))

    async def async_work(given: int, *, previous: int | None = None) -> Any:
        results = [await double(number) for number in range(given)]
        said = interrupt({"so far": results, "previous": previous})
        return entrypoint.final(value=[said, results], save=(previous or 0) + sum(results))

    graph = entrypoint(checkpointer=play.saver)(async_work if play.is_async else work)
    for turn in (2, 3):
        await play.stream(graph, turn, ["updates", "tasks"])
        await play.state(graph)
        await play.invoke(graph, Command(resume=f"turn {turn}"))
    play.note(calls)
    await play.history(graph)


async def durabilities(play: Play) -> None:
    graph = chain(("a", says("a")), ("b", asks("b")), ("c", says("c"))).compile(checkpointer=play.saver)
    thread = play.config["configurable"]["thread_id"]
    for durability in ("sync", "async", "exit"):
        config = {**play.config, "configurable": {"thread_id": f"{thread}-{durability}"}}
        await play.invoke(graph, {"log": ["in"]}, config, durability=durability)
        await play.history(graph, config)
        await play.invoke(graph, Command(resume="on"), config, durability=durability)
        await play.history(graph, config)


class Talk(MessagesState):
    """Messages, the text of the last one, which is no plain text, and another class of LangChain's."""

    text: str
    agent: AgentAction


async def conversations(play: Play) -> None:
    def model(state: MessagesState) -> dict[str, Any]:
        said = AIMessage(f"heard {len(state['messages'])}", id=f"ai-{len(state['messages'])}")
        return {"messages": [said], "text": said.text, "agent": AgentAction("look", {"n": 1}, "log")}

    graph = chain(("model", model), schema=Talk).compile(checkpointer=play.saver)
    await play.invoke(graph, {"messages": [HumanMessage("hello", id="h1"), ("user", "and more")]})
    await play.invoke(graph, {"messages": [HumanMessage("corrected", id="h1")]})
    await play.update(graph, {"messages": [RemoveMessage(id="ai-2")]})
    await play.invoke(graph, {"messages": HumanMessage("last", id="h2")})
    await play.update(graph, {"messages": [RemoveMessage(id="__remove_all__"), HumanMessage("anew", id="h3")]})
    await play.invoke(graph, {"messages": []})
    await play.history(graph)


async def streams(play: Play) -> None:
    model = GenericFakeChatModel(messages=iter([AIMessage("one two", id="said-1"), AIMessage("three", id="said-2")]))

    def call(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    async def async_call(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    node = async_call if play.is_async else call
    graph = chain(("call", node), ("again", node), schema=MessagesState).compile(checkpointer=play.saver)
    modes = ["values", "updates", "messages", "debug", "checkpoints", "tasks", "custom"]
    await play.stream(graph, {"messages": [HumanMessage("go", id="h")]}, modes)
    await play.history(graph)


class Unheard(Exception):
    """A class that no saver knows."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.lock = threading.Lock()


async def errors_beside_siblings(play: Play) -> None:
    # The sibling ends first: LangGraph does not wait for one that is still at work when another fails.
    play.run_tasks_serially()
    ran: list[str] = []

    def early(state: State) -> dict[str, Any]:
        ran.append("early")
        return {"log": ["early"]}

    def late(state: State) -> dict[str, Any]:
        ran.append("late")
        if ran.count("late") < 3:
            raise (RuntimeError, Unheard)[ran.count("late") - 1]("not yet")
        return {"log": ["late, at last"]}

    builder: Any = StateGraph(State)
    for name, node in (("early", early), ("late", late)):
        builder.add_node(name, node)
        builder.add_edge(START, name)
    builder.add_node("end", says("end"))
    builder.add_edge(["early", "late"], "end")
    graph = builder.compile(checkpointer=play.saver)
    for _ in range(3):
        await play.invoke(graph, {"log": ["in"]} if not ran else None)
        await play.state(graph)
    play.note(ran)
    await play.history(graph)


async def retries_and_caches(play: Play) -> None:
    ran: list[str] = []

    def flaky(state: State) -> dict[str, Any]:
        ran.append("flaky")
        if ran.count("flaky") < 3:
            raise ConnectionError("try again")
        return {"log": ["got it"]}

    def cached(state: State) -> dict[str, Any]:
        ran.append("cached")
        return {"n": 5}

    builder: Any = StateGraph(State)
    builder.add_node("flaky", flaky, retry_policy=RetryPolicy(initial_interval=0.001, jitter=False))
    builder.add_node("cached", cached, cache_policy=CachePolicy(key_func=lambda state: b"same"))
    builder.add_edge(START, "flaky")
    builder.add_edge("flaky", "cached")
    graph = builder.compile(checkpointer=play.saver, cache=InMemoryCache())
    for _ in range(2):
        await play.stream(graph, {"log": ["in"]}, ["updates"])
    play.note(ran)
    await play.history(graph)


SCENES = [
    interrupts_of_one_node,
    interrupts_in_a_loop,
    interrupts_of_branches,
    breakpoints,
    sends,
    subgraphs,
    subgraphs_that_remember,
    to_the_parent,
    time_travel,
    updates_from_outside,
    delta_channels,
    functional,
    durabilities,
    conversations,
    streams,
    errors_beside_siblings,
    retries_and_caches,
]
