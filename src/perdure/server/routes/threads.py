"""`/v1/agents/{agent}/threads`: conversations, and a turn with its reply."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from perdure.errors import ResourceNotFound
from perdure.server.access import Role
from perdure.server.calls import ApiCall
from perdure.server.idempotency import name_request
from perdure.server.routing import Route
from perdure.server.values import from_json, to_json
from perdure.server.views import PageQuery, format_moment, take_page
from perdure.work.threads.turn import NO_INPUT

PATH = "/v1/agents/{agent}/threads"


class ThreadEntry(msgspec.Struct, frozen=True):
    """A conversation."""

    id: str
    turns: int
    checkpoints: int
    framework: str
    began_at: str | None
    at: str | None


class ThreadPage(msgspec.Struct, frozen=True):
    """Conversations, sorted by id."""

    threads: list[ThreadEntry]
    next: str | None = None


class ThreadMessages(msgspec.Struct, frozen=True):
    """The messages of a conversation, oldest first."""

    thread: str
    messages: list[Any]


class AddTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A turn of a conversation: the user's message and the assistant's reply."""

    input: Any
    reply: Any
    id: str | None = None


class FinishedTurn(msgspec.Struct, frozen=True):
    """The turn that was recorded."""

    thread: str
    turn: int
    run: str


async def list_threads(call: ApiCall) -> ThreadPage:
    """List conversations."""
    page, more = take_page(await (await call.agent()).threads.list(), call.query, lambda one: one.id)
    entries = [
        ThreadEntry(one.id, one.turns, one.checkpoints, one.framework, format_moment(one.began), format_moment(one.at))
        for one in page
    ]
    return ThreadPage(entries, more)


async def get_messages(call: ApiCall) -> ThreadMessages:
    """Return the messages of a conversation."""
    agent, name = await call.agent(), call.path["thread"]
    messages = await asyncio.to_thread(lambda: agent.thread(name).messages)
    if not messages and not any(one.id == name for one in await agent.threads.list()):
        raise ResourceNotFound(f"there is no thread {name!r}", hint="POST to it adds the first turn")
    return ThreadMessages(name, to_json(messages))


def _find_id(call: ApiCall) -> str | None:
    """Return the id of a turn under an Idempotency-Key. A turn commits more than once, so its id must be the same."""
    key = call.request.headers.get("idempotency-key")
    return None if key is None else name_request(call.principal, key)


async def add_turn(call: ApiCall) -> FinishedTurn:
    """Record a whole turn: its input and its reply."""
    thread = (await call.agent()).thread(call.path["thread"])
    given = NO_INPUT if call.body.input is None else from_json(call.body.input)
    turn = thread.turn(given, id=call.body.id or _find_id(call))
    async with turn:
        if not turn.finished:
            await turn.reply(from_json(call.body.reply))
    return FinishedTurn(thread.id, turn.number, turn.id)


ROUTES = (
    Route(
        method="GET",
        path=PATH,
        operation="list_threads",
        summary="List conversations, sorted by id.",
        handler=list_threads,
        query=PageQuery,
        response=ThreadPage,
    ),
    Route(
        method="GET",
        path=f"{PATH}/{{thread}}/messages",
        operation="get_messages",
        summary="Return the messages of a conversation, oldest first.",
        handler=get_messages,
        response=ThreadMessages,
    ),
    Route(
        method="POST",
        path=f"{PATH}/{{thread}}/messages",
        operation="create_turn",
        summary="Record a turn: the user's message and the reply. The same id is the same turn.",
        handler=add_turn,
        role=Role.WRITER,
        request=AddTurn,
        response=FinishedTurn,
        status=201,
    ),
)
