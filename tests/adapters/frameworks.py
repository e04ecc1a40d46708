"""One agent with three tools, written for each framework with a scripted model, so that the same kills hit all.

A program plays the whole turn with the question "go". `play` kills itself at the moment it is told. Model calls and
tool effects are counted outside. Without Perdure, a program uses what the framework itself offers to survive.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from perdure import Agent
from tests.adapters.loops import play_a2a, play_anthropic, play_crewai, play_openai
from tests.adapters.stage import ANSWER, MOMENTS, TOOLS, Stage, make_function

__all__ = ["ANSWER", "MOMENTS", "PLAYS", "TOOLS", "play", "warm_up"]


os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"


def play_openai_agents(stage: Stage) -> str:
    from agents import Agent as FrameworkAgent
    from agents import Model, ModelResponse, Runner, Usage, function_tool
    from agents.memory import SQLiteSession
    from openai.types.responses import (
        Response,
        ResponseCompletedEvent,
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    from perdure.adapters.openai_agents import PerdureSession, durable, durable_model

    def answer(input: Any) -> Any:
        results = 0 if isinstance(input, str) else sum(item.get("type") == "function_call_output" for item in input)
        name = stage.model(results)
        if name is not None:
            given = json.dumps({"x": results})
            return ResponseFunctionToolCall(arguments=given, call_id=f"call-{results}", name=name, type="function_call")
        if stage.streams:
            stage.cut()
        text = ResponseOutputText(text=ANSWER, type="output_text", annotations=[])
        return ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")

    class Scripted(Model):
        async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
            return ModelResponse(output=[answer(input)], usage=Usage(), response_id=None)

        async def stream_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
            whole: Any = {"id": "r", "created_at": 0, "model": "none", "object": "response", "output": [answer(input)]}
            whole |= {"tool_choice": "auto", "tools": [], "parallel_tool_calls": False}
            yield ResponseCompletedEvent(type="response.completed", sequence_number=0, response=Response(**whole))

    model: Any = Scripted()
    tools: list[Any] = [function_tool(make_function(stage, number)) for number in TOOLS]
    session: Any = SQLiteSession("user-1", stage.folder / "own.db")
    if stage.ours:
        session = PerdureSession(stage.url, "user-1")
        model = durable_model(session, model)
        tools = [durable(tool, session=session, check=stage.check(n)) for n, tool in zip(TOOLS, tools, strict=True)]
    agent: Any = FrameworkAgent("shop", model=model, tools=tools)

    async def main() -> str:
        if not stage.streams:
            return str((await Runner.run(agent, "go", session=session)).final_output)
        result = Runner.run_streamed(agent, "go", session=session)
        async for _ in result.stream_events():
            pass
        return str(result.final_output)

    return asyncio.run(main())


def play_langgraph(stage: Stage) -> str:
    from langchain.agents import create_agent
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage
    from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

    from perdure.adapters.langgraph import DurableTools, PerdureSaver

    def count(messages: Any) -> int:
        return sum(isinstance(message, ToolMessage) for message in messages)

    def call(name: str, results: int) -> Any:
        return {"name": name, "args": {"x": results}, "id": f"call-{results}"}

    class Scripted(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self

        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
            results = count(messages)
            name = stage.model(results)
            said = AIMessage(ANSWER) if name is None else AIMessage("", tool_calls=[call(name, results)])
            return ChatResult(generations=[ChatGeneration(message=said)])

        def _stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            results = count(messages)
            name = stage.model(results)
            if name is not None:
                made = {**call(name, results), "args": json.dumps({"x": results}), "index": 0}
                yield ChatGenerationChunk(message=AIMessageChunk("", tool_call_chunks=[made]))
                return
            for piece in stage.pieces():
                yield ChatGenerationChunk(message=AIMessageChunk(piece))
                stage.cut()

    agent = Agent("langgraph", store=stage.url)
    checks = {f"tool{number}": stage.check(number) for number in TOOLS}
    with ExitStack() as stack:
        if stage.ours:
            saver: Any = PerdureSaver(agent)
        else:
            from langgraph.checkpoint.sqlite import SqliteSaver  # for tools/framework_table.py only

            saver = stack.enter_context(SqliteSaver.from_conn_string(str(stage.folder / "own.db")))
        graph: Any = create_agent(
            Scripted(),
            [make_function(stage, number) for number in TOOLS],
            checkpointer=saver,
            middleware=[DurableTools(agent, checks=checks)] if stage.ours else [],
        )
        place: Any = {"configurable": {"thread_id": "user-1"}}
        # LangGraph resumes a graph without input; with Perdure, the same input resumes it too.
        begun = not stage.ours and bool(graph.get_state(place).next)
        given = None if begun else {"messages": [("user", "go")]}
        if not stage.streams:
            return str(graph.invoke(given, place, durability="sync")["messages"][-1].content)
        for _ in graph.stream(given, place, stream_mode="messages", durability="sync"):
            pass
        return str(graph.get_state(place).values["messages"][-1].content)


def play_pydantic_ai(stage: Stage) -> str:
    from pydantic_ai import Agent as FrameworkAgent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import DeltaToolCall, FunctionModel

    from perdure.adapters.pydantic_ai import Durability

    def count(messages: Any) -> int:
        return sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)

    def answer(messages: Any, info: Any) -> ModelResponse:
        results = count(messages)
        name = stage.model(results)
        if name is None:
            return ModelResponse(parts=[TextPart(ANSWER)])
        return ModelResponse(parts=[ToolCallPart(name, {"x": results}, tool_call_id=f"call-{results}")])

    async def stream(messages: Any, info: Any) -> Any:
        results = count(messages)
        name = stage.model(results)
        if name is not None:
            call = DeltaToolCall(name=name, json_args=json.dumps({"x": results}), tool_call_id=f"call-{results}")
            yield {0: call}
            return
        first, second = stage.pieces()
        yield first
        stage.cut()
        yield second

    checks = {f"tool{number}": stage.check(number) for number in TOOLS}
    agent = FrameworkAgent(
        FunctionModel(answer, stream_function=stream),
        capabilities=[Durability(stage.url, checks=checks)] if stage.ours else [],
    )
    for number in TOOLS:
        agent.tool_plain(make_function(stage, number))

    async def main() -> str:
        if not stage.streams:
            return (await agent.run("go", run_id="user-1")).output
        async with agent.run_stream("go", run_id="user-1") as result:
            return "".join([piece async for piece in result.stream_text(delta=True)])

    return asyncio.run(main())


def play_adk(stage: Stage) -> str:
    from google.adk.agents import LlmAgent
    from google.adk.agents.run_config import RunConfig, StreamingMode
    from google.adk.apps import App
    from google.adk.models.base_llm import BaseLlm
    from google.adk.models.llm_response import LlmResponse
    from google.adk.runners import Runner
    from google.adk.sessions.sqlite_session_service import SqliteSessionService
    from google.genai import types

    from perdure.adapters.adk import DurabilityPlugin, PerdureSessionService

    def say(**part: Any) -> types.Content:
        return types.Content(role="model", parts=[types.Part(**part)])

    class Scripted(BaseLlm):
        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
            parts = [part for content in llm_request.contents for part in content.parts]
            results = sum(part.function_response is not None for part in parts)
            name = stage.model(results)
            if name is not None:
                yield LlmResponse(content=say(function_call=types.FunctionCall(name=name, args={"x": results})))
                return
            for piece in stage.pieces() if stream else ():
                yield LlmResponse(content=say(text=piece), partial=True)
                stage.cut()
            yield LlmResponse(content=say(text=ANSWER))

    checks = {f"tool{number}": stage.check(number) for number in TOOLS}
    agent = LlmAgent(name="shop", model=Scripted(model="none"), tools=[make_function(stage, n) for n in TOOLS])
    app = App(name="shop", root_agent=agent, plugins=[DurabilityPlugin(stage.url, checks)] if stage.ours else [])
    service: Any = (
        PerdureSessionService(stage.url) if stage.ours else SqliteSessionService(str(stage.folder / "own.db"))
    )

    async def main() -> str:
        runner = Runner(app=app, session_service=service)
        place: dict[str, Any] = {"app_name": "shop", "user_id": "ann", "session_id": "user-1"}
        if await service.get_session(**place) is None:
            await service.create_session(**place)
        config = RunConfig(streaming_mode=StreamingMode.SSE if stage.streams else StreamingMode.NONE)
        asked = types.Content(role="user", parts=[types.Part(text="go")])
        said = ""
        async for event in runner.run_async(user_id="ann", session_id="user-1", new_message=asked, run_config=config):
            if event.is_final_response() and event.content:
                said = event.content.parts[0].text
        return said

    return asyncio.run(main())


def play_strands(stage: Stage) -> str:
    from strands import Agent as FrameworkAgent
    from strands import tool as as_tool
    from strands.models.model import Model
    from strands.session.file_session_manager import FileSessionManager

    from perdure.adapters.strands import PerdureSessionManager, durable

    class Scripted(Model):
        def update_config(self, **config: Any) -> None: ...

        def get_config(self) -> Any:
            return {}

        async def structured_output(self, *args: Any, **kwargs: Any) -> Any:
            yield {}

        async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            results = sum("toolResult" in block for message in messages for block in message["content"])
            name = stage.model(results)
            yield {"messageStart": {"role": "assistant"}}
            if name is not None:
                yield {"contentBlockStart": {"start": {"toolUse": {"name": name, "toolUseId": f"call-{results}"}}}}
                yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps({"x": results})}}}}
            else:
                yield {"contentBlockStart": {"start": {}}}
                for piece in stage.pieces():
                    yield {"contentBlockDelta": {"delta": {"text": piece}}}
                    stage.cut()
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "end_turn" if name is None else "tool_use"}}

    tools: list[Any] = [as_tool(make_function(stage, number)) for number in TOOLS]
    session: Any = None
    if stage.ours:
        session = PerdureSessionManager(stage.url, "user-1")
        tools = [durable(tool, session=session, check=stage.check(n)) for n, tool in zip(TOOLS, tools, strict=True)]
    else:
        session = FileSessionManager("user-1", storage_dir=str(stage.folder / "own"))
    agent = FrameworkAgent(model=Scripted(), tools=tools, session_manager=session, callback_handler=None)
    return str(agent("go")).strip()


PLAYS: dict[str, Callable[[Stage], str]] = {
    "openai-agents": play_openai_agents,
    "langgraph": play_langgraph,
    "pydantic-ai": play_pydantic_ai,
    "adk": play_adk,
    "strands": play_strands,
    "anthropic": play_anthropic,
    "openai": play_openai,
    "a2a": play_a2a,
}
if find_spec("crewai"):  # has an environment of its own
    PLAYS = {"crewai": play_crewai}


@cache
def warm_up(name: str) -> None:
    """Play once in this process, so that every fork of it has imported the framework."""
    with warnings.catch_warnings(), TemporaryDirectory() as folder:
        play(name, Path(folder), f"sqlite:///{folder}/shop.db")
    gc.collect()


def play(name: str, folder: Path, url: str, kill: str = "", *, ours: bool = True) -> None:
    """Play a program to its end in this process, and write the answer down."""
    warnings.simplefilter("ignore")
    stage = Stage(folder, url, kill, ours=ours)
    answer = PLAYS[name](stage)
    stage.world.do(f"answer {answer}")
