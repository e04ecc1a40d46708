"""Durable tools in the hands of LangChain: what cannot be stored, commands, retries, errors and structured answers."""

from __future__ import annotations

import sys
from datetime import date
from operator import add
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, RetryPolicy, Send
from pydantic import BaseModel, Field

import perdure.adapters.langgraph
from perdure import Agent, InDoubt, NotDone, RunWaiting
from perdure.adapters.langgraph import DurableTools, PerdureSaver, durable, effect_key
from perdure.errors import NotDurableWarning
from perdure.platform.failpoints import CommitMoment, Site
from tests.adapters.scripted_agent import (
    ASK,
    THREAD,
    Scripted,
    asks,
    make_pay_tool,
    pay_then_tell,
    payments,
    run_killed,
    shop,
)
from tests.conformance.kit import World, kill_at


class Handle:
    """What nobody can store."""

    def __repr__(self) -> str:
        return "<a handle>"


class Answer(AIMessage):
    """A provider's own class."""

    raw: Any = None


def wild(messages: Any) -> AIMessage:
    """The script, by a provider that puts everything into its answers."""
    made = pay_then_tell(messages)
    about: dict[str, Any] = {"headers": {"x": (1, Handle())}}
    about["itself"] = about
    return Answer(made.content, tool_calls=made.tool_calls, id=f"m{len(messages)}", raw=1, additional_kwargs=about)


@pytest.mark.filterwarnings("ignore::perdure.errors.NotDurableWarning")
def test_a_paid_answer_is_not_lost_whatever_is_in_it(tmp_path: Path, file_url: str, world: World) -> None:
    def graph_of(dies: str) -> Any:
        return shop(tmp_path, file_url, make_pay_tool(world, dies=dies), script=wild, in_doubt="retry")

    run_killed(lambda: graph_of("before").invoke(ASK, THREAD, durability="exit"))
    with pytest.warns(NotDurableWarning, match=r"model\(\)"):
        said = graph_of("").invoke(ASK, THREAD, durability="exit")["messages"]
    assert [one.content for one in said] == ["pay 10", "", "paid 10", "done: paid 10"]
    assert (said[1].id, said[1].usage_metadata["input_tokens"], type(said[1])) == ("m1", 100, AIMessage)
    assert said[1].additional_kwargs["headers"] == {"x": [1, "<a handle>"]}
    assert world.count("model") == 2


def node_graph(saver: Any, node: Any, **options: Any) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("pay", node, **options)
    builder.add_edge(START, "pay")
    return builder.compile(checkpointer=saver)


def test_a_tool_has_happened_whatever_it_returns(file_url: str, world: World) -> None:
    """An artifact is kept as text; what a node gives to the graph is asked for, and never got by paying again."""
    saver = PerdureSaver(Agent("shop", store=file_url))

    @tool(response_format="content_and_artifact")
    def pay(amount: int) -> Any:
        """Pay."""
        world.do("paid")
        return f"paid {amount}", {"receipt": Handle()}

    def pay_for(state: MessagesState) -> Any:
        world.do("paid")
        return {"messages": [("ai", Handle())]}

    graph = node_graph(saver, ToolNode([durable(pay)]))
    with pytest.warns(NotDurableWarning, match=r"pay\(\)\.artifact\.receipt"):
        said = graph.invoke({"messages": [asks("pay", ("c1", {"amount": 7}))]}, THREAD)["messages"][-1]
    assert (said.content, said.artifact) == ("paid 7", {"receipt": "<a handle>"})
    graph, other = node_graph(saver, durable(pay_for)), {"configurable": {"thread_id": "t2"}}
    with pytest.raises(InDoubt, match="happened, but its result cannot be stored") as raised:
        graph.invoke({"messages": []}, other)
    assert "--done" in raised.value.hint
    with pytest.raises(RunWaiting, match="pay_for happened, but its result could not be stored"):
        graph.invoke(None, other)
    assert world.count("paid") == 2
    [run] = [one.id for one in Agent("shop", store=file_url).runs.list() if one.id.startswith("t2/pay_for-")]
    Agent("shop", store=file_url).runs.answer(run, done={"messages": [("ai", "receipt 7")]})
    assert graph.invoke(None, other)["messages"][-1].content == "receipt 7"
    assert world.count("paid") == 2


class Receipt(BaseModel):
    amount: int
    day: date = Field(alias="on")


