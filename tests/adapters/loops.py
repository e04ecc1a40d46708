"""The agent of tests/adapters/frameworks.py as a plain loop: around a client, in a task of A2A, in a flow of CrewAI."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from perdure import Agent
from perdure.adapters.call_policy import bind_key
from tests.adapters.stage import ANSWER, TOOLS, Stage, make_function


def make_effect(agent: Agent, stage: Stage, number: int) -> Any:
    """A tool as an effect of a plain loop."""

    def act(x: int, *, key: str) -> str:
        with bind_key(key):
            return stage.tool(number, x)

    return agent.effect(act, name=f"tool{number}", check=stage.check(number))


def play_loop(stage: Stage, ask: Callable[[Any, list[Any]], tuple[str | None, str]], run_id: str = "user-1") -> str:
    """A plain loop around a client: `ask` returns the tool that the model wants, or the answer."""
    agent = Agent("shop", store=stage.url)
    tools = {f"tool{number}": make_effect(agent, stage, number) for number in TOOLS}

    def turn() -> str:
        messages: list[Any] = [{"role": "user", "content": "go"}]
        while True:
            name, text = ask(stage, messages)
            if name is None:
                return text
            x = len(messages) // 2
            result = tools[name](x) if stage.ours else make_function(stage, int(name[-1]))(x)
            messages += [{"role": "assistant", "content": name}, {"role": "user", "content": result}]

    if not stage.ours:
        return turn()
    with agent.run(run_id) as run:
        run.result = turn()
        return str(run.result)


def ask_own_model(stage: Stage, messages: list[Any]) -> tuple[str | None, str]:
    """A model call in the user's own code, as frameworks without models have it."""
    name = stage.model(len(messages) // 2)
    if name is None and stage.streams:
        stage.cut()
    return name, ANSWER if name is None else ""


def play_own_code(stage: Stage, run_id: str) -> str:
    """What the pages of A2A and CrewAI recommend: a run with the id of the message or flow, and the model as a step."""

    @Agent("shop", store=stage.url).step(name="model")
    def model(messages: list[Any]) -> list[str | None]:
        return list(ask_own_model(stage, messages))

    def ask(stage: Stage, messages: list[Any]) -> tuple[str | None, str]:
        name, text = model(messages)
        return name, str(text)

    return play_loop(stage, ask if stage.ours else ask_own_model, run_id)


def play_a2a(stage: Stage) -> str:
    from a2a.server.agent_execution import AgentExecutor
    from a2a.server.context import ServerCallContext
    from a2a.server.request_handlers import DefaultRequestHandler
    from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
    from a2a.types import (
        AgentCapabilities,
        AgentCard,
        ListTasksRequest,
        Message,
        Part,
        Role,
        SendMessageRequest,
        Task,
        TaskStatus,
    )
    from a2a.types import TaskState as States

    from perdure.adapters.a2a import PerdureTaskStore

    class Executor(AgentExecutor):
        async def execute(self, context: Any, event_queue: Any) -> None:
            if context.current_task is None:
                status = TaskStatus(state=States.TASK_STATE_WORKING)
                await event_queue.enqueue_event(Task(id=context.task_id, context_id=context.context_id, status=status))
            answer = await asyncio.to_thread(play_own_code, stage, context.message.message_id)
            updater = TaskUpdater(event_queue, context.task_id, context.context_id)
            await updater.add_artifact([Part(text=answer)])
            await updater.complete()

        async def cancel(self, context: Any, event_queue: Any) -> None: ...

    store: Any = PerdureTaskStore(stage.url, agent="tasks") if stage.ours else InMemoryTaskStore()

    async def main() -> str:
        card = AgentCard(name="shop", capabilities=AgentCapabilities(streaming=True))
        handler: Any = DefaultRequestHandler(agent_executor=Executor(), task_store=store, agent_card=card)
        context = ServerCallContext()
        begun = (await store.list(ListTasksRequest(context_id="user-1"), context)).tasks
        task_id = begun[0].id if begun else None
        asked = Message(message_id="m1", context_id="user-1", task_id=task_id, role=Role.ROLE_USER)
        asked.parts.append(Part(text="go"))
        done = await handler.on_message_send(SendMessageRequest(message=asked), context)
        return str(done.artifacts[0].parts[0].text)

    return asyncio.run(main())


def play_crewai(stage: Stage) -> str:
    os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}
    from crewai.flow.flow import Flow, start
    from crewai.flow.persistence import SQLiteFlowPersistence, persist

    from perdure.adapters.crewai import PerdureFlowPersistence

    states: Any = (
        PerdureFlowPersistence(stage.url) if stage.ours else SQLiteFlowPersistence(str(stage.folder / "own.db"))
    )

    @persist(states)
    class Shop(Flow):  # type: ignore[type-arg]
        @start()
        def work(self) -> str:
            self.state["answer"] = play_own_code(stage, self.state["id"])
            return str(self.state["answer"])

    return str(Shop(suppress_flow_events=True).kickoff(inputs={"id": "user-1"}))


