"""An agent of LangChain in pieces: a model that follows a script, a saver in a file, and a shop that counts."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver

from perdure import Agent, Done, NotDone
from perdure.adapters.langgraph import DurableTools, PerdureSaver, effect_key
from perdure.values import codec
from tests.conformance.kit import World, die, run_in_child

USED = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}


class FileSaver(InMemorySaver):
    """LangGraph's own saver, written to a file at every change: others do as well as ours."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._path = folder / "checkpoints"
        self._turn = threading.Lock()
        if self._path.exists():
            storage, writes, blobs = codec.decode(self._path.read_bytes())
            for thread, spaces in storage.items():
                self.storage[thread].update(spaces)
            self.writes.update(writes)
            self.blobs.update(blobs)

    def put(self, *args: Any) -> Any:
        made = super().put(*args)
        self._write()
        return made

    def put_writes(self, *args: Any) -> None:
        super().put_writes(*args)
        self._write()

    async def aput(self, *args: Any) -> Any:
        return self.put(*args)

    async def aput_writes(self, *args: Any) -> None:
        self.put_writes(*args)

    def _write(self) -> None:
        with self._turn:  # LangGraph writes in several threads, and the last one must have the last word
            self._write_all()

    def _write_all(self) -> None:
        storage = {thread: dict(spaces) for thread, spaces in self.storage.items()}
        new = self._path.with_suffix(f".{os.urandom(4).hex()}")
        new.write_bytes(codec.encode((storage, {k: dict(v) for k, v in self.writes.items()}, dict(self.blobs))))
        new.replace(self._path)


class Scripted(BaseChatModel):
    """Answers with what a function makes of the conversation, and counts."""

    answer: Callable[[list[BaseMessage]], AIMessage]
    world: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        self.world.do("model")
        made = self.answer(messages)
        made.usage_metadata, made.response_metadata = USED, {"model_name": "gpt-4o"}  # type: ignore[assignment]
        return ChatResult(generations=[ChatGeneration(message=made)])


def asks(name: str, *calls: tuple[str, dict[str, Any]]) -> AIMessage:
    """A model's message that asks for tools."""
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": id} for id, args in calls])


def answers(messages: list[BaseMessage]) -> Iterator[ToolMessage]:
    """What tools have said since the last words of a person."""
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            yield message
        elif message.type == "human":
            return


def pay_then_tell(messages: list[BaseMessage]) -> AIMessage:
    """The script: pay once for each turn, then say what came of it."""
    said = [str(one.content) for one in answers(messages)]
    turn = sum(one.type == "human" for one in messages)
    return AIMessage(f"done: {said[0]}") if said else asks("pay", (f"call-{turn}", {"amount": 10}))


def shop(folder: Path, store_url: str, pay: Callable[..., Any], **options: Any) -> Any:
    """The agent of LangChain, and Perdure below it."""
    agent = Agent("shop", store=store_url)
    saver = None if options.pop("part", False) else options.pop("saver", None) or PerdureSaver(agent)
    script = options.pop("script", pay_then_tell)
    return create_agent(
        Scripted(answer=script, world=World(folder)),
        [pay],
        checkpointer=saver,
        middleware=[*options.pop("outer", ()), DurableTools(agent, **options)],
    )


THREAD: Any = {"configurable": {"thread_id": "t1"}}
ASK: Any = {"messages": [{"role": "user", "content": "pay 10"}]}


Pay = Callable[[int], str]


def make_pay_tool(world: World, *, dies: str = "") -> Pay:
    """A tool that pays, and perhaps dies at it."""

    def pay(amount: int) -> str:
        """Pay."""
        if dies == "before":
            die()
        world.do(f"paid {effect_key()}")
        if dies == "after":
            die()
        return f"paid {amount}"

    return pay


def payments(world: World) -> list[str]:
    return [what for what in world.read_all() if what.startswith("paid")]


def make_check(world: World) -> Callable[..., Any]:
    """Asks the shop whether it has seen the key."""

    def paid(amount: int, *, key: str) -> Any:
        return Done(f"seen {amount}") if f"paid {key}" in world.read_all() else NotDone

    return paid


def run_killed(program: Callable[[], object]) -> None:
    status = run_in_child(program)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
