"""Tools of LangChain that are killed: what was done is not done again, and nobody guesses."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from contextvars import Context
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import InjectedToolArg, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from perdure import Agent, Done, InDoubt, NotDone, RunBusy, RunWaiting
from perdure.adapters.langgraph import DurableTools, PerdureSaver, PerdureStore, durable, effect_key
from perdure.errors import Diverged, NotDurable
from perdure.platform.failpoints import CommitMoment, Site
from tests.adapters.scripted_agent import (
    ASK,
    THREAD,
    FileSaver,
    asks,
    make_check,
    make_pay_tool,
    pay_then_tell,
    payments,
    run_killed,
    shop,
)
from tests.conformance.kit import World, die, fork_program, kill_at, run_in_child

OTHER: Any = {"configurable": {"thread_id": "t2"}}


def has_begun(graph: Any, thread: Any) -> bool:
    """With durability="exit", and at times with "async", nothing of the thread is there to go on with."""
    return bool(graph.get_state(thread).values or graph.get_state(thread).next)


RESUMES = [
    ("sync", None, "before"),
    ("sync", None, "after"),
    ("sync", ASK, "after"),
    ("async", None, "after"),
    ("async", ASK, "after"),
    ("exit", ASK, "before"),
    ("exit", ASK, "after"),
]


def saver_of(folder: Path, durability: str) -> Any:
    """Ours, or any other one."""
    return FileSaver(folder) if durability == "async" else None


@pytest.mark.parametrize(("durability", "again", "dies"), RESUMES)
def test_a_tool_that_was_killed_is_done_once(
    tmp_path: Path, file_url: str, world: World, durability: Any, again: Any, dies: str
) -> None:
    def first() -> None:
        graph = shop(tmp_path, file_url, make_pay_tool(world, dies=dies), saver=saver_of(tmp_path, durability))
        graph.invoke(ASK, THREAD, durability=durability)

    run_killed(first)
    saver = saver_of(tmp_path, durability)
    graph = shop(tmp_path, file_url, make_pay_tool(world), checks={"pay": make_check(world)}, saver=saver)
    given = again if has_begun(graph, THREAD) else ASK
    said = [one.content for one in graph.invoke(given, THREAD, durability=durability)["messages"]]
    assert said == ["pay 10", "", said[2], f"done: {said[2]}"]
    assert said[2] == ("seen 10" if dies == "after" else "paid 10")
    assert len(payments(world)) == 1
    assert world.count("model") == 2


SITES = [Site.STATE, Site.RUN_CLAIM, Site.STEP_DONE, Site.EFFECT_INTENT, Site.EFFECT_OUTCOME, Site.RUN_END]
"""The commits of a model's call and of a tool's, one after the other: the trail, the claim, the work, the end."""


def test_killed_at_every_commit_of_its_own_it_pays_once(tmp_path: Path, store_url: str) -> None:
    for number, site in enumerate(SITES):
        a_kill(tmp_path / str(number), store_url, site, CommitMoment.AFTER, ["sync", "exit"][number % 2])


@pytest.mark.soak
def test_killed_around_every_commit_in_every_mode(tmp_path: Path, store_url: str) -> None:
    everywhere = product(SITES, [CommitMoment.BEFORE, CommitMoment.AFTER], ["sync", "async", "exit"])
    for number, (site, moment, durability) in enumerate(everywhere):
        a_kill(tmp_path / str(number), store_url, site, moment, durability)


def a_kill(folder: Path, store_url: str, site: Site, moment: CommitMoment, durability: Any) -> None:
    """Killed there, in the tool's own part, and resumed."""
    folder.mkdir()
    world, thread = World(folder), {"configurable": {"thread_id": folder.name}}

    def program() -> Any:
        graph = shop(folder, store_url, make_pay_tool(world), checks={"pay": make_check(world)})
        return graph.invoke(None if has_begun(graph, thread) else ASK, thread, durability=durability)

    nth = 2 if site in (Site.STATE, Site.RUN_CLAIM, Site.RUN_END) else 1  # the first is the model's
    kill_at(program, site, moment, nth)
    assert program()["messages"][-1].content.startswith("done: ")
    assert len(payments(world)) == 1, (site, moment)
    assert world.count("model") == 2 + (site is Site.STEP_DONE and moment is not CommitMoment.AFTER), (site, moment)


