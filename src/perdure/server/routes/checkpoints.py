"""`/v1/agents/{agent}/checkpoints`: named snapshots of a whole value, with versions."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.data.checkpoints import CheckpointInfo
from perdure.server.access import Role
from perdure.server.calls import ApiCall
from perdure.server.routing import Route
from perdure.server.values import from_json, to_json
from perdure.server.views import PageQuery, format_moment, take_page

PATH = "/v1/agents/{agent}/checkpoints"


class CheckpointEntry(msgspec.Struct, frozen=True):
    """One version of a checkpoint, without its value."""

    name: str
    version: int
    at: str | None
    labels: list[str]
    meta: Any


class CheckpointList(msgspec.Struct, frozen=True):
    """Checkpoints, sorted by name and version."""

    checkpoints: list[CheckpointEntry]
    next: str | None = None


class SavedCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint with its value."""

    name: str
    version: int
    data: Any


class CreatedCheckpoint(msgspec.Struct, frozen=True):
    """The version that was created."""

    name: str
    version: int


class CreateCheckpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value to save under a name."""

    name: str
    data: Any
    labels: list[str] = []
    meta: Any = None
    keep_last: int | None = None
    keep_for: str | None = None


class CheckpointVersionQuery(msgspec.Struct, frozen=True):
    """Which version; the newest by default."""

    version: int | None = None


class DeletedCheckpoints(msgspec.Struct, frozen=True):
    """How many versions were deleted."""

    deleted: int


async def create_checkpoint(call: ApiCall) -> CreatedCheckpoint:
    """Save a checkpoint."""
    agent, wanted = await call.agent(), call.body
    version = await agent.checkpoint.create(
        wanted.name,
        from_json(wanted.data),
        labels=wanted.labels,
        meta=from_json(wanted.meta),
        keep_last=wanted.keep_last,
        keep_for=wanted.keep_for,
    )
    return CreatedCheckpoint(wanted.name, version)


async def list_checkpoints(call: ApiCall) -> CheckpointList:
    """List checkpoints."""
    found = sorted(await (await call.agent()).checkpoint.list(), key=_cursor_of)
    page, more = take_page(found, call.query, _cursor_of)
    entries = [
        CheckpointEntry(one.name, one.version, format_moment(one.at), list(one.labels), to_json(one.meta))
        for one in page
    ]
    return CheckpointList(entries, more)


def _cursor_of(info: CheckpointInfo) -> str:
    return f"{info.name}\n{info.version:012}"


async def get_checkpoint(call: ApiCall) -> SavedCheckpoint:
    """Restore a checkpoint."""
    agent, name = await call.agent(), call.path["checkpoint"]
    version = call.query.version
    if version is None:
        version = max((one.version for one in await agent.checkpoint.list() if one.name == name), default=None)
    data = await agent.checkpoint.restore(name, version)
    return SavedCheckpoint(name, version or 0, to_json(data))


async def delete_checkpoint(call: ApiCall) -> DeletedCheckpoints:
    """Delete one version, or all versions of a name."""
    agent = await call.agent()
    return DeletedCheckpoints(await agent.checkpoint.delete(call.path["checkpoint"], call.query.version))


ROUTES = (
    Route(
        method="GET",
        path=PATH,
        operation="list_checkpoints",
        summary="List checkpoints, sorted by name and version.",
        handler=list_checkpoints,
        query=PageQuery,
        response=CheckpointList,
    ),
    Route(
        method="POST",
        path=PATH,
        operation="create_checkpoint",
        summary="Save a value under a name; the next version of it.",
        handler=create_checkpoint,
        role=Role.WRITER,
        recalls=True,
        request=CreateCheckpoint,
        response=CreatedCheckpoint,
        status=201,
    ),
    Route(
        method="GET",
        path=f"{PATH}/{{checkpoint}}",
        operation="get_checkpoint",
        summary="Return a saved value: the newest version, or the given one.",
        handler=get_checkpoint,
        query=CheckpointVersionQuery,
        response=SavedCheckpoint,
    ),
    Route(
        method="DELETE",
        path=f"{PATH}/{{checkpoint}}",
        operation="delete_checkpoint",
        summary="Delete one version, or all versions of a name.",
        handler=delete_checkpoint,
        role=Role.WRITER,
        query=CheckpointVersionQuery,
        response=DeletedCheckpoints,
    ),
)
