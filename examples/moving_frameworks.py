"""One conversation in four programs: LangGraph begins it, OpenAI Agents, Pydantic AI and a plain loop go on with it.

Run it with `python examples/moving_frameworks.py`. The models are scripted, so that it needs no key. It needs
`pip install "perdure[langgraph,openai-agents,pydantic-ai]" langchain`.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from perdure import Agent
from perdure.adapters.conversations import read_conversation

THREAD = "trip"


def begin_in_langgraph(agent: Agent) -> None:
    """A tool is called and answers: the thread has four messages."""
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langgraph.graph import START, MessagesState, StateGraph

    from perdure.adapters.langgraph import PerdureSaver

    def answer(state: Any) -> Any:
        call = {"name": "search", "args": {"to": "NYC"}, "id": "call-1"}
        found = ToolMessage("9:00 and 11:00", tool_call_id="call-1", name="search")
        return {"messages": [AIMessage("", tool_calls=[call]), found, AIMessage("There are two flights.")]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    graph = builder.compile(checkpointer=PerdureSaver(agent))
    config: Any = {"configurable": {"thread_id": THREAD}}
    graph.invoke({"messages": [HumanMessage("Flights to NYC?")]}, config, durability="sync")


def go_on_in_openai_agents(agent: Agent) -> None:
    """The session has the same id, so that the model sees what was said in LangGraph."""
    os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
    from agents import Agent as OpenAIAgent
    from agents import Runner
    from agents.testing import ModelStep, ScriptedModel, assistant_message

    from perdure.adapters.openai_agents import PerdureSession, durable_model

    def answer(call: Any) -> ModelStep:
        return ModelStep(output=[assistant_message(f"I have read {len(call.input)} items.")])

    session = PerdureSession(agent, THREAD)
    model = durable_model(session, ScriptedModel([ModelStep.respond(answer)]))
    asyncio.run(Runner.run(OpenAIAgent("travel", model=model), "The earlier one.", session=session))


def go_on_in_pydantic_ai(agent: Agent) -> list[dict[str, Any]]:
    """Pydantic AI takes the history as an argument. What it adds is kept as a thread by its step store."""
    from pydantic_ai import Agent as PydanticAgent
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai_harness.step_persistence import StepPersistence

    from perdure.adapters.pydantic_ai import PerdureStepStore, to_model_messages

    def answer(messages: Any, info: Any) -> ModelResponse:
        return ModelResponse(parts=[TextPart("Booked.")])

    history = to_model_messages(read_conversation(agent, THREAD, "openai"))
    travel = PydanticAgent(FunctionModel(answer), capabilities=[StepPersistence(store=PerdureStepStore(agent))])
    asyncio.run(travel.run("Book it.", message_history=history, run_id=f"{THREAD}-pydantic"))
    return read_conversation(agent, f"{THREAD}-pydantic", "anthropic")


def main(store: str | None = None) -> list[dict[str, Any]]:
    """Play all four parts, and return what the plain loop sends to its model."""
    agent = Agent("travel", store=store)
    begin_in_langgraph(agent)
    go_on_in_openai_agents(agent)
    messages = go_on_in_pydantic_ai(agent)
    messages.append({"role": "user", "content": "Thank you."})  # the plain loop: any client takes these messages
    for message in messages:
        print(f"{message['role']}: {message['content']}")
    return messages


if __name__ == "__main__":
    main()