def test_in_doubt_a_person_is_asked_and_then_the_graph_goes_on(tmp_path: Path, file_url: str, world: World) -> None:
    run_killed(
        lambda: shop(tmp_path, file_url, make_pay_tool(world, dies="after")).invoke(ASK, THREAD, durability="sync")
    )
    graph, agent = shop(tmp_path, file_url, make_pay_tool(world)), Agent("shop", store=file_url)
    with pytest.raises(RunWaiting, match="the outcome of pay is unknown") as raised:
        graph.invoke(None, THREAD)
    [run] = [one.id for one in agent.runs.list() if one.id.startswith("t1/pay-")]
    assert f"perdure answer {run}" in raised.value.hint
    with pytest.raises(RunWaiting):
        graph.invoke(ASK, THREAD)  # neither does asking once more
    agent.runs.answer(run, done="receipt 7")
    said = [one.content for one in graph.invoke(None, THREAD)["messages"]]
    assert said == ["pay 10", "", "receipt 7", "done: receipt 7"]
    assert len(payments(world)) == 1
    assert world.count("model") == 2


def test_a_thread_that_was_deleted_begins_anew(tmp_path: Path, store_url: str, world: World) -> None:
    """Nothing of it is remembered, whether it has checkpoints or none; but nobody pays again for what is in doubt."""
    agent = Agent("shop", store=store_url)

    def program(dies: str, durability: Any) -> Any:
        return shop(tmp_path, store_url, make_pay_tool(world, dies=dies)).invoke(ASK, THREAD, durability=durability)

    for again, durability in enumerate(["exit", "sync"], start=1):
        kill_at(lambda: program("", durability), Site.EFFECT_OUTCOME, CommitMoment.AFTER)  # noqa: B023 - called at once
        agent.state.revert(datetime(2000, 1, 1, tzinfo=UTC))  # what was begun stays known, whatever the agent forgets
        assert len(agent.state.items("perdure:calls/t1")) == 2
        assert not PerdureStore(agent).list_namespaces()
        agent.threads.delete("t1")
        assert not agent.state.items("perdure:calls/t1")
        assert (len(payments(world)), world.count("model")) == (again, again)
    run_killed(lambda: program("after", "sync"))
    PerdureSaver(agent).delete_thread("t1")
    with pytest.raises(RunWaiting, match="the outcome of pay is unknown"):
        program("", "sync")
    assert (len(payments(world)), world.count("model")) == (3, 4)


def test_when_a_person_gives_up_the_model_is_told(tmp_path: Path, file_url: str, world: World) -> None:
    run_killed(
        lambda: shop(tmp_path, file_url, make_pay_tool(world, dies="after")).invoke(ASK, THREAD, durability="sync")
    )
    graph, agent = shop(tmp_path, file_url, make_pay_tool(world)), Agent("shop", store=file_url)
    with pytest.raises(RunWaiting):
        graph.invoke(None, THREAD)
    [run] = [one.id for one in agent.runs.list() if one.id.startswith("t1/pay-")]
    agent.runs.answer(run, fail=True)
    told = graph.invoke(None, THREAD)["messages"][-2]
    assert told.status == "error" and "will not be tried again" in told.content
    assert len(payments(world)) == 1


def test_two_that_resume_one_thread_do_it_once(tmp_path: Path, store_url: str, world: World) -> None:
    """The second is told who is at it, whatever LangGraph lets it do."""
    run_killed(
        lambda: shop(tmp_path, store_url, make_pay_tool(world, dies="before")).invoke(ASK, THREAD, durability="sync")
    )

    def pay(amount: int) -> str:
        """Pay."""
        world.do(f"paid {effect_key()}")
        assert run_in_child(lambda: Context().run(second)) == 0
        return "paid"

    def second() -> None:
        other = shop(tmp_path, store_url, make_pay_tool(world), checks={"pay": make_check(world)})
        with pytest.raises(RunBusy):
            other.invoke(None, THREAD)

    shop(tmp_path, store_url, pay, checks={"pay": make_check(world)}).invoke(None, THREAD)
    assert len(payments(world)) == 1