def http_library(sdk: Any) -> Any:
    """The HTTP library of an SDK: httpx2, or httpx in older versions."""
    base = next(one for one in sdk.DefaultHttpxClient.__mro__ if one.__module__.startswith("httpx"))
    return sys.modules[base.__module__.partition(".")[0]]


def play_anthropic(stage: Stage) -> str:
    import anthropic

    from perdure.adapters.anthropic import durable

    library = http_library(anthropic)

    def serve(request: Any) -> Any:
        asked = json.loads(request.content)
        name = stage.model(len(asked["messages"]) // 2)
        message = {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-5-5",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 1},
        }
        if asked.get("stream"):
            return _send_events(library, _anthropic_events(stage, message, name))
        return library.Response(200, json={**message, "content": [{"type": "text", "text": name or ANSWER}]})

    http = library.Client(transport=library.MockTransport(serve))
    plain = anthropic.Anthropic(api_key="none", http_client=http, max_retries=0)
    client = durable(plain) if stage.ours else plain

    def ask(stage: Stage, messages: list[Any]) -> tuple[str | None, str]:
        given: Any = {"model": "claude-sonnet-5-5", "max_tokens": 99, "messages": messages}
        if stage.streams:
            with client.messages.stream(**given) as stream:
                text = "".join(stream.text_stream)
        else:
            text = client.messages.create(**given).content[0].text
        return (text, "") if text.startswith("tool") else (None, text)

    return play_loop(stage, ask)


def _anthropic_events(stage: Stage, message: Any, name: str | None) -> Any:
    yield {"type": "message_start", "message": message}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for piece in [name] if name else stage.pieces():
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
        if name is None:
            stage.cut()
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}
    yield {"type": "message_stop"}


def play_openai(stage: Stage) -> str:
    import openai

    from perdure.adapters.openai import durable

    library = http_library(openai)

    def serve(request: Any) -> Any:
        asked = json.loads(request.content)
        name = stage.model(len(asked["messages"]) // 2)
        whole = {"id": "c", "created": 1, "model": "gpt-5.5"}
        if asked.get("stream"):
            return _send_events(library, _openai_events(stage, whole, name))
        message = {"role": "assistant", "content": name or ANSWER}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return library.Response(200, json={**whole, "object": "chat.completion", "choices": [choice]})

    http = library.Client(transport=library.MockTransport(serve))
    plain = openai.OpenAI(api_key="none", http_client=http, max_retries=0)
    client = durable(plain) if stage.ours else plain

    def ask(stage: Stage, messages: list[Any]) -> tuple[str | None, str]:
        given: Any = {"model": "gpt-5.5", "messages": messages}
        if stage.streams:
            chunks = client.chat.completions.create(**given, stream=True)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        else:
            text = client.chat.completions.create(**given).choices[0].message.content or ""
        return (text, "") if text.startswith("tool") else (None, text)

    return play_loop(stage, ask)


def _openai_events(stage: Stage, whole: Any, name: str | None) -> Any:
    for piece in [name] if name else stage.pieces():
        choice = {"index": 0, "delta": {"content": piece}}
        yield {**whole, "object": "chat.completion.chunk", "choices": [choice]}
        if name is None:
            stage.cut()
    yield "[DONE]"


def _send_events(library: Any, events: Any) -> Any:
    def send() -> Any:
        for event in events:
            kind = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
            text = event if isinstance(event, str) else json.dumps(event)
            yield f"{kind}data: {text}\n\n".encode()

    return library.Response(200, headers={"content-type": "text/event-stream"}, content=send())
