"""`PerdureMemoryStore`: the memory files of pydantic-ai-harness in `agent.state`, with compare-and-set."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from pydantic_ai_harness.memory._store import (
    MemoryConflictError,
    MemoryFile,
    MemoryMutation,
    MemoryOperation,
    MemoryOperationConflictError,
    MemorySearchResult,
    encode_metadata,
    lexical_search,
    validate_store_path,
    validate_store_prefix,
)

from perdure.adapters.open_engine import AgentOrStore, EngineHolder
from perdure.api.aio.state import AsyncAgentState, AsyncStateTransaction
from perdure.errors import VersionConflict, WrongValue

_FILES, _OPERATIONS = "memory-files", "memory-operations"


class PerdureMemoryStore:
    """Stores memory files in a Perdure store: `Memory(store=PerdureMemoryStore("agent.db"))`.

    An operation with an id that was applied before returns its result and changes nothing.
    """

    def __init__(self, store: AgentOrStore = None, *, agent: str = "pydantic-ai") -> None:
        self._home = EngineHolder(store, agent)
        self._state = AsyncAgentState(self._home.engine)

    async def read(self, path: str, *, max_chars: int) -> MemoryFile | None:
        """Return a file, cut at `max_chars`, or None."""
        validate_store_path(path)
        if max_chars <= 0:
            raise WrongValue("max_chars must be positive")
        found = await self._state.get(_FILES, path)
        if found is None:
            return None
        content, version, operation, metadata = found
        return MemoryFile(content[:max_chars], version, operation, len(content) > max_chars, metadata)

    async def get_operation(self, operation: MemoryOperation) -> MemoryMutation | None:
        """Return the result of an operation that was applied before, or None."""
        return _replay(operation, await self._state.get(_OPERATIONS, operation.id))

    async def write(
        self, path: str, content: str, *, expected_version: str | None, operation: MemoryOperation | None = None
    ) -> MemoryMutation:
        """Create or replace a file if it has the expected version."""
        return await self._mutate(path, content, expected_version, operation, None)

    async def write_with_metadata(
        self,
        path: str,
        content: str,
        *,
        expected_version: str | None,
        metadata: Mapping[str, str] | None,
        operation: MemoryOperation | None = None,
    ) -> MemoryMutation:
        """Create or replace a file, and record who wrote it."""
        encode_metadata(metadata)  # raises for metadata that no store accepts
        return await self._mutate(path, content, expected_version, operation, dict(metadata or {}) or None)

    async def delete(
        self, path: str, *, expected_version: str | None, operation: MemoryOperation | None = None
    ) -> MemoryMutation:
        """Delete a file if it has the expected version."""
        return await self._mutate(path, None, expected_version, operation, None)

    async def list_paths(self, prefix: str = "", *, limit: int) -> list[str]:
        """Return the paths that start with a prefix, sorted."""
        validate_store_prefix(prefix)
        return [path for path, _ in await self._state.items(_FILES) if path.startswith(prefix)][:limit]

    async def search(
        self, prefix: str, query: str, *, limit: int, max_files: int, max_chars: int, max_file_chars: int
    ) -> MemorySearchResult:
        """Search the files below a prefix by words."""
        validate_store_prefix(prefix)
        files = [
            (path, content[:max_file_chars])
            for path, (content, *_) in await self._state.items(_FILES)
            if path.startswith(prefix)
        ]
        return await lexical_search(
            files, query, limit=limit, max_files=max_files, max_chars=max_chars, score_prefix=prefix
        )

    async def _mutate(
        self, path: str, content: str | None, expected: str | None, operation: MemoryOperation | None, metadata: Any
    ) -> MemoryMutation:
        validate_store_path(path)
        while True:
            try:
                async with self._state.transaction() as change:
                    return await _apply(change, path, content, expected, operation, metadata)
            except VersionConflict:
                continue  # somebody wrote in between: compare again


async def _apply(
    change: AsyncStateTransaction,
    path: str,
    content: str | None,
    expected: str | None,
    operation: MemoryOperation | None,
    metadata: Any,
) -> MemoryMutation:
    if operation is not None and (done := _replay(operation, await change.get(_OPERATIONS, operation.id))) is not None:
        return done
    current = await change.get(_FILES, path)
    version = current[1] if current is not None else None
    if version != expected:
        raise MemoryConflictError(f"{path} has version {version!r}, not {expected!r}")
    made = None if content is None else uuid.uuid4().hex
    if content is not None:
        await change.set(_FILES, path, [content, made, operation.id if operation else None, metadata])
    elif current is not None:
        await change.delete(_FILES, path)
    if operation is not None:
        await change.set(_OPERATIONS, operation.id, [operation.fingerprint, made, current is not None])
    return MemoryMutation(version=made, replayed=False, existed=current is not None)


def _replay(operation: MemoryOperation, receipt: Any) -> MemoryMutation | None:
    if receipt is None:
        return None
    fingerprint, version, existed = receipt
    if fingerprint != operation.fingerprint:
        raise MemoryOperationConflictError(f"operation id {operation.id!r} was reused with different arguments")
    return MemoryMutation(version=version, replayed=True, existed=existed)