def test_a_model_that_decides_otherwise_cannot_pay_again(tmp_path: Path, file_url: str, world: World) -> None:
    """What was paid is not in the graph, and the conversation is another one: nobody may guess that it is new."""
    run_killed(
        lambda: shop(tmp_path, file_url, make_pay_tool(world, dies="after")).invoke(ASK, THREAD, durability="exit")
    )
    other = {"messages": [{"role": "user", "content": "please pay 10"}]}

    def script(messages: Any) -> Any:
        return pay_then_tell(messages) if messages[-1].type == "tool" else asks("pay", ("other", {"amount": 10}))

    with pytest.raises(Diverged, match="pay is in doubt"):
        shop(tmp_path, file_url, make_pay_tool(world), script=script).invoke(other, THREAD, durability="exit")
    assert len(payments(world)) == 1
    graph = shop(tmp_path, file_url, make_pay_tool(world), script=script, on_change="rerun")
    graph.invoke(other, THREAD, durability="exit")
    assert len(payments(world)) == 2


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_the_next_turn_and_a_fork_are_new(tmp_path: Path, file_url: str, world: World, durability: Any) -> None:
    graph = shop(tmp_path, file_url, make_pay_tool(world))
    for turn in (1, 2, 3):
        graph.invoke(ASK, THREAD, durability=durability)
        assert (len(payments(world)), world.count("model")) == (turn, 2 * turn)
    past = [one for one in graph.get_state_history(THREAD) if one.next == ("tools",)]
    if durability != "exit":  # which has no checkpoint to go back to
        graph.invoke(None, past[-1].config, durability=durability)
        assert (len(payments(world)), world.count("model")) == (4, 7)
    assert len(set(payments(world))) == len(payments(world))


def test_an_interrupt_in_a_tool_waits_and_is_no_failure(tmp_path: Path, file_url: str, world: World) -> None:
    def pay(amount: int) -> str:
        """Pay."""
        world.do(f"began {effect_key()}")
        if interrupt("really?") != "yes":
            return "refused"
        world.do(f"paid {effect_key()}")
        return "paid"

    graph = shop(tmp_path, file_url, pay)
    assert graph.invoke(ASK, THREAD)["__interrupt__"][0].value == "really?"
    agent = Agent("shop", store=file_url)
    assert {str(one.status) for one in agent.runs.list()} == {"finished", "interrupted"}
    said = shop(tmp_path, file_url, pay).invoke(Command(resume="yes"), THREAD)["messages"]
    assert said[-1].content == "done: paid"
    began = [one for one in world.read_all() if one.startswith("began")]
    assert len(began) == 2 and len(set(began)) == 1  # from its start, with the same key
    assert len(payments(world)) == 1


def test_parallel_tools_are_each_done_once(tmp_path: Path, file_url: str, world: World) -> None:
    check_parallel_tools(tmp_path, file_url, world, asynchronous=False)


def test_parallel_tools_under_asyncio_are_each_done_once(tmp_path: Path, store_url: str, world: World) -> None:
    check_parallel_tools(tmp_path, store_url, world, asynchronous=True)


def check_parallel_tools(folder: Path, store_url: str, world: World, *, asynchronous: bool) -> None:
    """Killed in the third of three: the two that are done stay done, and nobody waits for anybody."""

    def script(messages: Any) -> Any:
        calls = [(f"c{n}", {"amount": n}) for n in (1, 2, 3)]
        return pay_then_tell(messages) if messages[-1].type == "tool" else asks("pay", *calls)

    def tool_of(dies: bool) -> Any:
        def pay(amount: int) -> str:
            """Pay."""
            if dies and amount == 3:
                while len(payments(world)) < 2:
                    time.sleep(0.01)
                time.sleep(0.1)
                die()
            world.do(f"paid {amount}")
            return f"paid {amount}"

        async def apay(amount: int) -> str:
            """Pay."""
            return await asyncio.to_thread(pay, amount)

        return tool(apay if asynchronous else pay)

    def program(dies: bool, given: Any) -> Any:
        made = tool_of(dies)
        made.name = "pay"
        graph = shop(folder, store_url, made, script=script, in_doubt={"pay": "retry"})
        if asynchronous:
            return asyncio.run(graph.ainvoke(given, THREAD, durability="sync"))
        return graph.invoke(given, THREAD, durability="sync")

    run_killed(lambda: program(True, ASK))
    said = [one.content for one in program(False, None)["messages"] if one.type == "tool"]
    assert said == ["paid 1", "paid 2", "paid 3"]
    assert sorted(payments(world)) == ["paid 1", "paid 2", "paid 3"]


