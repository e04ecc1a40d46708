"""Qdrant as the index of an agent's memories: in a folder, in memory, or a server.

    from perdure.adapters.qdrant import QdrantVectors

    agent.memory.vectors = QdrantVectors("./vectors")

Needs `pip install perdure[qdrant]`. What the agent knows stays in its store; see docs/memory-recall.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from qdrant_client import QdrantClient, models

_MARK = (1 << 63) - 1
"""The number of the point that keeps the mark: no piece ever gets it."""

_PAGE = 1000
"""Numbers that are asked for at once."""


class QdrantVectors:
    """An index of vectors in Qdrant: a folder, `:memory:`, or a client that you have made.

    One process at a time may use a folder; a server is for many.
    """

    def __init__(self, where: str | os.PathLike[str] | QdrantClient) -> None:
        self._client = where if isinstance(where, QdrantClient) else _opened(os.fspath(where))

    def __repr__(self) -> str:
        return f"QdrantVectors({self._client!r})"

    def put(self, space: str, vectors: Sequence[tuple[int, Sequence[float]]], mark: int) -> None:
        """See `perdure.memory.outside.VectorIndex`."""
        if not vectors:
            return
        dims = len(vectors[0][1])
        if not self._client.collection_exists(space):
            params = models.VectorParams(size=dims, distance=models.Distance.DOT)
            self._client.create_collection(space, vectors_config=params)
        points = [models.PointStruct(id=number, vector=list(vector)) for number, vector in vectors]
        # Last, so that a mark is never kept without what it stands for.
        points.append(models.PointStruct(id=_MARK, vector=[0.0] * dims, payload={"mark": mark}))
        self._client.upsert(space, points, wait=True)

    def mark(self, space: str) -> int:
        """See `perdure.memory.outside.VectorIndex`."""
        if not self._client.collection_exists(space):
            return 0
        found = self._client.retrieve(space, [_MARK], with_payload=True)
        return int(found[0].payload["mark"]) if found and found[0].payload else 0

    def nearest(self, space: str, vector: Sequence[float], count: int) -> list[int]:
        """See `perdure.memory.outside.VectorIndex`."""
        if not self._client.collection_exists(space):
            return []
        found = self._client.query_points(space, query=list(vector), limit=count + 1, with_payload=False).points
        return [int(it.id) for it in found if it.id != _MARK][:count]

    def drop(self, space: str, numbers: Sequence[int]) -> None:
        """See `perdure.memory.outside.VectorIndex`."""
        if numbers and self._client.collection_exists(space):
            self._client.delete(space, points_selector=models.PointIdsList(points=list(numbers)), wait=True)

    def count(self, space: str) -> int:
        """See `perdure.memory.outside.VectorIndex`."""
        if not self._client.collection_exists(space):
            return 0
        return max(0, int(self._client.count(space, exact=True).count) - 1)  # without the mark

    def numbers(self, space: str) -> Iterator[int]:
        """See `perdure.memory.outside.VectorIndex`."""
        after: Any = None
        while self._client.collection_exists(space):
            found, after = self._client.scroll(space, limit=_PAGE, offset=after, with_payload=False, with_vectors=False)
            yield from (int(it.id) for it in found if it.id != _MARK)
            if after is None:
                return

    def close(self) -> None:
        """Let go of the folder, or of the server."""
        self._client.close()


def _opened(where: str) -> QdrantClient:
    if where == ":memory:":
        return QdrantClient(location=where)
    if "://" in where:
        return QdrantClient(url=where)
    return QdrantClient(path=where)
