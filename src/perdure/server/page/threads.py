"""Threads: conversations, and each as a chat with its turns."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.errors import ThreadNotFound
from perdure.journal import objects
from perdure.records import RunStatus
from perdure.server.page.chat import ChatMessage, read_chat
from perdure.server.page.of_agent import AgentQuery, ListPart, ask, show_list
from perdure.server.page.page import Page, PageCall, Shown
from perdure.server.page.render import link
from perdure.server.routes.threads import list_threads
from perdure.server.views import PageQuery
from perdure.work.threads import listing
from perdure.work.threads.conversations import ThreadIndex, read_index
from perdure.work.threads.history import TurnInfo, read_turn, turns_of
from perdure.work.threads.write import ForeignValue

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

TURNS = 20
MESSAGES = 200
POINTS = 20


class ThreadQuery(msgspec.Struct, frozen=True):
    """Which turns: those before this one; 0 for the newest."""

    before: int = 0


class ChatTurn(msgspec.Struct, frozen=True):
    """A turn with its messages."""

    info: TurnInfo
    messages: list[ChatMessage]
    cut: int
    """How many older messages of it are not shown."""

    @property
    def pending(self) -> bool:
        """Whether it may still get a reply."""
        return not self.info.status.over

    @property
    def began(self) -> int:
        """When it began, in milliseconds since 1970."""
        return int(self.info.began.timestamp() * 1000)


async def show_threads(call: PageCall) -> Shown:
    """Show the threads of an agent."""

    async def load(agent: str) -> ListPart:
        page = await list_threads(ask(call, PageQuery(call.query.cursor or None), agent=agent))
        return ListPart(page.threads, page.next)

    return await show_list(call, "Threads", "threads", load)


async def show_thread(call: PageCall) -> Shown:
    """Show one thread."""
    agent, name = await call.agent(), call.path["thread"]
    info = next((one for one in await agent.threads.list() if one.id == name), None)
    if info is None:
        raise ThreadNotFound(f"agent {agent.name!r} has no thread {name!r}", hint="/threads lists them")
    read = _read_own if info.framework == "perdure" else _read_saved
    found = await asyncio.to_thread(read, agent._engine, name, call.query.before)
    older = found.pop("older")
    more = link("threads", agent.name, name, before=older) if older else ""
    newest = link("threads", agent.name, name) if call.query.before else ""
    return {"title": name, "agent": agent.name, "info": info, "older": more, "newest": newest, **found}


def _read_own(engine: Engine, name: str, before: int) -> dict[str, Any]:
    index = read_index(engine, name)
    end = min(before, index.turns + 1) if before > 0 else index.turns + 1
    numbers = range(max(index.first, end - TURNS), end)
    turns = [_read_turn(engine, index, info) for info in turns_of(engine, name, numbers)]
    return {
        "turns": turns,
        "queued": [] if before else list(index.queued),
        "state": index.state,
        "messages": [],
        "points": [],
        "older": numbers.start if numbers.start > index.first else 0,
    }


def _read_turn(engine: Engine, index: ThreadIndex, info: TurnInfo) -> ChatTurn:
    said = read_turn(engine, index, info.number, raw=True).messages
    shown = [objects.unpack(engine.store, value) for _, value in said[-MESSAGES:]]
    if not said:
        shown = [{"role": "user", "content": info.input}] if info.input is not None else []
        if info.status == RunStatus.FINISHED and info.result is not None:
            shown.append({"role": "assistant", "content": info.result})
    return ChatTurn(info, read_chat(shown), max(0, len(said) - MESSAGES))


def _read_saved(engine: Engine, name: str, _: int) -> dict[str, Any]:
    """Return a thread that a framework has saved: its values, the messages among them, and its checkpoints."""
    values = {channel: _open(value) for channel, value in listing.state(engine, name).items()}
    messages = values.pop("messages", None)
    shown = messages if isinstance(messages, list) else []
    return {
        "turns": [],
        "queued": [],
        "state": {channel: value for channel, value in values.items() if not channel.startswith(("__", "branch:"))},
        "messages": read_chat(shown[-MESSAGES:]),
        "points": listing.history(engine, name, limit=POINTS),
        "older": 0,
    }


def _open(value: Any) -> Any:
    return f"<{len(value.data)} bytes of a serializer: {value.form}>" if type(value) is ForeignValue else value


PAGE = Page(path="/threads", show=show_threads, template="threads.html", query=AgentQuery, section="Threads")
ONE = Page(
    path="/threads/{agent}/{thread}",
    show=show_thread,
    template="thread.html",
    query=ThreadQuery,
    live=True,
    section="Threads",
)
