"""A conversation as LangGraph would have it saved: one message more each step, a checkpoint, and its task's writes."""

from __future__ import annotations

import random
import string
from datetime import UTC, datetime
from functools import cache
from time import perf_counter_ns
from typing import Any

from langgraph.checkpoint.base.id import uuid6

from .entries import Saver

MESSAGE_BYTES = 1024


def text(number: int) -> str:
    """1 KB that does not compress, another one for each number."""
    return "".join(random.Random(number).choices(string.ascii_letters + string.digits, k=MESSAGE_BYTES))


@cache
def message(kind: str, number: int) -> Any:
    """As a plain dict, or as LangChain has it. Made once: nobody measures the making."""
    if kind == "dicts":
        return {"role": "user" if number % 2 else "assistant", "id": f"m{number}", "content": text(number)}
    from langchain_core.messages import AIMessage, HumanMessage

    made = HumanMessage if number % 2 else AIMessage
    return made(content=text(number), id=f"m{number}")


class Talk:
    """One thread: each step puts the checkpoint with all messages so far, then the writes of the next task."""

    def __init__(self, saver: Saver, thread: str, kind: str, salt: int = 0) -> None:
        self._saver, self._kind, self._salt = saver, kind, salt
        self._config: dict[str, Any] = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        self._messages: list[Any] = []
        self._version: Any = None

    def messages(self, first: int, size: int) -> list[Any]:
        """What is said in these steps, and then; each conversation says something else."""
        return [message(self._kind, self._salt + number) for number in range(first, first + size + 1)]

    async def steps(self, first: int, size: int) -> list[list[int]]:
        """How long each `put` and each `put_writes` took. Messages are made before the clock runs."""
        made = self.messages(first, size)
        puts, writes = [], []
        for offset in range(size):
            checkpoint, metadata, versions = self._make_next(made[offset], first + offset)
            begun = perf_counter_ns()
            self._config = await self._saver.call("put", self._config, checkpoint, metadata, versions)
            put = perf_counter_ns()
            task = f"{first + offset:032x}"
            await self._saver.call("put_writes", self._config, [("messages", [made[offset + 1]])], task)
            puts.append(put - begun)
            writes.append(perf_counter_ns() - put)
        return [puts, writes]

    def _make_next(self, said: Any, number: int) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        # A new list, as a reducer makes it; what was said before is the same objects.
        self._messages = [*self._messages, said]
        before, self._version = self._version, self._saver.it.get_next_version(self._version, None)
        checkpoint = {
            "v": 4,
            "id": str(uuid6(clock_seq=number)),
            "ts": datetime.now(UTC).isoformat(),
            "channel_values": {"messages": self._messages},
            "channel_versions": {"messages": self._version},
            "versions_seen": {"agent": {"messages": before} if before is not None else {}},
            "updated_channels": ["messages"],
        }
        return checkpoint, {"source": "loop", "step": number, "parents": {}}, {"messages": self._version}


async def reads(saver: Saver, thread: str, times: int, messages: int) -> list[int]:
    """How long it took to get the newest checkpoint, so often."""
    config, taken = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}, []
    for _ in range(times):
        begun = perf_counter_ns()
        found = await saver.call("get_tuple", config)
        taken.append(perf_counter_ns() - begun)
        assert len(found.checkpoint["channel_values"]["messages"]) == messages, "that is not what was put"
    return taken