def test_a_tools_errors_go_where_they_went(tmp_path: Path, file_url: str, world: World) -> None:
    """NotDone is an error like any other; what leaves a doubt is not told to the model, which would try again."""

    def pay(amount: int) -> str:
        """Pay."""
        world.do("paid")
        raise NotDone("no money") if world.count("paid") == 1 else ConnectionError("gone")

    graph = shop(tmp_path, file_url, pay)
    with pytest.raises(NotDone, match="no money"):
        graph.invoke(ASK, THREAD)
    with pytest.raises(InDoubt, match="gone") as raised:
        graph.invoke(None, THREAD)
    assert isinstance(raised.value.__cause__, ConnectionError)
    with pytest.raises(RunWaiting):
        graph.invoke(None, THREAD)
    assert world.count("paid") == 2


class Plan(TypedDict):
    amount: int
    receipt: str


def make_plain_graph(folder: Path, node: Any) -> Any:
    builder = StateGraph(Plan)
    builder.add_node("before", lambda state: {})
    builder.add_node("pay", node)
    builder.add_edge(START, "before")
    builder.add_edge("before", "pay")
    builder.add_edge("pay", END)
    return builder.compile(checkpointer=FileSaver(folder))


@pytest.mark.parametrize(("durability", "again"), [("sync", None), ("async", {"amount": 10}), ("exit", {"amount": 10})])
def test_a_plain_node_is_done_once(tmp_path: Path, file_url: str, world: World, durability: Any, again: Any) -> None:
    def node_of(dies: bool) -> Any:
        def pay(state: Plan, config: RunnableConfig, *, key: str) -> Any:
            world.do(f"paid {key}")
            if dies:
                die()
            return {"receipt": f"paid {state['amount']}"}

        return durable(pay, agent=Agent("shop", store=file_url), check=paid)

    def paid(state: Plan, *, key: str) -> Any:
        return Done({"receipt": "seen"}) if f"paid {key}" in world.read_all() else NotDone

    run_killed(lambda: make_plain_graph(tmp_path, node_of(True)).invoke({"amount": 10}, THREAD, durability=durability))
    graph = make_plain_graph(tmp_path, node_of(False))
    given = None if again is None else again
    assert graph.invoke(given, THREAD, durability=durability)["receipt"] == "seen"
    assert len(payments(world)) == 1
    assert graph.invoke({"amount": 10}, THREAD, durability=durability)["receipt"] == "paid 10"
    assert len(payments(world)) == 2  # said once more, it is wanted once more


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_tool_in_a_subgraph_is_done_once(tmp_path: Path, file_url: str, world: World, durability: Any) -> None:
    def graph_of(dies: str) -> Any:
        inner = shop(tmp_path, file_url, make_pay_tool(world, dies=dies), checks={"pay": make_check(world)}, part=True)
        builder = StateGraph(MessagesState)
        builder.add_node("shop", inner)
        builder.add_edge(START, "shop")
        return builder.compile(checkpointer=PerdureSaver(Agent("shop", store=file_url)))

    run_killed(lambda: graph_of("after").invoke(ASK, THREAD, durability=durability))
    graph = graph_of("")
    given = None if has_begun(graph, THREAD) else ASK
    assert graph.invoke(given, THREAD, durability=durability)["messages"][-1].content == "done: seen 10"
    assert (len(payments(world)), world.count("model")) == (1, 2)
    assert graph.invoke(ASK, THREAD, durability=durability)["messages"][-1].content == "done: paid 10"
    assert (len(payments(world)), world.count("model")) == (2, 4)


def test_tasks_of_the_functional_api_are_done_once(tmp_path: Path, file_url: str, world: World) -> None:
    agent = Agent("shop", store=file_url)

    def flow_of(dies: bool) -> Any:
        def pay(amount: int, *, key: str) -> str:
            world.do(f"paid {key}")
            if dies and len(payments(world)) == 2:
                die()
            return f"paid {amount}"

        paying_task = task(durable(pay, check=make_check(world)))

        @entrypoint(checkpointer=PerdureSaver(agent))
        def flow(amount: int) -> list[str]:
            return [paying_task(amount).result(), paying_task(amount).result()]

        return flow

    run_killed(lambda: flow_of(True).invoke(10, THREAD, durability="exit"))
    assert flow_of(False).invoke(10, THREAD, durability="exit") == ["paid 10", "seen 10"]
    assert len(set(payments(world))) == 2 == len(payments(world))