def test_a_structured_answer_comes_back_as_its_class(file_url: str, world: World) -> None:
    def program() -> Any:
        agent = Agent("shop", store=file_url)
        model = Scripted(answer=lambda _: asks("Receipt", ("c1", {"amount": 10, "on": "2026-11-16"})), world=world)
        saver = PerdureSaver(agent, allow=[Receipt])
        graph = create_agent(model, [], checkpointer=saver, middleware=[DurableTools(agent)], response_format=Receipt)
        return graph.invoke(ASK, THREAD, durability="exit")

    kill_at(program, Site.STEP_DONE, CommitMoment.AFTER)
    assert program()["structured_response"] == Receipt(amount=10, on=date(2026, 11, 16))
    assert world.count("model") == 1


class Sent(TypedDict):
    messages: Annotated[list[Any], add]
    told: Annotated[list[str], add]


def test_commands_and_sends_of_a_tool_are_remembered(file_url: str, world: World) -> None:
    @tool
    def pay(amount: int) -> Any:
        """Pay."""
        world.do("paid")
        message = ToolMessage("paid", tool_call_id="c1", artifact={"n": amount})
        return Command(
            update={"messages": [message]}, goto=[Send("tell", {"who": "Ann"}), Send("tell", {"who": "Bob"})]
        )

    def program() -> Any:
        builder = StateGraph(Sent)
        builder.add_node("pay", ToolNode([durable(pay)]))
        builder.add_node("tell", lambda given: {"told": [given["who"]]})
        builder.add_edge(START, "pay")
        graph = builder.compile(checkpointer=PerdureSaver(Agent("shop", store=file_url)))
        return graph.invoke({"messages": [asks("pay", ("c1", {"amount": 7}))]}, THREAD, durability="exit")

    kill_at(program, Site.EFFECT_OUTCOME, CommitMoment.AFTER)
    came = program()
    assert (came["told"], came["messages"][-1].artifact) == (["Ann", "Bob"], {"n": 7})
    assert world.count("paid") == 1


class NoFunds(Exception):
    pass


def test_retries_and_handlers_of_errors_do_not_repeat_a_payment(file_url: str, world: World) -> None:
    """What did not happen is tried again by LangGraph, or told to the model; what leaves a doubt is neither."""
    saver = PerdureSaver(Agent("shop", store=file_url))

    def pay(state: MessagesState) -> Any:
        world.do(f"paid {effect_key()}")
        raise NotDone("busy") if len(payments(world)) < 3 else ConnectionError("gone")

    retry = RetryPolicy(max_attempts=5, initial_interval=0.001, retry_on=Exception)
    with pytest.raises(InDoubt, match="gone"):
        node_graph(saver, durable(pay), retry_policy=retry).invoke({"messages": []}, THREAD)
    assert len(payments(world)) == 3 and len(set(payments(world))) == 1

    @tool("pay")
    def pay_now(amount: int) -> str:
        """Pay."""
        world.do("now")
        raise NoFunds("empty") if amount < 10 else ConnectionError("gone")

    graph = node_graph(saver, ToolNode([durable(pay_now, not_done=(NoFunds,))], handle_tool_errors=True))
    other: Any = {"configurable": {"thread_id": "t2"}}
    said = graph.invoke({"messages": [asks("pay", ("c1", {"amount": 7}))]}, other)["messages"][-1]
    assert said.status == "error" and "empty" in said.content
    with pytest.raises(InDoubt, match="gone"):
        graph.invoke({"messages": [asks("pay", ("c2", {"amount": 10}))]}, other)
    assert world.count("now") == 2


def test_tokens_stream_from_a_model_that_is_called(file_url: str) -> None:
    class Model(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **_: Any) -> Any:
            return self

    agent = Agent("shop", store=file_url)
    model = Model(messages=iter([AIMessage("one two three")]))
    graph = create_agent(model, [], checkpointer=PerdureSaver(agent), middleware=[DurableTools(agent)])
    parts = [part.content for part, _ in graph.stream(ASK, THREAD, stream_mode="messages")]
    assert [one for one in parts if one.strip()] == ["one", "two", "three"]


def test_without_langchain_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "perdure.adapters.langgraph.middleware")
    monkeypatch.setitem(sys.modules, "langchain.agents.middleware.types", None)
    with pytest.raises(ImportError, match="pip install langchain"):
        _ = perdure.adapters.langgraph.DurableTools
    assert callable(durable)
