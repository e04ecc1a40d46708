"""`/v1/agents/{agent}/events`: the log of an agent, as pages and as a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.responses import StreamingResponse

from perdure.data.events.follow import Follower
from perdure.data.events.read import Event, book_of, make_query
from perdure.data.events.schemas import kinds_of
from perdure.errors import PerdureError
from perdure.kernel.engine import Engine
from perdure.server.access import Role
from perdure.server.calls import ApiCall
from perdure.server.event_notifier import EventNotifiers
from perdure.server.problems import describe_problem
from perdure.server.routing import Route
from perdure.server.values import from_json, to_json
from perdure.server.views import PAGE, check_limit, format_moment

PATH = "/v1/agents/{agent}/events"
COMMENT_SECONDS = 30.0
"""How often an idle stream sends a comment, so that proxies keep it open and a dead client is noticed."""


class EventEntry(msgspec.Struct, frozen=True):
    """An event. Its position is its place in the order, and a cursor."""

    kind: str
    payload: Any
    at: str | None
    run: str | None
    position: str


class EventList(msgspec.Struct, frozen=True):
    """Events, oldest first."""

    events: list[EventEntry]
    next: str | None = None


class EventPageQuery(msgspec.Struct, frozen=True):
    """Which events to return."""

    kind: str | None = None
    run: str | None = None
    cursor: str | None = None
    """The position after which to begin."""
    limit: int = PAGE
    last: int | None = None
    """The newest events instead of the first."""


class FollowQuery(msgspec.Struct, frozen=True):
    """Which events to follow."""

    kind: str | None = None
    run: str | None = None
    since: str | None = None
    """The position after which to begin; empty for the first event; without it, only new events."""


class AppendEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An event to append."""

    kind: str
    payload: Any = None


class AppendedEvents(msgspec.Struct, frozen=True):
    """How many events were appended."""

    appended: int


def _entry(event: Event) -> EventEntry:
    return EventEntry(event.kind, to_json(event.payload), format_moment(event.at), event.run, event.position)


async def append_event(call: ApiCall) -> AppendedEvents:
    """Append one event."""
    await (await call.agent()).events.append(call.body.kind, from_json(call.body.payload))
    return AppendedEvents(1)


async def list_events(call: ApiCall) -> EventList:
    """List events from a position on."""
    agent, query, limit = await call.agent(), call.query, check_limit(call.query.limit)
    newest = None if query.last is None else check_limit(query.last)
    first = limit + 1 if newest is None else None
    found = agent.events.read(query.kind, run=query.run, since=query.cursor, typed=False, last=newest, limit=first)
    events = [_entry(event) async for event in found]
    if query.last is not None or len(events) <= limit:
        return EventList(events)
    return EventList(events[:limit], events[limit - 1].position)


async def follow_events(call: ApiCall) -> StreamingResponse:
    """Stream events. Each has its position as id, so `Last-Event-ID` resumes exactly after it."""
    engine = (await call.agent())._engine
    since = call.request.headers.get("last-event-id", call.query.since)
    wanted = make_query(kinds_of(engine), call.query.kind, call.query.run, since, typed=False)
    follower = Follower(engine.store, lambda: book_of(engine), wanted)
    await asyncio.to_thread(follower.begin)  # a bad position is a problem document, not a broken stream
    return StreamingResponse(
        _lines(call.services.event_notifiers, engine, follower),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


async def _lines(notifiers: EventNotifiers, engine: Engine, follower: Follower) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n\n"
    try:
        with notifiers.follow(engine) as notifier:
            while True:
                change = notifier.next_change
                found = await asyncio.to_thread(follower.poll)
                for event in found:
                    data = msgspec.json.encode(_entry(event))
                    yield b"id: %s\nevent: event\ndata: %s\n\n" % (event.position.encode(), data)
                if notifiers.stopping.is_set():
                    yield b"event: stop\ndata: {}\n\n"
                    return
                while not found and not change.done():
                    await asyncio.wait([change], timeout=COMMENT_SECONDS)
                    if not change.done():
                        yield b": nothing new\n\n"
    except PerdureError as error:
        yield b"event: problem\ndata: %s\n\n" % msgspec.json.encode(describe_problem(error))


ROUTES = (
    Route(
        method="GET",
        path=PATH,
        operation="list_events",
        summary="List events, oldest first.",
        handler=list_events,
        query=EventPageQuery,
        response=EventList,
    ),
    Route(
        method="POST",
        path=PATH,
        operation="append_event",
        summary="Append an event.",
        handler=append_event,
        role=Role.WRITER,
        recalls=True,
        request=AppendEvent,
        response=AppendedEvents,
        status=201,
    ),
    Route(
        method="GET",
        path=f"{PATH}:follow",
        operation="follow_events",
        summary="Stream events as server-sent events. Last-Event-ID resumes exactly.",
        handler=follow_events,
        query=FollowQuery,
        media_type="text/event-stream",
        streams=True,
    ),
)
