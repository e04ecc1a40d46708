"""`/v1/agents/{agent}/artifacts`: files and bytes of any size, streamed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import quote

import msgspec
from starlette.responses import StreamingResponse

from perdure.api.aio.artifacts import AsyncArtifactReader
from perdure.data.artifacts import ArtifactInfo
from perdure.server.access import Role
from perdure.server.calls import Answer, ApiCall
from perdure.server.routing import Route
from perdure.server.views import PageQuery, format_moment, take_page

PATH = "/v1/agents/{agent}/artifacts"
BYTES = "application/octet-stream"


class ArtifactEntry(msgspec.Struct, frozen=True):
    """A version of an artifact."""

    name: str
    version: int
    kind: str
    size: int
    digest: str
    at: str | None
    labels: list[str]
    note: str


class ArtifactPage(msgspec.Struct, frozen=True):
    """Artifacts, sorted by name."""

    artifacts: list[ArtifactEntry]
    next: str | None = None


class ArtifactVersionQuery(msgspec.Struct, frozen=True):
    """Which version; the newest by default."""

    version: int | None = None


class SaveQuery(msgspec.Struct, frozen=True):
    """What to record with the version."""

    note: str = ""


class SavedArtifact(msgspec.Struct, frozen=True):
    """The version that was saved."""

    name: str
    version: int


class DeletedArtifacts(msgspec.Struct, frozen=True):
    """How many versions were deleted."""

    deleted: int


def _entry(info: ArtifactInfo) -> ArtifactEntry:
    return ArtifactEntry(
        info.name,
        info.version,
        info.kind,
        info.size,
        info.digest,
        format_moment(info.at),
        list(info.labels),
        info.note,
    )


async def list_artifacts(call: ApiCall) -> ArtifactPage:
    """List artifacts."""
    page, more = take_page(await (await call.agent()).artifacts.list(), call.query, lambda one: one.name)
    return ArtifactPage([_entry(info) for info in page], more)


async def put_artifact(call: ApiCall) -> Answer:
    """Save a version from the body of the request, piece by piece."""
    agent, name = await call.agent(), call.path["artifact"]
    async with agent.artifacts.writer(name, note=call.query.note) as file:
        async for block in call.request.stream():
            await file.write(block)
    return Answer(SavedArtifact(name, file.version), headers={"etag": f'"{file.version}"'})


async def get_artifact(call: ApiCall) -> StreamingResponse:
    """Return the content of a version, piece by piece."""
    agent, name = await call.agent(), call.path["artifact"]
    reader = agent.artifacts.open(name, call.query.version)
    size = await reader.size()
    headers = {
        "content-length": str(size),
        "content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "x-content-type-options": "nosniff",
    }
    return StreamingResponse(_blocks(reader), media_type=BYTES, headers=headers)


async def _blocks(reader: AsyncArtifactReader) -> AsyncIterator[bytes]:
    async with reader:
        while block := await reader.read(256 * 1024):
            yield block


async def delete_artifact(call: ApiCall) -> DeletedArtifacts:
    """Delete one version, or all versions of a name."""
    agent = await call.agent()
    return DeletedArtifacts(await agent.artifacts.delete(call.path["artifact"], call.query.version))


ROUTES = (
    Route(
        method="GET",
        path=PATH,
        operation="list_artifacts",
        summary="List the newest version of every artifact, sorted by name.",
        handler=list_artifacts,
        query=PageQuery,
        response=ArtifactPage,
    ),
    Route(
        method="GET",
        path=f"{PATH}/{{artifact}}",
        operation="get_artifact",
        summary="Return the content of an artifact.",
        handler=get_artifact,
        query=ArtifactVersionQuery,
        media_type=BYTES,
    ),
    Route(
        method="PUT",
        path=f"{PATH}/{{artifact}}",
        operation="put_artifact",
        summary="Save a version from the body, which is streamed.",
        handler=put_artifact,
        role=Role.WRITER,
        request=bytes,
        request_media_type=BYTES,
        query=SaveQuery,
        response=SavedArtifact,
        streams=True,
    ),
    Route(
        method="DELETE",
        path=f"{PATH}/{{artifact}}",
        operation="delete_artifact",
        summary="Delete one version, or all versions of a name.",
        handler=delete_artifact,
        role=Role.WRITER,
        query=ArtifactVersionQuery,
        response=DeletedArtifacts,
    ),
)