def test_a_durable_tool_needs_no_middleware(tmp_path: Path, file_url: str, world: World) -> None:
    agent = Agent("shop", store=file_url)

    @tool
    def pay(amount: int, key: Annotated[str, InjectedToolArg]) -> str:
        """Pay."""
        world.do(f"paid {key}")
        return f"paid {amount} with {len(key)}"

    made = durable(pay, agent=agent, key="key")
    assert set(made.tool_call_schema.model_json_schema()["properties"]) == {"amount"}
    builder = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode([made]))
    builder.add_edge(START, "tools")
    graph = builder.compile(checkpointer=FileSaver(tmp_path))
    said = graph.invoke({"messages": [asks("pay", ("c1", {"amount": 7}))]}, THREAD)["messages"][-1]
    assert said.content.startswith("paid 7 with ") and not said.content.endswith(" 0")
    assert shop(tmp_path / "..", file_url, made, saver=InMemorySaver()).invoke(ASK, OTHER)["messages"][-2].content
    assert len(payments(world)) == 2


def test_outside_of_a_thread_it_says_so(file_url: str, world: World) -> None:
    pay = durable(make_pay_tool(world), agent=Agent("shop", store=file_url))
    with pytest.raises(NotDurable, match="checkpointer"):
        pay(10)
    with pytest.raises(ValueError, match="in_doubt|in_doubt"):
        durable(make_pay_tool(world), in_doubt="guess")
    with pytest.raises(TypeError, match="steps="):
        DurableTools(Agent("shop", store=file_url), steps="search")


def test_what_was_not_paid_again_is_counted(tmp_path: Path, file_url: str, world: World) -> None:
    run_killed(
        lambda: shop(tmp_path, file_url, make_pay_tool(world, dies="before")).invoke(ASK, THREAD, durability="exit")
    )
    shop(tmp_path, file_url, make_pay_tool(world), in_doubt="retry").invoke(ASK, THREAD, durability="exit")
    agent = Agent("shop", store=file_url)
    assert agent.usage().input_tokens == 200
    assert (agent.savings().calls, agent.savings().input_tokens) == (1, 100)
    assert len(payments(world)) == 1


@pytest.mark.soak
def test_a_hundred_rounds(tmp_path: Path, store_url: str) -> None:
    """Killed at some moment of its time in the tool, or around it: it pays once."""
    for number in range(100):
        folder = tmp_path / str(number)
        folder.mkdir()
        a_round(folder, store_url, random.Random(number))


def test_some_rounds(tmp_path: Path, store_url: str) -> None:
    a_round(tmp_path, store_url, random.Random(store_url.partition(":")[0]))


def a_round(folder: Path, store_url: str, chance: random.Random) -> None:
    """Killed by another process at a moment that nobody has chosen, and resumed until it gets through."""
    world, durability = World(folder), chance.choice(["sync", "async", "exit"])
    thread: Any = {"configurable": {"thread_id": folder.name}}

    def pay(amount: int) -> str:
        """Pay."""
        time.sleep(0.02)
        world.do(f"paid {effect_key()}")
        time.sleep(0.02)
        return f"paid {amount}"

    def program() -> None:
        graph = shop(folder, store_url, pay, checks={"pay": make_check(world)})
        given = chance.choice([None, ASK]) if has_begun(graph, thread) else ASK
        graph.invoke(given, thread, durability=durability)

    for _ in range(3):
        pid = fork_program(program)
        while not world.read_all():
            time.sleep(0.005)
        time.sleep(chance.random() * 0.12)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        if is_done(store_url, thread):
            break
    if not is_done(store_url, thread):
        program()
    assert is_done(store_url, thread)
    assert len(payments(world)) == 1, (durability, world.read_all())


def is_done(store_url: str, thread: Any) -> bool:
    """Whether the conversation has come to its end, going by what is saved."""
    found = PerdureSaver(Agent("shop", store=store_url)).get(thread)
    said = found["channel_values"].get("messages", []) if found else []
    return bool(said) and said[-1].content.startswith("done")
