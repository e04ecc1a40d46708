"""`/v1/agents/{agent}/memories`: remember, recall, forget."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

import msgspec

from perdure.errors import RequestInvalid
from perdure.memory import read
from perdure.memory.arguments import check_id, check_kind, check_name
from perdure.memory.lifecycle.usage import leave_uncounted
from perdure.memory.results import EVER, Memory, MemoryQuery, Recalled
from perdure.server.access import Role
from perdure.server.calls import ApiCall
from perdure.server.routing import Route
from perdure.server.values import from_json, to_json
from perdure.server.views import PAGE, check_bigint, check_limit, format_moment

PATH = "/v1/agents/{agent}/memories"


class MemoryEntry(msgspec.Struct, frozen=True):
    """A memory."""

    id: str
    text: str
    kind: str
    about: str
    user: str
    tags: list[str]
    source: str
    trust: float
    importance: float
    valid_from: str | None
    valid_to: str | None
    recorded: str | None
    superseded_by: str
    withdrawn: bool
    count: int
    thread: str
    meta: Any


class RecalledEntry(msgspec.Struct, frozen=True):
    """A memory that answers a question, with its score."""

    memory: MemoryEntry
    score: float
    confidence: float


class MemoryPage(msgspec.Struct, frozen=True):
    """Memories, newest first."""

    memories: list[MemoryEntry]
    next: str | None = None


class RecallAnswer(msgspec.Struct, frozen=True):
    """Memories, best first."""

    memories: list[RecalledEntry]


class Remember(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A memory to store."""

    text: str
    kind: str = "semantic"
    about: str | None = None
    user: str | None = None
    tags: list[str] = []
    source: str | None = None
    trust: float = 1.0
    importance: float = 0.5
    valid_from: str | None = None
    valid_to: str | None = None
    supersedes: list[str] = []
    ttl: float | str | None = None
    meta: dict[str, Any] | None = None
    thread: str | None = None
    derived_from: list[str] = []


class Recall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A question to the memory."""

    query: str
    k: int = 5
    kind: str | None = None
    about: str | None = None
    user: str | None = None
    tags: list[str] = []
    source: str | None = None
    since: str | None = None
    until: str | None = None
    as_of: str | None = None
    known_at: str | None = None
    min_trust: float = 0.0


class Forget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to erase: at least one of these."""

    ids: list[str] | None = None
    about: str | None = None
    user: str | None = None
    source: str | None = None
    tags: list[str] = []
    text: str | None = None
    everywhere: bool = False
    reason: str = ""


class Forgotten(msgspec.Struct, frozen=True):
    """What was erased, and where the text still is."""

    ids: list[str]
    elsewhere: list[Any]
    notes: list[str]


class MemoryListQuery(msgspec.Struct, frozen=True):
    """Which memories to list."""

    kind: str | None = None
    about: str | None = None
    user: str | None = None
    all: bool = False
    cursor: str | None = None
    limit: int = PAGE


def _entry(memory: Memory) -> MemoryEntry:
    return MemoryEntry(
        id=memory.id,
        text=memory.text,
        kind=memory.kind,
        about=memory.about,
        user=memory.user,
        tags=list(memory.tags),
        source=memory.source,
        trust=memory.trust,
        importance=memory.importance,
        valid_from=format_moment(memory.valid_from),
        valid_to=format_moment(memory.valid_to),
        recorded=format_moment(memory.recorded),
        superseded_by=memory.superseded_by,
        withdrawn=memory.withdrawn,
        count=memory.count,
        thread=memory.thread,
        meta=to_json(memory.meta),
    )


def _recalled(found: Recalled) -> RecalledEntry:
    return RecalledEntry(_entry(found), found.score, found.confidence)


async def remember(call: ApiCall) -> MemoryEntry:
    """Store a memory."""
    given = {name: getattr(call.body, name) for name in call.body.__struct_fields__ if name != "meta"}
    meta = None if call.body.meta is None else from_json(call.body.meta)
    return _entry(await (await call.agent()).memory.remember(**given, meta=meta, writer=call.principal.key_id))


async def recall(call: ApiCall) -> RecallAnswer:
    """Return the memories that answer a question best."""
    given = {name: getattr(call.body, name) for name in call.body.__struct_fields__}
    memory = (await call.agent()).memory
    with nullcontext() if call.principal.role.includes(Role.WRITER) else leave_uncounted():
        return RecallAnswer([_recalled(one) for one in await memory.recall(**given)])


async def forget(call: ApiCall) -> Forgotten:
    """Erase memories for good."""
    given = {name: getattr(call.body, name) for name in call.body.__struct_fields__ if name != "ids"}
    found = await (await call.agent()).memory.forget(call.body.ids, **given, by=call.principal.key_id)
    elsewhere = [{"kind": one.kind, "what": one.what, "run": one.run, "left": one.left} for one in found.elsewhere]
    return Forgotten(list(found.ids), elsewhere, list(found.notes))


async def list_memories(call: ApiCall) -> MemoryPage:
    """List memories."""
    query, limit = call.query, check_limit(call.query.limit)
    wanted = MemoryQuery(
        kind=check_kind(query.kind, empty=True),
        about=check_name(query.about, "about"),
        user=check_name(query.user, "user"),
        all=query.all,
        after=_read_cursor(query.cursor),
    )
    engine = (await call.agent())._engine
    found = await asyncio.to_thread(read.list_memories, engine, wanted, limit + 1)
    more = _make_cursor(found[limit - 1]) if len(found) > limit else None
    return MemoryPage([_entry(memory) for memory in found[:limit]], more)


def _read_cursor(cursor: str | None) -> tuple[int, str]:
    """Return the place after which a page begins: a time of recording and an id."""
    if cursor is None:
        return (EVER, "")
    at, _, memory = cursor.partition(".")
    try:
        return (check_bigint(int(at)), check_id(memory))
    except ValueError as error:
        raise RequestInvalid(f"cursor {cursor[:80]!r} is not one of ours") from error


def _make_cursor(memory: Memory) -> str:
    return f"{round(memory.recorded.timestamp() * 1000)}.{memory.id}"


async def get_memory(call: ApiCall) -> MemoryEntry:
    """Return a memory."""
    return _entry(await (await call.agent()).memory.get(call.path["memory"]))


ROUTES = (
    Route(
        method="GET",
        path=PATH,
        operation="list_memories",
        summary="List memories, newest first.",
        handler=list_memories,
        query=MemoryListQuery,
        response=MemoryPage,
    ),
    Route(
        method="POST",
        path=PATH,
        operation="create_memory",
        summary="Store a memory. The same fact again raises its count.",
        handler=remember,
        role=Role.WRITER,
        request=Remember,
        response=MemoryEntry,
        status=201,
    ),
    Route(
        method="GET",
        path=f"{PATH}/{{memory}}",
        operation="get_memory",
        summary="Return a memory, even if superseded.",
        handler=get_memory,
        response=MemoryEntry,
    ),
    Route(
        method="POST",
        path=f"{PATH}:recall",
        operation="recall_memories",
        summary="Return the memories that answer a question best, best first.",
        handler=recall,
        request=Recall,
        response=RecallAnswer,
    ),
    Route(
        method="POST",
        path=f"{PATH}:forget",
        operation="forget_memories",
        summary="Erase memories for good.",
        handler=forget,
        role=Role.WRITER,
        request=Forget,
        response=Forgotten,
    ),
)
