"""`PerdureArtifactService`: artifacts of ADK in `agent.state`, a key for each version."""

from __future__ import annotations

from typing import Any

from google.adk.artifacts.base_artifact_service import ArtifactVersion, BaseArtifactService, ensure_part
from google.adk.errors.input_validation_error import InputValidationError
from google.genai import types

from perdure.adapters.adk.sessions import store_of
from perdure.adapters.open_engine import AgentOrStore, EngineHolder
from perdure.api.aio.state import AsyncAgentState
from perdure.errors import VersionConflict

_SPACE = "adk-artifacts"


class PerdureArtifactService(BaseArtifactService):
    """Stores artifacts durably. File names with `user:` belong to the user, all others to a session."""

    def __init__(self, store: AgentOrStore = None, *, uri: str = "", agent: str = "adk", **_: Any) -> None:
        self._home = EngineHolder(store_of(store, uri), agent)
        self._state = AsyncAgentState(self._home.engine)

    async def save_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        artifact: types.Part | dict[str, Any],
        session_id: str | None = None,
        custom_metadata: dict[str, Any] | None = None,
    ) -> int:
        """Save an artifact as the next version, and return its number: 0, 1 and so on."""
        part = ensure_part(artifact)
        if part.inline_data is None and part.text is None and part.file_data is None:
            raise InputValidationError("Not supported artifact type.")
        space = _space(app_name, user_id, filename, session_id)
        while True:
            version = len(await self._state.items(space))
            about = ArtifactVersion(
                version=version,
                canonical_uri=f"perdure://{space}/{filename}/versions/{version}",
                custom_metadata=custom_metadata or {},
                mime_type=_type_of(part),
            )
            made = [part.model_dump(exclude_none=True), about.model_dump()]
            try:
                async with self._state.transaction() as change:
                    await change.set(space, f"{version:08d}", made, if_version=0)
                    await change.set(_SPACE, space, filename)
            except VersionConflict:
                continue  # somebody has saved this version
            return version

    async def load_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> types.Part | None:
        """Return a version of an artifact, by default the newest, or None."""
        found = await self._read(app_name, user_id, filename, session_id, version)
        return None if found is None else types.Part.model_validate(found[0])

    async def list_artifact_keys(self, *, app_name: str, user_id: str, session_id: str | None = None) -> list[str]:
        """Return the file names of a user, and of a session if one is given."""
        starts = [f"{_SPACE}:{app_name}/{user_id}/user/"]
        starts += [f"{_SPACE}:{app_name}/{user_id}/{session_id}/"] if session_id else []
        return sorted(name for space, name in await self._state.items(_SPACE) if space.startswith(tuple(starts)))

    async def delete_artifact(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> None:
        """Delete all versions of an artifact."""
        space = _space(app_name, user_id, filename, session_id)
        async with self._state.transaction() as change:
            for key, _ in await change.items(space):
                await change.delete(space, key)
            await change.delete(_SPACE, space)

    async def list_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[int]:
        """Return the numbers of all versions."""
        space = _space(app_name, user_id, filename, session_id)
        return [int(key) for key, _ in await self._state.items(space)]

    async def list_artifact_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[ArtifactVersion]:
        """Return what is known about all versions."""
        space = _space(app_name, user_id, filename, session_id)
        return [ArtifactVersion.model_validate(about) for _, (_, about) in await self._state.items(space)]

    async def get_artifact_version(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> ArtifactVersion | None:
        """Return what is known about a version, by default the newest, or None."""
        found = await self._read(app_name, user_id, filename, session_id, version)
        return None if found is None else ArtifactVersion.model_validate(found[1])

    async def _read(self, app: str, user: str, name: str, session: str | None, version: int | None) -> Any:
        space = _space(app, user, name, session)
        if version is not None:
            return await self._state.get(space, f"{version:08d}")
        versions = await self._state.items(space)
        return versions[-1][1] if versions else None


def _space(app: str, user: str, filename: str, session: str | None) -> str:
    if filename.startswith("user:"):
        return f"{_SPACE}:{app}/{user}/user/{filename}"
    if session is None:
        raise InputValidationError("Session ID must be provided for session-scoped artifacts.")
    return f"{_SPACE}:{app}/{user}/{session}/{filename}"


def _type_of(part: types.Part) -> str | None:
    if part.inline_data is not None:
        return part.inline_data.mime_type
    return "text/plain" if part.text is not None else part.file_data.mime_type if part.file_data else None
